"""Run a local stand-in for Tableau Server, to which clients publish data sources.

Set the administrator's credentials by variables, to keep secrets out of the process list:

    TABLEAU_SANDBOX_USER, TABLEAU_SANDBOX_PASSWORD           default: admin, admin
    TABLEAU_SANDBOX_TOKEN_NAME, TABLEAU_SANDBOX_TOKEN_SECRET default: pipeline, pipeline-secret

If other machines can reach the --host, the user, the password and the token's secret must differ
from these defaults. The sandbox then refuses the default connected app.

A file can contain the arguments, one on each line: tableau-sandbox @FILE
"""

import argparse
import logging
import os
import signal
import socket
import sqlite3
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import fields, replace
from typing import Annotated, Any, get_args, get_type_hints

from pydantic import Field, TypeAdapter, ValidationError

from tableau_sandbox import faults
from tableau_sandbox.control import Control
from tableau_sandbox.http.middlewares import is_loopback, requests_logged_to
from tableau_sandbox.http.server import (
    SandboxServer,
    bind,
    certificate_path,
    sandbox_server,
    url_of,
)
from tableau_sandbox.options import ADMIN, CONNECTED_APP, Options, UserSeed
from tableau_sandbox.quirks import Quirks
from tableau_sandbox.services import DATABASE_FILE, DataDirectoryInUseError
from tableau_sandbox.store.accounts import NameTakenError

USER = "TABLEAU_SANDBOX_USER"
PASSWORD = "TABLEAU_SANDBOX_PASSWORD"  # noqa: S105 - the name of a variable
TOKEN_NAME = "TABLEAU_SANDBOX_TOKEN_NAME"  # noqa: S105
TOKEN_SECRET = "TABLEAU_SANDBOX_TOKEN_SECRET"  # noqa: S105
_PARENT_POLL_SECONDS = 0.5
# Ten years. All dates within this range are valid in every calendar.
_Offset = Annotated[float, Field(ge=-3.2e8, le=3.2e8, allow_inf_nan=False)]
_Port = Annotated[int, Field(ge=0, le=65535)]


class WellKnownCredentialsError(ValueError):
    """The credentials are public; the message lists the variables and options to set."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a sandbox until it is stopped.

    Returns:
        The exit code: 0 after a stop, 1 if the sandbox could not start.
    """
    logging.basicConfig(format="%(levelname)s %(name)s: %(message)s", level=logging.WARNING)
    parsed = _parser().parse_args(arguments)
    chosen = {each.name: vars(parsed)[each.name] for each in fields(Options) if each.name in parsed}
    options = Options(admin=administrator(os.environ), **chosen)
    try:
        listener = bind(parsed.host, parsed.port)
    except OSError as error:
        return _fail(
            f"cannot listen on {parsed.host}:{parsed.port}: {error.strerror}; choose another port "
            "with --port"
        )
    try:
        with listener:
            _serve(listener, options, parsed)
    except (DataDirectoryInUseError, NameTakenError) as error:
        return _fail(str(error))
    except sqlite3.DatabaseError as error:
        return _fail(
            f"cannot use {options.data_dir / DATABASE_FILE}: {error}; move it away, or choose "
            "another folder with --data-dir"
        )
    except OSError as error:
        return _fail(
            f"cannot use {error.filename or options.data_dir}: {error.strerror}; choose another "
            "folder with --data-dir"
        )
    except WellKnownCredentialsError as error:
        return _fail(
            f"other machines can reach {parsed.host}, and the default credentials are public: "
            f"choose others by {error}"
        )
    return 0


