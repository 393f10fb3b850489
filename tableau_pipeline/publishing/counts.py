"""Count published rows on the server, by its VizQL Data Service.

Equal numbers prove that the rows are there. Different ones prove nothing: filters of the data
source and the rights of the user hide rows, and caches remember them.
"""

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, cast

import requests
import tableauserverclient as TSC
from urllib3.util import Retry

from tableau_pipeline.errors import RefreshError
from tableau_pipeline.publishing.errors import SESSION_GONE
from tableau_pipeline.publishing.http import Wire, WireAdapter

# The service has paths, errors and a version of its own, which nothing tells: a request that needs
# a newer one gets `NotUnderstoodError`. It uses the session of the REST API.
_BASE = "api/v1/vizql-data-service"
# All requests only read, so they may be repeated. Not after 429: that is a budget for an hour.
_RETRY = Retry(
    total=3,
    allowed_methods={"POST"},
    status_forcelist={502, 503, 504},
    backoff_factor=0.5,
    raise_on_status=False,
    respect_retry_after_header=False,
)
# The body, a formula or a field is not what this version of the service knows.
_NOT_UNDERSTOOD = frozenset({"400800", "400802", "400803", "404934", "404935", "501000"})
_REMEDIES = {
    "403800": "this user needs the capability API Access on the data source",
    "404937": "the data source is gone, or this user may not see it",
    "404950": "the server is too old for that",
    "429000": "the site's budget of queries is spent",
}
# The answer to a question about no rows, in some versions.
_EMPTY = "500810"


class NotUnderstoodError(RefreshError):
    """The service does not know what was asked for, or this version of it does not."""


def ask(tsc: TSC.Server, endpoint: str, body: dict[str, Any]) -> Any:
    """Send a request to an endpoint of the service, and return its answer.

    Raises:
        NotUnderstoodError: the request itself was refused.
        RefreshError: the service is not there.
        requests.RequestException: it did not answer.
        TSC.FailedSignInError: the session has ended, or does not include the service.
    """
    base = f"{tsc.server_address}/{_BASE}/"
    session = tsc.session
    # Requests go where those of the REST API go, and are repeated by rules of their own.
    wire = cast(WireAdapter, session.get_adapter(base)).wire
    session.mount(base, WireAdapter(wire, retry=_RETRY, is_rest=False))
    try:
        response = session.post(
            f"{base}{endpoint}",
            json=body,
            headers={"X-Tableau-Auth": str(tsc.auth_token)},
            **tsc.http_options,
        )
        answer = response.json()
    except (LookupError, RecursionError, requests.JSONDecodeError) as error:
        # Gateways answer in HTML, servers without the service with the page of their web client.
        raise RefreshError(
            f"no answer of a VizQL Data Service, but status {response.status_code} and "
            f"{wire.excerpt(response.content)}"
        ) from error
    # An error that comes up after the first row ends a body whose status says that all is well.
    error = answer if not response.ok else answer.get("error") if isinstance(answer, dict) else None
    if error is None:
        return answer
    return _failed(error, response, wire)


def _failed(error: Any, response: requests.Response, wire: Wire) -> Any:
    fields = error if isinstance(error, dict) else {}
    code = wire.message(str(fields.get("errorCode", "")))
    message = wire.message(str(fields.get("message", "no message")))
    if code == _EMPTY:
        return {"data": []}
    if code in SESSION_GONE:
        raise TSC.FailedSignInError(code, "Unauthorized", message, response.url)
    found = f"the VizQL Data Service answered {code or response.status_code}: {message}"
    if remedy := _REMEDIES.get(code):
        found = f"{found} ({remedy})"
    raise NotUnderstoodError(found) if code in _NOT_UNDERSTOOD else RefreshError(found)


# The id of a table is its name at the time of publishing, and 32 hexadecimal digits.
_TABLE_ID = re.compile(r"(.+)_[0-9A-Fa-f]{32}", re.DOTALL)
# The name of the number in an answer; the service refuses one that a field already has.
_ALIAS = "tableau_pipeline_count"


@dataclass(frozen=True, slots=True)
class _Table:
    """A table as the service knows it.

    Attributes:
        name: in the published file.
        id: None if the service names no tables.
        captions: the captions of the table's fields, by the names of the fields.
        alone: whether it is the only table of the data source.
    """

    name: str
    id: str | None
    captions: Mapping[str, str]
    alone: bool

    def caption(self, column: str) -> str | None:
        """The caption of a column, as analysts may have edited it; None if there is no field."""
        # The field of a name that another table has as well has the name of its table behind.
        return self.captions.get(column) or self.captions.get(f"{column} ({self.name})")


