"""One personal access token carries one session: its users on a host take turns."""

import hashlib
import logging
import os
import tempfile
import threading
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from tableau_pipeline.errors import RefreshError, RefusedError

_PRIVATE = 0o700
_POLL_SECONDS = 0.2

# Which thread of this process holds which lock.
_holders: dict[Path, int] = {}


@contextmanager
def only_session(url: str, *, token: str, timeout: float, log: logging.Logger) -> Generator[None]:
    """Keep the token to ourselves: no other process or thread of this user and host has it.

    The operating system frees the token when its holder dies. Other hosts and users know nothing of
    it: each needs a token of its own.

    Args:
        token: its name. Tableau ends the session of a token wherever it signs in again, on another
            site too.
        timeout: seconds to wait for our turn.

    Raises:
        RefusedError: this thread has the token already, and would wait for itself.
        RefreshError: others kept it for too long.
    """
    path = _lock_file(url, token)
    # A session inside a session cannot be had: the second sign-in would end the first, and whoever
    # uses the outer one would then end the inner one.
    if _holders.get(path) == threading.get_ident():
        raise RefusedError(
            f'A session of token "{token}" on {url} is open in this thread already, and a token '
            "carries one. Pass that session on, end it first, or sign in with another token."
        )
    with _acquired(path, url=url, token=token, timeout=timeout, log=log):
        _holders[path] = threading.get_ident()
        try:
            yield
        finally:
            del _holders[path]


@contextmanager
def _acquired(
    path: Path, *, url: str, token: str, timeout: float, log: logging.Logger
) -> Generator[None]:
    # On its own for each session: a lock that is shared lets all threads of the process in.
    lock = FileLock(path)
    # Who has to wait no longer than this need not hear of it.
    quiet = min(timeout, 1.0)
    try:
        lock.acquire(timeout=quiet, poll_interval=_POLL_SECONDS)
    except Timeout:
        log.info(
            'Waiting for token "%s" on %s: another refresh on this host has a session with it, and '
            "a token carries one. With a token of their own, refreshes need not wait",
            token,
            url,
        )
        try:
            lock.acquire(timeout=timeout - quiet, poll_interval=_POLL_SECONDS)
        except Timeout as error:
            raise RefreshError(
                f'Token "{token}" on {url} was in use by other refreshes on this host for '
                f"{timeout:.0f} s, and it carries one session at a time. Run again later, or give "
                "each deployment and host a token of its own."
            ) from error
    try:
        yield
    finally:
        lock.release()


def _lock_file(url: str, token: str) -> Path:
    user = os.getuid()
    folder = Path(tempfile.gettempdir()) / f"tableau-pipeline-{user}"
    folder.mkdir(mode=_PRIVATE, exist_ok=True)
    # Everybody may make a folder there; in somebody else's, they would rule over our sessions.
    if folder.is_symlink() or folder.stat().st_uid != user:
        raise RefusedError(
            f"{folder} belongs to somebody else. Remove it, or set TMPDIR to a folder of your own."
        )
    name = hashlib.sha256(f"{url.casefold()}\n{token}".encode()).hexdigest()[:32]
    return folder / f"{name}.lock"