def _serve(listener: socket.socket, options: Options, parsed: argparse.Namespace) -> None:
    if not is_loopback(listener.getsockname()[0]):
        options = for_other_machines(options)
    url = url_of(listener, tls=options.tls)
    with (
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


def _parser() -> argparse.ArgumentParser:
    description, _, notes = (__doc__ or "").partition("\n\n")
    parser = argparse.ArgumentParser(
        prog="tableau-sandbox",
        description=description,
        epilog=f"{notes}\n{faults.__doc__}",
        # In a file of arguments, each line is one argument.
        fromfile_prefix_chars="@",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--host", default="127.0.0.1", help="where to listen; for other machines, see below")
    add("--port", type=_reader(_Port), default=8765, help="0 takes a free port (default: 8765)")
    add("--quiet", action="store_true", help="do not log requests")
    add("--die-with-parent", action="store_true", help="stop when the parent process ends")
    add(
        "--clock-offset",
        type=_reader(_Offset),
        default=0,
        metavar="SECONDS",
        help="seconds by which the sandbox's clock is ahead of the machine's; negative if behind",
    )
    add(
        "--fault",
        action="append",
        default=[],
        type=_reading(faults.read_fault),
        metavar="JSON",
        help="a fault to arm at the start, see below",
    )
    _add_options(parser)
    return parser


def _add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that `Options` declares; only given options get into the parsed arguments."""
    hints = get_type_hints(Options, include_extras=True)
    quirks = {each.name for each in fields(Quirks)}
    groups = parser, parser.add_argument_group("quirks: what Tableau leaves open")
    for each in fields(Options):
        if "help" not in each.metadata:
            continue
        hint, text = hints[each.name], each.metadata["help"]
        arguments: dict[str, Any] = {"dest": each.name, "default": argparse.SUPPRESS}
        if hint is bool:
            arguments["action"] = argparse.BooleanOptionalAction
            text += f" (default: {'yes' if each.default else 'no'})"
        elif isinstance(each.default, tuple):
            (hint, _) = get_args(hint)
            parse = each.metadata.get("parse")
            arguments["type"] = _reading(parse) if parse else _reader(hint)
            arguments |= {"action": "append", "metavar": each.metadata.get("metavar")}
        else:
            arguments |= {"type": _reader(hint), "metavar": each.name.split("_")[-1].upper()}
            choices = ", ".join(value for value in get_args(hint) if isinstance(value, str))
            text += f": {choices}" if choices else ""
            text += f" (default: {each.default})" if each.default is not None else ""
        flag = each.metadata.get("flag", each.name).replace("_", "-")
        groups[each.name in quirks].add_argument(
            f"--{flag}", help=text.replace("%", "%%"), **arguments
        )


def _reader(hint: Any) -> Callable[[str], Any]:
    """Return a function that converts an argument to a type."""
    return _reading(TypeAdapter(hint).validate_python)


def _reading(parse: Callable[[str], Any]) -> Callable[[str], Any]:
    def read(text: str) -> Any:
        try:
            return parse(text)
        except ValidationError as error:
            first = error.errors(include_input=False)[0]
            where = "".join(f"{part}: " for part in first["loc"])
            raise argparse.ArgumentTypeError(f"{where}{first['msg']}") from error
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from error

    return read


def administrator(environment: Mapping[str, str]) -> UserSeed:
    """Return the administrator that the variables describe; `ADMIN` has the default values."""
    ((token_name, token_secret),) = ADMIN.tokens
    token = environment.get(TOKEN_NAME) or token_name, environment.get(TOKEN_SECRET) or token_secret
    return replace(
        ADMIN,
        name=environment.get(USER) or ADMIN.name,
        password=environment.get(PASSWORD) or ADMIN.password,
        tokens=(token,),
    )


def for_other_machines(options: Options) -> Options:
    """Return the options of a sandbox that other machines can reach.

    Raises:
        WellKnownCredentialsError: the administrator has the documented name, password or token's
            secret, or another user has the documented password.
    """
    admin = options.admin
    known = {
        # Tableau ignores the case of names.
        USER: admin.name.casefold() == ADMIN.name,
        PASSWORD: admin.password == ADMIN.password,
        TOKEN_SECRET: admin.tokens[0][1] == ADMIN.tokens[0][1],
        "--user": any(user.password == ADMIN.password for user in options.users),
    }
    if any(known.values()):
        raise WellKnownCredentialsError(", ".join(name for name in known if known[name]))
    apps = [app for app in options.connected_apps if app.secret_value != CONNECTED_APP.secret_value]
    return replace(options, connected_apps=tuple(apps))


def _announce(url: str, options: Options) -> None:
    """Print the sandbox's address and credentials; a variable's name replaces a private secret."""
    admin = options.admin
    ((token_name, token_secret),) = admin.tokens
    password = admin.password if admin.password == ADMIN.password else f"${PASSWORD}"
    secret = token_secret if token_secret == ADMIN.tokens[0][1] else f"${TOKEN_SECRET}"
    lines = [
        f"Tableau sandbox ready at {url} (REST API {options.rest_version}, data in"
        f" {options.data_dir})",
        f"  user: {admin.name} / {password}",
        f"  personal access token: {token_name} / {secret}",
    ]
    lines += [
        f"  connected app: {app.client_id} / {app.secret_id} / {app.secret_value}"
        for app in options.connected_apps
        if app == CONNECTED_APP
    ]
    if options.tls:
        lines.append(f"  certificate to trust: {certificate_path(options.data_dir)}")
    sys.stdout.write("\n".join(lines) + "\n")
    # Flush, because a parent process may read the address from a pipe.
    sys.stdout.flush()


def stop_on_signals(server: SandboxServer) -> None:
    """Stop the server when a signal asks this process to end."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: server.stop())


def stop_without_parent(server: SandboxServer) -> None:
    """Stop the server when the parent of this process has ended."""
    parent = os.getppid()

    def watch() -> None:
        # When a parent ends, the system gives the process another parent.
        while os.getppid() == parent:
            time.sleep(_PARENT_POLL_SECONDS)
        server.stop()

    threading.Thread(target=watch, name="sandbox-parent-watch", daemon=True).start()


def _fail(reason: str) -> int:
    sys.stderr.write(f"tableau-sandbox: {reason}\n")
    return 1
