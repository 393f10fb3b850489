"""Write the answers of the service as JSON."""

import json
from datetime import UTC, datetime
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from tableau_sandbox.services import Services
from tableau_sandbox.vds.errors import VdsError

_REFUSALS = {
    401: VdsError("401002", "Invalid authentication credentials."),
    429: VdsError("429000", "Too many requests. Please retry later."),
    500: VdsError("500000", "The sandbox was configured to fail here."),
    503: VdsError("503804", "The session was not found."),
    504: VdsError("504000", "The sandbox was configured to answer like a gateway that timed out."),
}


def json_answer(value: Any, status: int = 200) -> Response:
    """Return an answer in JSON."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    return Response(text, status, media_type="application/json")


def error_answer(error: VdsError, *, now: datetime) -> Response:
    """Return a refusal."""
    return json_answer(error_object(error, now=now), error.status)


def error_object(error: VdsError, *, now: datetime) -> dict[str, Any]:
    """Return a refusal as values of JSON."""
    moment = now.astimezone(UTC)
    # Servers write nanoseconds.
    stamp = f"{moment:%Y-%m-%dT%H:%M:%S}.{moment.microsecond:06}000Z"
    return {"errorCode": error.code, "message": error.message, "datetime": stamp}


def write_vds_refusal(services: Services, request: Request, status: int) -> Response:
    """Write a refusal with a status that a fault orders."""
    return error_answer(_REFUSALS[status], now=services.clock())
