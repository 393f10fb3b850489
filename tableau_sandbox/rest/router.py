import re
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import unquote

from starlette.responses import Response

from tableau_sandbox.errors import refusal
from tableau_sandbox.rest.answers import Reply
from tableau_sandbox.rest.requests import Call
from tableau_sandbox.services import Services

_BODY_BYTES = 1 << 20
_VERSION = re.compile(r"[0-9]{1,3}\.[0-9]{1,3}")
_OLDEST_VERSION = "2.0"


@dataclass(frozen=True)
class Route:
    """One method of the API.

    Attributes:
        method: the HTTP verb.
        pattern: the path under `/api/{version}/`, with `{names}` for its variable parts.
        handler: the function that answers.
        scopes: a session of a connected app needs one of these scopes; if the tuple is empty, every
            session may make the call.
        attachment: the name of the file part if the body is multipart.
        signed_in: whether the call requires a session.
        versioned: whether the path under `/api/` begins with a version.
        body_bytes: the size limit of a body that is not multipart.
    """

    method: str
    pattern: str
    handler: Callable[[Services, Call], Reply | Response]
    scopes: tuple[str, ...] = ()
    attachment: str | None = None
    signed_in: bool = True
    versioned: bool = True
    body_bytes: int = _BODY_BYTES


def find_route(
    routes: tuple[Route, ...], *, method: str, raw_path: bytes, newest: str
) -> tuple[Route, dict[str, str]]:
    """Find the route of a request, and the variable parts of its path.

    This splits the path before decoding, because an encoded slash belongs to a name.

    Raises:
        RestError: 404003, the path or the version is unknown; 405000, the path does not support the
            method.
    """
    path = raw_path.decode("ascii", "replace").removeprefix("/api")
    segments = [unquote(segment) for segment in path.strip("/").split("/")]
    versioned = _is_served(segments[0], newest=newest)
    found = [
        (route, variables)
        for route in routes
        if route.versioned == versioned
        and (variables := _match(route.pattern, segments[versioned:])) is not None
    ]
    if not found:
        raise refusal("404003", f"Unknown resource '{path}' specified in URI.")
    for route, variables in found:
        if route.method == method:
            return route, variables
    raise refusal("405000", f"The method {method} is not allowed for '{path}'.")


def _match(pattern: str, segments: list[str]) -> dict[str, str] | None:
    expected = pattern.split("/")
    if len(expected) != len(segments):
        return None
    variables: dict[str, str] = {}
    for name, segment in zip(expected, segments, strict=True):
        if name.startswith("{"):
            variables[name.strip("{}")] = segment
        # Some clients write `serverinfo`, and real servers answer them.
        elif name != segment and not (name == "serverInfo" and segment.lower() == "serverinfo"):
            return None
    return variables


def _is_served(version: str, *, newest: str) -> bool:
    if not _VERSION.fullmatch(version):
        return False
    return _numbers(_OLDEST_VERSION) <= _numbers(version) <= _numbers(newest)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))
