"""Write the rows of a query in the format that the request asks for."""

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from starlette.responses import Response

from tableau_sandbox.faults import BreakRows, QueryFault
from tableau_sandbox.vds.engine.query import query_of
from tableau_sandbox.vds.engine.run import Row
from tableau_sandbox.vds.errors import VdsError
from tableau_sandbox.vds.query_fields import answer_key
from tableau_sandbox.vds.requests import Request, ReturnFormat
from tableau_sandbox.vds.schema import Schema
from tableau_sandbox.vds.service.answers import error_object, json_answer

_BROKEN = VdsError("500000", "The sandbox was configured to fail here.")


def rows_answer(
    rows: list[Row],
    request: Request,
    faults: Sequence[QueryFault],
    *,
    schema: Schema,
    now: datetime,
) -> Response:
    """Return the rows of a query, as one object or as events.

    Raises:
        VdsError: 500000, a fault ordered it, and the version does not send rows before it has all.
    """
    error = None
    if any(isinstance(fault, BreakRows) for fault in faults):
        if schema < Schema.V20261:
            raise _BROKEN
        rows, error = rows[:1], error_object(_BROKEN, now=now)
    data: list[Any] = rows
    if request.options.return_format is ReturnFormat.OBJECTS:
        keys = [answer_key(field) for field in query_of(request).fields]
        data = [dict(zip(keys, row, strict=True)) for row in rows]
    if request.options.server_sent_events:
        return _events(data, error)
    return json_answer({"data": data} if error is None else {"data": data, "error": error})


def _events(data: list[Any], error: dict[str, Any] | None) -> Response:
    events: list[dict[str, Any]] = [
        {"event": "METADATA", "data": {"rowCount": len(data)}},
        {"event": "DATA", "data": data},
    ]
    if error is not None:
        events.append({"event": "ERROR", "data": error})
    text = "".join(f"data: {json.dumps(each, separators=(',', ':'))}\n\n" for each in events)
    return Response(text, media_type="text/event-stream")
