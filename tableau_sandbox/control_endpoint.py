"""Control a sandbox over HTTP, from the same machine."""

from dataclasses import dataclass
from typing import Any

from pydantic import ConfigDict, Field, TypeAdapter
from pydantic.dataclasses import dataclass as checked_dataclass
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from tableau_sandbox.clock import stamp
from tableau_sandbox.control import Armed, Control
from tableau_sandbox.errors import RestError, malformed, not_found, refusal
from tableau_sandbox.faults import read_fault, write_fault
from tableau_sandbox.http.middlewares import body_of, is_loopback
from tableau_sandbox.rest.answers import write_error
from tableau_sandbox.services import Services

_BODY_BYTES = 1 << 16


@checked_dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class _Move:
    advance: float = Field(ge=0, allow_inf_nan=False)


_MOVE = TypeAdapter(_Move)


@dataclass(frozen=True)
class ControlEndpoint:
    """Answers all requests under `/control`; refuses them if the option --control is not set."""

    services: Services

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        request = Request(scope, receive)
        try:
            # Read the body first: if the client is still sending, an early answer looks like a
            # broken connection.
            body = await body_of(request, _BODY_BYTES)
            if len(body) > _BODY_BYTES:
                raise malformed(f"The body of the request is larger than {_BODY_BYTES} bytes.")
            self._check_may_control(request)
            answer = self._answer(request, body)
        except ClientDisconnect:
            return
        except RestError as error:
            version = self.services.options.rest_version
            answer = write_error(error, rest_version=version)
        await answer(scope, receive, send)

    def _check_may_control(self, request: Request) -> None:
        if not self.services.options.control:
            raise _unknown(request)
        if request.client is None or not is_loopback(request.client.host):
            raise refusal("403004", "The sandbox is controlled from its own machine only.")
        # A page of another site, or of another port of this machine, must not control the sandbox.
        # Browsers state the origin of a page, so compare it with Host. HostGuard has checked that
        # Host is a name of the sandbox.
        own = request.headers.get("Host", "").casefold()
        origins = request.headers.getlist("Origin")
        if any(origin.partition("://")[2].casefold() != own for origin in origins):
            raise refusal("403004", "The sandbox is not controlled by pages of another origin.")
        # Before a browser sends this content type to another site, the browser asks that site for
        # permission, which the sandbox never gives.
        is_json = request.headers.get("Content-Type", "") == "application/json"
        if request.method == "POST" and not is_json:
            raise malformed("Send the type 'application/json'.")

    def _answer(self, request: Request, body: bytes) -> Response:
        control = self.services.control
        _, *rest = request.scope["path"].strip("/").split("/")
        match request.method, rest:
            case "GET", []:
                return JSONResponse(_state(control))
            case "POST", ["faults"]:
                return JSONResponse(_armed(control.add(_read_fault(body))), 201)
            case "DELETE", ["faults"]:
                control.clear()
                return Response(status_code=204)
            case "DELETE", ["faults", number]:
                _clear(control, number)
                return Response(status_code=204)
            case "POST", ["clock"]:
                _advance(control, body)
                return JSONResponse(_state(control))
        raise _unknown(request)


def _unknown(request: Request) -> RestError:
    return refusal("404003", f"Unknown resource '{request.scope['path']}' specified in URI.")


def _read_fault(body: bytes) -> Any:
    try:
        return read_fault(body)
    except ValueError as error:
        raise malformed(str(error)) from error


def _clear(control: Control, number: str) -> None:
    # Python refuses to convert numbers of thousands of digits.
    if not (number.isdecimal() and len(number) < 10 and control.clear(int(number))):
        raise not_found("Fault", number, code="404003")


def _advance(control: Control, body: bytes) -> None:
    try:
        control.advance(_MOVE.validate_json(body).advance)
    except ValueError as error:
        raise malformed(str(error)) from error


def _state(control: Control) -> dict[str, Any]:
    return {"now": stamp(control.now()), "faults": [_armed(armed) for armed in control.faults()]}


def _armed(armed: Armed) -> dict[str, Any]:
    counts = {"number": armed.number, "seen": armed.seen, "fired": armed.fired}
    return {**counts, **write_fault(armed.fault)}
