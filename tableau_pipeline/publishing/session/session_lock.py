"""A personal access token allows one session, so its users on a host take turns."""

import hashlib
import logging
import os
import threading
from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from tableau_pipeline.errors import RefreshError, RefusedError
from tableau_pipeline.objects.own_folder import temporary_folder

_POLL_SECONDS = 0.2

# Which thread of this process holds which lock.
_holders: dict[Path, int] = {}


@contextmanager
def only_session(url: str, *, token: str, timeout: float, log: logging.Logger) -> Generator[None]:
    """Reserve the token for this thread: no other thread or process of this user and host has it.

    The operating system releases the token when its holder dies. The lock does not reach other
    hosts or users, so each needs a token of its own.

    Args:
        token: the name of the token. A new sign-in ends its previous session, even on another
            site.
        timeout: seconds to wait for our turn.

    Raises:
        RefusedError: this thread already holds the token, and would wait for itself; or see
            `temporary_folder`.
        RefreshError: others held the token for too long.
    """
    path = _lock_file(url, token)
    # Sessions cannot be nested: the second sign-in would end the first, and signing in again for
    # the outer session would then end the inner one.
    if _holders.get(path) == threading.get_ident():
        raise RefusedError(
            f'A session of token "{token}" on {url} is open in this thread already, and a token '
            "carries one. Pass that session on, end it first, or sign in with another token."
        )
    # A new lock object for each session: a shared FileLock lets all threads of the process in.
    with _acquired(FileLock(path), url=url, token=token, timeout=timeout, log=log):
        _holders[path] = threading.get_ident()
        _holder_file(path).write_text(str(os.getpid()), encoding="ascii")
        try:
            yield
        finally:
            del _holders[path]


def _acquired(
    lock: FileLock, *, url: str, token: str, timeout: float, log: logging.Logger
) -> AbstractContextManager[object]:
    # A shorter wait is not logged.
    quiet = min(timeout, 1.0)
    try:
        return lock.acquire(timeout=quiet, poll_interval=_POLL_SECONDS)
    except Timeout:
        log.info(
            'Waiting for token "%s" on %s: %s has a session with it, and a token carries one. With '
            "a token of their own, refreshes need not wait",
            token,
            url,
            _holder(Path(lock.lock_file)),
        )
        try:
            return lock.acquire(timeout=timeout - quiet, poll_interval=_POLL_SECONDS)
        except Timeout as error:
            raise RefreshError(
                f'Token "{token}" on {url} was in use by other refreshes on this host for '
                f"{timeout:.0f} s, last by {_holder(Path(lock.lock_file))}, and it carries one "
                "session at a time. Run again later, or give each deployment and host a token of "
                "its own."
            ) from error


def _holder_file(lock: Path) -> Path:
    # Not in the lock file itself, which whoever waits for it empties.
    return lock.with_suffix(".holder")


def _holder(lock: Path) -> str:
    """Return which process holds a lock, and whether it is paused, as far as the host shows it."""
    try:
        pid = int(_holder_file(lock).read_text(encoding="ascii"))
    except (OSError, ValueError):
        return "another process on this host"
    try:
        # The name of the program stands in brackets before the state, and may have any characters.
        state = (
            Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()[0]
        )
    except (OSError, IndexError):
        state = ""
    paused = (
        f", which is paused: continue it by kill -CONT {pid}, or end it," if state == "T" else ""
    )
    return f"process {pid} on this host{paused}"


def _lock_file(url: str, token: str) -> Path:
    folder = temporary_folder() / "sessions"
    folder.mkdir(exist_ok=True)
    # Hashed, because a token's name may have characters that a file's name may not.
    name = hashlib.sha256(f"{url.casefold()}\n{token}".encode()).hexdigest()[:32]
    return folder / f"{name}.lock"
