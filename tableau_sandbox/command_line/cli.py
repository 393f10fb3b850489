"""The command `tableau-sandbox`."""

import argparse
import logging
import os
import re
import sys
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path

from tableau_sandbox import control
from tableau_sandbox.command_line import credentials
from tableau_sandbox.command_line.banner import banner
from tableau_sandbox.command_line.quirk_options import add_quirks, chosen_quirks
from tableau_sandbox.command_line.stopping import stop_on_signals, stop_without_parent
from tableau_sandbox.content.uploaded import PROFILES
from tableau_sandbox.control.state import Control
from tableau_sandbox.faults import Fault, read_fault
from tableau_sandbox.http.request_log import requests_logged_to
from tableau_sandbox.http.server import bind, sandbox_server, url_of
from tableau_sandbox.loopback import is_loopback
from tableau_sandbox.options import CONNECTED_APP, ConnectedApp, Options, UserSeed
from tableau_sandbox.services import DataDirectoryInUseError
from tableau_sandbox.store.accounts import NameTakenError

# The minimum length of a secret for the signature of a token.
_SECRET_BYTES = 32
# Ten years: far from the limits of all calendars.
_FARTHEST_OFFSET = 10 * 365 * 86400


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a sandbox until it is stopped.

    Returns:
        The exit code: 0 after a stop, 1 if it could not start.
    """
    logging.basicConfig(format="%(levelname)s %(name)s: %(message)s", level=logging.WARNING)
    parsed = _parser().parse_args(arguments)
    options = _options(parsed)
    try:
        listener = bind(parsed.host, parsed.port)
    except OSError as error:
        return _fail(
            f"cannot listen on {parsed.host}:{parsed.port}: {error.strerror}; choose another port "
            "with --port"
        )
    url = url_of(listener, tls=options.tls)
    try:
        if not is_loopback(listener.getsockname()[0]):
            options = credentials.for_other_machines(options)
        with (
            listener,
            nullcontext() if parsed.quiet else requests_logged_to(sys.stderr),
            sandbox_server(
                options,
                control=Control(faults=parsed.fault, offset=parsed.clock_offset),
                on_ready=lambda: _announce(url, options),
            ) as server,
        ):
            stop_on_signals(server)
            if parsed.die_with_parent:
                stop_without_parent(server)
            server.run(sockets=[listener])
    except (DataDirectoryInUseError, NameTakenError) as error:
        return _fail(str(error))
    except credentials.WellKnownCredentialsError as error:
        listener.close()
        return _fail(
            f"other machines can reach {parsed.host}, and everybody knows the defaults: choose "
            f"others by {error}"
        )
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="tableau-sandbox",
        description="A local Tableau Server to publish data sources to.",
        epilog=f"{credentials.__doc__}\n{control.__doc__}",
        # A line of such a file is one argument.
        fromfile_prefix_chars="@",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    _add_server(parser.add_argument)
    _add_publishing(parser.add_argument)
    _add_users(parser.add_argument)
    _add_control(parser.add_argument)
    add_quirks(parser)
    return parser


def _add_server(add: Callable[..., object]) -> None:
    add("--host", default="127.0.0.1", help="to be reached from other machines, see below")
    add(
        "--allowed-host",
        action="append",
        default=[],
        metavar="NAME",
        help="a name by which browsers reach it, besides its address and localhost",
    )
    add("--port", type=int, default=8765, help="0 takes a free one (default: 8765)")
    add("--data-dir", type=Path, default=Path("data/sandbox"), help="(default: data/sandbox)")
    add(
        "--rest-version",
        type=_version,
        default=Options.rest_version,
        help="the newest version served",
    )
    add("--product-version", default=Options.product_version)
    add("--session-minutes", type=float, default=Options.session_minutes)
    add(
        "--one-session-per-token",
        action=argparse.BooleanOptionalAction,
        default=Options.one_session_per_token,
        help="a second sign-in with a personal access token ends the first",
    )


def _add_publishing(add: Callable[..., object]) -> None:
    add(
        "--job-delay",
        type=float,
        default=Options.job_delay,
        help="seconds that a job stays in progress",
    )
    add(
        "--hyper-profile",
        choices=PROFILES,
        default=Options.hyper_profile,
        help="accept only .hyper files that servers of this release accept (default: 2021.4)",
    )
    add(
        "--kept-revisions",
        type=_count,
        default=Options.kept_revisions,
        help="number of revisions kept for each data source (default: 25)",
    )
    add(
        "--upload-blocks",
        type=_count,
        default=Options.upload_blocks,
        help="blocks that an uploaded file may have (default: 1000)",
    )
    add(
        "--update-limit-mb",
        type=float,
        help="the largest payload of an update (default: as in the product version)",
    )
    add(
        "--lenient-missing-columns",
        action=argparse.BooleanOptionalAction,
        default=Options.lenient_missing_columns,
        help="data updates set nullable columns that their source lacks to NULL",
    )


def _add_users(add: Callable[..., object]) -> None:
    add(
        "--connected-app",
        action="append",
        type=_connected_app,
        metavar="CLIENT_ID:SECRET_ID:SECRET_VALUE",
        help="sign in with tokens of this connected app (default:"
        f" {CONNECTED_APP.client_id}:{CONNECTED_APP.secret_id}:{CONNECTED_APP.secret_value})",
    )
    add("--tls", action="store_true", help="serve HTTPS, with a self-signed certificate")
    add("--site", action="append", default=[], metavar="CONTENT_URL", help="an additional site")
    add(
        "--user",
        action="append",
        default=[],
        type=_user,
        metavar="NAME:PASSWORD[:SITE_ROLE]",
        help="an additional user (default role: Creator)",
    )


def _add_control(add: Callable[..., object]) -> None:
    add("--quiet", action="store_true", help="do not log requests")
    add(
        "--control",
        action="store_true",
        help="accept faults and clock changes at /control, see below",
    )
    add(
        "--fault",
        action="append",
        default=[],
        type=_fault,
        metavar="JSON",
        help="a fault from the start, see below",
    )
    add("--die-with-parent", action="store_true", help="stop when the parent process is gone")
    add(
        "--clock-offset",
        type=_offset,
        default=0,
        metavar="SECONDS",
        help="seconds by which its clock is ahead of the machine's; negative if behind",
    )


def _version(text: str) -> str:
    if not re.fullmatch(r"[1-9]\d?\.\d{1,2}", text):
        raise argparse.ArgumentTypeError("expected a version such as 3.27")
    return text


def _count(text: str) -> int:
    if not re.fullmatch(r"[1-9]\d{0,5}", text):
        raise argparse.ArgumentTypeError("expected a whole number above zero")
    return int(text)


def _offset(text: str) -> float:
    seconds = float(text)
    # The comparison is negated so that it refuses nan as well.
    if not abs(seconds) <= _FARTHEST_OFFSET:
        raise argparse.ArgumentTypeError("expected seconds, no more than ten years of them")
    return seconds


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
    try:
        return UserSeed(name=name, password=password, site_role=site_role or UserSeed.site_role)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _connected_app(text: str) -> ConnectedApp:
    parts = text.split(":")
    if len(parts) != 3 or not all(parts):
        raise argparse.ArgumentTypeError("expected CLIENT_ID:SECRET_ID:SECRET_VALUE")
    client_id, secret_id, secret_value = parts
    if len(secret_value.encode()) < _SECRET_BYTES:
        raise argparse.ArgumentTypeError(f"the secret needs {_SECRET_BYTES} bytes or more")
    return ConnectedApp(client_id=client_id, secret_id=secret_id, secret_value=secret_value)


def _options(parsed: argparse.Namespace) -> Options:
    return Options(
        data_dir=parsed.data_dir,
        rest_version=parsed.rest_version,
        product_version=parsed.product_version,
        session_minutes=parsed.session_minutes,
        one_session_per_token=parsed.one_session_per_token,
        job_delay=parsed.job_delay,
        hyper_profile=parsed.hyper_profile,
        kept_revisions=parsed.kept_revisions,
        upload_blocks=parsed.upload_blocks,
        update_limit_mb=parsed.update_limit_mb,
        lenient_missing_columns=parsed.lenient_missing_columns,
        connected_apps=tuple(parsed.connected_app or Options.connected_apps),
        tls=parsed.tls,
        allowed_hosts=tuple(parsed.allowed_host),
        control=parsed.control,
        sites=tuple(parsed.site),
        admin=credentials.administrator(os.environ),
        users=tuple(parsed.user),
        **chosen_quirks(parsed),
    )


def _announce(url: str, options: Options) -> None:
    sys.stdout.write(banner(url, options))
    # The process that started the sandbox reads the address from a pipe.
    sys.stdout.flush()


def _fail(reason: str) -> int:
    sys.stderr.write(f"tableau-sandbox: {reason}\n")
    return 1
