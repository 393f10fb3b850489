"""The command `tableau-sandbox`."""

import argparse
import logging
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from tableau_pipeline.sandbox import control
from tableau_pipeline.sandbox.control.control import Control
from tableau_pipeline.sandbox.control.faults import Fault, read_fault
from tableau_pipeline.sandbox.options import (
    ADMIN_NAME,
    ADMIN_PASSWORD,
    TOKEN_NAME,
    TOKEN_SECRET,
    Options,
    UserSeed,
)
from tableau_pipeline.sandbox.server import SandboxServer, bind, sandbox_server, url_of
from tableau_pipeline.sandbox.services import DataDirectoryInUseError

_PARENT_POLL_SECONDS = 0.5


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a sandbox until it is told to stop.

    Returns:
        The exit code: 0 after a stop, 1 if it could not start.
    """
    logging.basicConfig(format="%(levelname)s %(name)s: %(message)s", level=logging.WARNING)
    parsed = _parser().parse_args(arguments)
    options = _options(parsed)
    try:
        listener = bind(parsed.host, parsed.port)
    except OSError as error:
        return _fail(f"cannot listen on {parsed.host}:{parsed.port}: {error.strerror}")
    url = url_of(listener)
    try:
        with (
            listener,
            sandbox_server(
                options,
                control=Control(faults=parsed.fault),
                on_ready=lambda: _announce(url, options),
            ) as server,
        ):
            _stop_on_signals(server)
            if parsed.die_with_parent:
                _stop_without_parent(server)
            server.run(sockets=[listener])
    except DataDirectoryInUseError as error:
        return _fail(str(error))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="tableau-sandbox",
        description="A local Tableau Server to publish data sources to.",
        epilog=control.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--host", default="127.0.0.1")
    add("--port", type=int, default=8765, help="0 takes a free one (default: 8765)")
    add("--data-dir", type=Path, default=Path("data/sandbox"), help="(default: data/sandbox)")
    add("--rest-version", type=_version, default=Options.rest_version, help="newest one served")
    add("--product-version", default=Options.product_version)
    add("--session-minutes", type=float, default=Options.session_minutes)
    add(
        "--one-session-per-token",
        action=argparse.BooleanOptionalAction,
        default=Options.one_session_per_token,
        help="a second sign-in with a personal access token ends the first",
    )
    add("--job-delay", type=float, default=Options.job_delay, help="seconds in progress")
    add(
        "--replace-keeps-metadata",
        action=argparse.BooleanOptionalAction,
        default=Options.replace_keeps_metadata,
        help="publish mode Replace keeps the stored .tds",
    )
    add("--site", action="append", default=[], metavar="CONTENT_URL", help="one more site")
    add(
        "--user",
        action="append",
        default=[],
        type=_user,
        metavar="NAME:PASSWORD[:SITE_ROLE]",
        help="one more user (default role: Creator)",
    )
    add("--control", action="store_true", help="take orders at /control, see below")
    add(
        "--fault",
        action="append",
        default=[],
        type=_fault,
        metavar="JSON",
        help="a fault from the start, see below",
    )
    add("--die-with-parent", action="store_true", help="stop when the parent process is gone")
    return parser


def _version(text: str) -> str:
    if not re.fullmatch(r"[1-9]\d?\.\d{1,2}", text):
        raise argparse.ArgumentTypeError("expected a version such as 3.27")
    return text


def _fault(text: str) -> Fault:
    try:
        return read_fault(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _user(text: str) -> UserSeed:
    name, separator, rest = text.partition(":")
    password, _, site_role = rest.partition(":")
    if not (name and separator and password):
        raise argparse.ArgumentTypeError("expected NAME:PASSWORD[:SITE_ROLE]")
    return UserSeed(name=name, password=password, site_role=site_role or UserSeed.site_role)


def _options(parsed: argparse.Namespace) -> Options:
    return Options(
        data_dir=parsed.data_dir,
        rest_version=parsed.rest_version,
        product_version=parsed.product_version,
        session_minutes=parsed.session_minutes,
        one_session_per_token=parsed.one_session_per_token,
        job_delay=parsed.job_delay,
        replace_keeps_metadata=parsed.replace_keeps_metadata,
        control=parsed.control,
        sites=tuple(parsed.site),
        users=tuple(parsed.user),
    )


def _announce(url: str, options: Options) -> None:
    sys.stdout.write(
        f"Tableau sandbox ready at {url} (REST API {options.rest_version}, data in"
        f" {options.data_dir}); sign in as {ADMIN_NAME} / {ADMIN_PASSWORD}, or with the token"
        f" {TOKEN_NAME} / {TOKEN_SECRET}\n"
    )
    # Whoever started it reads the address from a pipe.
    sys.stdout.flush()


def _fail(reason: str) -> int:
    sys.stderr.write(f"tableau-sandbox: {reason}\n")
    return 1


def _stop_on_signals(server: SandboxServer) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: server.stop())


def _stop_without_parent(server: SandboxServer) -> None:
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(_PARENT_POLL_SECONDS)
        server.stop()

    threading.Thread(target=watch, name="sandbox-parent-watch", daemon=True).start()
