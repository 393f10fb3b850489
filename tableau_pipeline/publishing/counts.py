"""Count published rows on the server, by its VizQL Data Service.

Equal numbers prove that the rows are there. Different ones prove nothing: filters of the data
source and the rights of the user hide rows, and caches remember them.
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, cast

import requests
import tableauserverclient as TSC

from tableau_pipeline.errors import RefreshError
from tableau_pipeline.metadata.document import bracketed
from tableau_pipeline.publishing.errors import SESSION_GONE
from tableau_pipeline.publishing.http import CountedRetry, WireAdapter

# The service has paths, errors and a version of its own, which nothing tells: a request that needs
# a newer one gets `NotUnderstoodError`. It uses the session of the REST API.
_BASE = "api/v1/vizql-data-service"
# All requests only read, so they may be repeated. Not after 429: that is a budget for an hour.
_RETRY: Mapping[str, Any] = {
    "total": 3,
    "allowed_methods": {"POST"},
    "status_forcelist": {502, 503, 504},
    "backoff_factor": 0.5,
    "raise_on_status": False,
    "respect_retry_after_header": False,
}
# The body, a formula or a field is not what this version of the service knows.
_NOT_UNDERSTOOD = frozenset({"400800", "400802", "400803", "404934", "404935", "501000"})
# A budget of queries for an hour.
_SPENT = "429000"
_REMEDIES = {
    "403800": "this user needs the capability API Access on the data source",
    "404937": "the data source is gone, or this user may not see it",
    "404950": "the server is too old for that",
    _SPENT: "the site's budget of queries is spent",
}
# The answer to a question about no rows, in some versions.
_EMPTY = "500810"


class NotUnderstoodError(RefreshError):
    """The service does not know what was asked for, or this version of it does not."""


class NoServiceError(RefreshError):
    """The service is not there, or answers nobody for now: no other data source has it either."""


def ask(tsc: TSC.Server, endpoint: str, body: dict[str, Any]) -> Any:
    """Send a request to an endpoint of the service, and return its answer.

    Raises:
        NotUnderstoodError: the request itself was refused.
        NoServiceError: the service is not there, or its budget is spent.
        RefreshError: it refused in another way.
        requests.RequestException: it did not answer.
        TSC.FailedSignInError: the session has ended, or does not include the service.
    """
    base = f"{tsc.server_address}/{_BASE}/"
    session = tsc.session
    # Requests go where those of the REST API go, and are repeated by rules of their own.
    adapter = cast(WireAdapter, session.get_adapter(base))
    wire = adapter.wire
    if adapter.is_rest:
        retry = CountedRetry(budget=wire.budget, **_RETRY)
        session.mount(base, WireAdapter(wire, retry=retry, is_rest=False))
    response = session.post(
        f"{base}{endpoint}",
        json=body,
        headers={"X-Tableau-Auth": str(tsc.auth_token)},
        **tsc.http_options,
    )
    try:
        answer = response.json()
    except (LookupError, RecursionError, requests.JSONDecodeError) as error:
        # Gateways answer in HTML, servers without the service with the page of their web client.
        raise NoServiceError(
            f"no answer of a VizQL Data Service, but status {response.status_code} and "
            f"{wire.excerpt(response.content)}"
        ) from error
    # An error that comes up after the first row ends a body whose status says that all is well.
    error = answer if not response.ok else answer.get("error") if isinstance(answer, dict) else None
    if error is None:
        return answer
    fields = error if isinstance(error, dict) else {}
    code = wire.message(str(fields.get("errorCode", "")))
    message = wire.message(str(fields.get("message", "no message")))
    if code == _EMPTY:
        return {"data": []}
    if code in SESSION_GONE:
        raise TSC.FailedSignInError(code, "Unauthorized", message, response.url)
    remedy = f" ({_REMEDIES[code]})" if code in _REMEDIES else ""
    found = f"the VizQL Data Service answered {code or response.status_code}: {message}{remedy}"
    if code == _SPENT:
        raise NoServiceError(found)
    raise NotUnderstoodError(found) if code in _NOT_UNDERSTOOD else RefreshError(found)


# The name of the number in an answer; the service refuses one that a field already has.
_ALIAS = "tableau_pipeline_count"


def count_rows(
    tsc: TSC.Server, luid: str, keys: Mapping[str, str | None], *, fresh: bool
) -> dict[str, int]:
    """Count the rows of tables, by table name."""
    fields, tables = _described(tsc, luid)
    # If no other table is asked for, the only one that is there has to be it.
    alone = len(keys) == 1 and len(tables) < 2
    ids = dict.fromkeys(keys, next(iter(tables), None))
    if tables and not alone:
        ids |= _ids(tsc, luid, tables, keys)
    counted = {}
    for name, key in keys.items():
        formulas = _formulas(fields, name, key, table=ids[name], alone=alone)
        counted[name] = _first_understood(tsc, luid, name, formulas, fresh=fresh)
    return counted


def count_all(tsc: TSC.Server, luid: str) -> dict[str, int]:
    """Count the rows of all tables of a data source, by the names that the service has for them.

    Two requests for a data source of one table. Several tables take version 2026.1.

    Raises:
        RefreshError: as `ask`, or the tables cannot be counted.
    """
    fields, tables = _described(tsc, luid)
    counted = {}
    for table in sorted(tables) or [None]:
        name = _OF_AN_ID.sub("", table) if table else "its table"
        formulas = _formulas(fields, name, None, table=table, alone=len(tables) < 2)
        # What looks like the end of an id may be a part of a name.
        name = table if table and name in counted else name
        counted[name] = _first_understood(tsc, luid, name, formulas, fresh=False)
    return counted


# What an id has behind the name of its table: see `_ids`.
_OF_AN_ID = re.compile(r"( \(.*\))?_[0-9A-Fa-f]{8,32}$")


def _described(tsc: TSC.Server, luid: str) -> tuple[Sequence[Mapping[str, Any]], Collection[str]]:
    """The fields of a data source, and the ids of its tables if the server tells them."""
    answer = ask(tsc, "read-metadata", {"datasource": {"datasourceLuid": luid}})
    try:
        fields = [{str(key): value for key, value in field.items()} for field in answer["data"]]
    except (AttributeError, KeyError, TypeError) as error:
        raise RefreshError(
            "its metadata cannot be understood: the VizQL Data Service lists no fields"
        ) from error
    return fields, {str(e["logicalTableId"]) for e in fields if e.get("logicalTableId")}


def _first_understood(
    tsc: TSC.Server, luid: str, name: str, formulas: Mapping[str, bool], *, fresh: bool
) -> int:
    """The value of the first of these formulas that the service understands."""
    refused: object = "no column is known to count it by"
    for formula, by_id in formulas.items():
        try:
            return _counted(tsc, luid, formula, by_id=by_id, fresh=fresh)
        except NotUnderstoodError as error:
            refused = error
    raise RefreshError(f"the rows of {name} cannot be counted: {refused}")


def _ids(
    tsc: TSC.Server, luid: str, tables: Collection[str], names: Iterable[str]
) -> dict[str, str]:
    """Return the id of each table by its name.

    An id begins with the name that the table had when it got the id. Desktop has written
    "orders (Extract.orders)_<32 digits>" for files of Hyper, "orders_<32 digits>" for others, and
    the shorter "pp-2025.csv_35B9C215". Of other forms, the caption tells; people may edit that.

    Raises:
        RefreshError: for one of the names there is none, or there are several.
    """
    found: dict[str, str] = {}
    captions: Mapping[str, str] | None = None
    for name in names:
        own = re.escape(name)
        form = re.compile(rf"{own}( \((.+\.)?{own}\))?(_[0-9A-Fa-f]{{8,32}})?")
        fits = [*filter(form.fullmatch, tables)]
        if len(fits) != 1:
            captions = _captions(tsc, luid) if captions is None else captions
            fits = [each for each in fits or tables if captions.get(each) == name]
        if len(fits) != 1:
            raise RefreshError(f"the server shows no table {name}, or several")
        (found[name],) = fits
    return found


def _captions(tsc: TSC.Server, luid: str) -> dict[str, str]:
    """The captions of tables by their ids; none before 2025.3, which does not tell them."""
    try:
        answer = ask(tsc, "get-datasource-model", {"datasource": {"datasourceLuid": luid}})
    except RefreshError:
        return {}
    try:
        return {str(e["logicalTableId"]): str(e["caption"]) for e in answer["logicalTables"]}
    except (KeyError, TypeError):
        return {}


def _formulas(
    fields: Sequence[Mapping[str, Any]],
    name: str,
    key: str | None,
    *,
    table: str | None,
    alone: bool,
) -> dict[str, bool]:
    """Return the calculations that count a table exactly, and whether each names it by its id.

    Args:
        table: its id, if the server tells ids.
        alone: whether no other table is there.
    """
    captions = {
        str(field.get("fieldName")): str(field["fieldCaption"])
        for field in fields
        if field.get("fieldCaption")
        and field.get("columnClass", "COLUMN") == "COLUMN"
        and (table is None or field.get("logicalTableId") == table)
    }
    formulas: dict[str, bool] = {}
    # By a column without NULL, every version of the service counts. The field of a name that
    # another table has as well has the name of its table behind.
    if key and (caption := captions.get(key) or captions.get(f"{key} ({name})")):
        formulas[f"COUNT({bracketed(caption)})"] = False
    # Since 2026.1.
    if table:
        formulas[f"COUNT({bracketed(table)})"] = True
    # Beside other tables it is not documented at whose grain this is computed.
    if alone and captions:
        formulas[f"SUM(IIF(ISNULL({bracketed(min(captions.values()))}), 1, 1))"] = False
    return formulas


def _counted(tsc: TSC.Server, luid: str, formula: str, *, by_id: bool, fresh: bool) -> int:
    """Ask for a calculation over all rows; return its value, which is a number of rows."""
    body: dict[str, Any] = {
        "datasource": {"datasourceLuid": luid},
        "query": {"fields": [{"fieldCaption": _ALIAS, "calculation": formula}]},
    }
    # A version that does not know an option refuses the request, so none is sent without need.
    options = {"interpretFieldCaptionsAsFieldNames": True} if by_id else {}
    answer = None
    if fresh:
        with suppress(NotUnderstoodError):
            afresh = body | {"options": options | {"withNewSession": True}}
            answer = ask(tsc, "query-datasource", afresh)
    if answer is None:
        answer = ask(tsc, "query-datasource", body | ({"options": options} if options else {}))
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
    # A count may be written with a decimal point. Beyond 2^53, it has lost digits.
    if isinstance(number, float) and number.is_integer() and abs(number) < 2**53:
        return int(number)
    if number is None or (isinstance(number, int) and not isinstance(number, bool)):
        return number or 0
    raise RefreshError(f"the VizQL Data Service counts {number!r}, which is no number of rows")
