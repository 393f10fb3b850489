"""The command `tableau-sandbox verify`."""

import argparse
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from urllib.parse import urlsplit

from requests import RequestException

from tableau_sandbox.facts.answer import Deviation
from tableau_sandbox.facts.credentials import Credentials, Others
from tableau_sandbox.facts.playground import (
    LeftBehindError,
    Playground,
    UnknownProjectError,
)
from tableau_sandbox.facts.registry import FACTS
from tableau_sandbox.facts.report import as_json, as_text
from tableau_sandbox.facts.run import Outcome, Verdict, check
from tableau_sandbox.facts.scene import Scene

_DESCRIPTION = """\
Check on a real Tableau site what this sandbox takes for granted.

Each fact is a request and the answer to expect. Without --project, only facts are checked that
change nothing. With it, data sources are published to that project, under unique names; all are
removed in the end.
"""
_EPILOG = """\
environment:
  TABLEAU_TOKEN_NAME, TABLEAU_TOKEN_VALUE  a personal access token, best one that nobody else uses:
                                           each sign-in ends the earlier session of a token
  TABLEAU_SITE                             the site as its URL has it; empty for the default site
  REQUESTS_CA_BUNDLE                       a file with certificates to trust
For further facts; without them, these are reported as not tried:
  TABLEAU_CONNECTED_APP_CLIENT_ID, TABLEAU_CONNECTED_APP_SECRET_ID,
  TABLEAU_CONNECTED_APP_SECRET_VALUE       a connected app, which signs TABLEAU_USERNAME in
  TABLEAU_USERNAME, TABLEAU_PASSWORD       a user with a password
  TABLEAU_OTHER_SITE                       another site, to which the user of the token belongs
  TABLEAU_VIEWER_TOKEN_NAME, TABLEAU_VIEWER_TOKEN_VALUE
                                           a token of a user with the site role Viewer
  TABLEAU_CREATOR_TOKEN_NAME, TABLEAU_CREATOR_TOKEN_VALUE
                                           a token of a user who may publish, but neither leads the
                                           project nor administers the site

exit codes: 0 if all facts hold, 1 if the server deviates, 2 if it could not be checked
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Check the facts and print a report.

    Returns:
        The exit code: 0 if all facts hold, 1 if the server deviates, 2 if it could not be checked,
        or if something that was created could not be removed.
    """
    parsed = _parser().parse_args(arguments)
    credentials = _credentials()
    if credentials is None:
        return _fail("set TABLEAU_TOKEN_NAME and TABLEAU_TOKEN_VALUE, and TABLEAU_SITE if needed")
    outcomes: list[Outcome] = []
    try:
        scene = Scene(parsed.against, credentials, Others(os.environ))
        with Playground(scene, parsed.project) if parsed.project else nullcontext() as playground:
            outcomes += _shown(check(FACTS, scene, playground), quiet=parsed.json)
    except Deviation as refused:
        return _fail(
            f"the server cannot be checked: expected {refused.expected}; got {refused.got}"
        )
    except RequestException as error:
        return _fail(f"the server cannot be reached: {type(error).__name__}")
    except UnknownProjectError as error:
        return _fail(str(error))
    except LeftBehindError as error:
        # The report would be lost, and with it why something could not be removed.
        _print(outcomes, scene, in_json=parsed.json)
        return _fail(f"not everything was removed; please delete: {error}")
    _print(outcomes, scene, in_json=parsed.json)
    return int(any(outcome.verdict is Verdict.DEVIATES for outcome in outcomes))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="tableau-sandbox verify",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--against", required=True, type=_url, metavar="URL", help="the address of the server"
    )
    parser.add_argument(
        "--project", metavar="NAME", help="write to this project, and check all facts"
    )
    parser.add_argument("--json", action="store_true", help="print JSON, to send to others")
    return parser


def _url(text: str) -> str:
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.netloc or parts.path.strip("/"):
        raise argparse.ArgumentTypeError("expected an address such as https://tableau.example.com")
    return text


def _credentials() -> Credentials | None:
    # Flags would show in the list of processes and stay in the history of the shell.
    name, value = (os.environ.get(f"TABLEAU_TOKEN_{part}", "") for part in ("NAME", "VALUE"))
    if not (name and value):
        return None
    return Credentials(token_name=name, token_value=value, site=os.environ.get("TABLEAU_SITE", ""))


def _shown(outcomes: Iterable[Outcome], *, quiet: bool) -> Iterator[Outcome]:
    """Show a mark for each fact: all of them take minutes on a real server."""
    marks = {Verdict.HOLDS: ".", Verdict.DEVIATES: "D", Verdict.NOT_SHOWN: "-"}
    for outcome in outcomes:
        if not quiet:
            sys.stderr.write(marks[outcome.verdict])
            sys.stderr.flush()
        yield outcome
    if not quiet:
        sys.stderr.write("\n")


def _print(outcomes: Sequence[Outcome], scene: Scene, *, in_json: bool) -> None:
    sys.stdout.write((as_json if in_json else as_text)(outcomes, scene))


def _fail(reason: str) -> int:
    sys.stderr.write(f"tableau-sandbox verify: {reason}\n")
    return 2