def count_rows(
    tsc: TSC.Server, luid: str, keys: Mapping[str, str | None], *, fresh: bool
) -> dict[str, int]:
    """Count the rows of tables, by table name."""
    fields = _fields(tsc, luid)
    counted = {}
    for name, key in keys.items():
        formulas = _formulas(_table(fields, name), key)
        try:
            counted[name] = _counted(tsc, luid, formulas, fresh=fresh)
        except NotUnderstoodError as error:
            raise RefreshError(f"the rows of {name} cannot be counted: {error}") from error
    return counted


def _counted(tsc: TSC.Server, luid: str, formulas: Mapping[str, bool], *, fresh: bool) -> int:
    """Count by the first formula that the server understands.

    Raises:
        NotUnderstoodError: there is none.
    """
    refused = NotUnderstoodError("no column is known to count it by")
    for formula, by_id in formulas.items():
        try:
            return _query(tsc, luid, formula, by_id=by_id, fresh=fresh)
        except NotUnderstoodError as error:
            refused = error
    raise refused


def _formulas(table: _Table, key: str | None) -> dict[str, bool]:
    """The calculations that count a table exactly, and whether each names it by its id."""
    formulas: dict[str, bool] = {}
    # By a column without NULL, every version of the service counts.
    if key and (caption := table.caption(key)):
        formulas[f"COUNT({_quoted(caption)})"] = False
    # Since 2026.1.
    if table.id:
        formulas[f"COUNT({_quoted(table.id)})"] = True
    # Beside other tables it is not documented at whose grain this is computed.
    if table.alone and table.captions:
        any_column = _quoted(min(table.captions.values()))
        formulas[f"SUM(IIF(ISNULL({any_column}), 1, 1))"] = False
    return formulas


def _quoted(name: str) -> str:
    return f"[{name.replace(']', ']]')}]"


def _fields(tsc: TSC.Server, luid: str) -> list[Mapping[str, Any]]:
    answer = ask(tsc, "read-metadata", {"datasource": {"datasourceLuid": luid}})
    try:
        return [{str(key): value for key, value in field.items()} for field in answer["data"]]
    except (AttributeError, KeyError, TypeError) as error:
        raise RefreshError(
            "its metadata cannot be understood: the VizQL Data Service lists no fields"
        ) from error


def _table(fields: Sequence[Mapping[str, Any]], name: str) -> _Table:
    """Find a table of the published file by its id, as its caption may have been edited."""
    ids = {str(field["logicalTableId"]) for field in fields if field.get("logicalTableId")}
    alone = len(ids) < 2
    named = ids if alone else {id_ for id_ in ids if _original(id_) == name}
    if len(named) > 1 or (ids and not named):
        raise RefreshError(f"the server shows no table {name}, or several")
    table = next(iter(named), None)
    captions = {
        str(field.get("fieldName")): str(field["fieldCaption"])
        for field in fields
        if field.get("fieldCaption")
        and field.get("columnClass", "COLUMN") == "COLUMN"
        and (table is None or field.get("logicalTableId") == table)
    }
    return _Table(name, table, captions, alone)


def _original(table_id: str) -> str | None:
    found = _TABLE_ID.fullmatch(table_id)
    return found.group(1) if found else None


def _query(tsc: TSC.Server, luid: str, formula: str, *, by_id: bool, fresh: bool) -> int:
    """Ask for a calculation over all rows; return its value, which is a number of rows."""
    body: dict[str, Any] = {
        "datasource": {"datasourceLuid": luid},
        "query": {"fields": [{"fieldCaption": _ALIAS, "calculation": formula}]},
    }
    # A version that does not know an option refuses the request, so none is sent without need.
    if by_id:
        body["options"] = {"interpretFieldCaptionsAsFieldNames": True}
    answer = _answer(tsc, body, fresh=fresh)
    rows = answer.get("data") if isinstance(answer, dict) else None
    if not isinstance(rows, list) or len(rows) > 1:
        raise RefreshError("the answer of the VizQL Data Service is not one row")
    # Over no rows, the answer is no row, or a sum that is NULL.
    if not rows:
        return 0
    try:
        number = rows[0][_ALIAS]
    except (KeyError, TypeError) as error:
        raise RefreshError(f"the answer of the VizQL Data Service lacks {error}") from error
    return 0 if number is None else _number(number)


def _answer(tsc: TSC.Server, body: dict[str, Any], *, fresh: bool) -> Any:
    if fresh:
        options = {**body.get("options", {}), "withNewSession": True}
        with suppress(NotUnderstoodError):
            return ask(tsc, "query-datasource", {**body, "options": options})
    return ask(tsc, "query-datasource", body)


def _number(value: Any) -> int:
    """A count, which may be written with a decimal point."""
    # Beyond 2^53, a number with a decimal point has lost digits.
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return int(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    raise RefreshError(f"the VizQL Data Service counts {value!r}, which is no number of rows")
