"""Count published rows on the server, with its VizQL Data Service.

If the server counts the expected number of rows, no rows are missing. Any other number proves
nothing: filters of the data source and the rights of the user may hide rows, and caches may be
outdated.
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
from tableau_pipeline.publishing.http import WireAdapter
from tableau_pipeline.publishing.retries import CountedRetry

# The VizQL Data Service has its own paths, errors and version, but accepts sessions of the REST
# API. The service does not report its version, so a request that needs a newer version fails with
# `NotUnderstoodError`.
_BASE = "api/v1/vizql-data-service"
# Repeat failed requests, because all requests only read. Do not repeat a request after 429, which
# means that the budget for an hour is used up.
_RETRY: Mapping[str, Any] = {
    "total": 3,
    "allowed_methods": {"POST"},
    "status_forcelist": {502, 503, 504},
    "backoff_factor": 0.5,
    "raise_on_status": False,
    "respect_retry_after_header": False,
}
# The codes with which the service rejects a formula, a field or a key of the body as unknown.
_NOT_UNDERSTOOD = frozenset({"400800", "400802", "400803", "404934", "404935", "501000"})
# The code that means that the budget of queries for an hour is used up.
_SPENT = "429000"
_REMEDIES = {
    "403800": "this user needs the capability API Access on the data source",
    "404937": "the data source is gone, or this user may not see it",
    "404950": "the server is too old for that",
    _SPENT: "the site's budget of queries is spent",
}
# The error code with which some versions answer a query over no rows.
_EMPTY = "500810"


class NotUnderstoodError(RefreshError):
    """This version of the service does not understand the request."""


class NoServiceError(RefreshError):
    """The service does not exist, or does not answer requests for any data source at present."""


def ask(tsc: TSC.Server, endpoint: str, body: dict[str, Any]) -> Any:
    """Send a request to an endpoint of the service, and return its answer.

    Raises:
        NotUnderstoodError: this version of the service does not understand the request.
        NoServiceError: the service does not exist, or its budget is used up.
        RefreshError: the service answered with any other error.
        requests.RequestException: the service did not answer.
        TSC.FailedSignInError: the session has ended, or does not include the service.
    """
    base = f"{tsc.server_address}/{_BASE}/"
    session = tsc.session
    # Requests to the service have their own rules for retries. They share the secrets, the time
    # limits and the budget of requests to the REST API.
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
        # A gateway answers in HTML. A server without the service answers with its web page.
        raise NoServiceError(
            f"no answer of a VizQL Data Service, but status {response.status_code} and "
            f"{wire.excerpt(response.content)}"
        ) from error
    # If an error occurs after the first row, the status is 200, and the error is at the end of the
    # body.
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
    text = f"the VizQL Data Service answered {code or response.status_code}: {message}{remedy}"
    if code == _SPENT:
        raise NoServiceError(text)
    raise NotUnderstoodError(text) if code in _NOT_UNDERSTOOD else RefreshError(text)


# The name of the count in a query, which must differ from the names of existing fields.
_ALIAS = "tableau_pipeline_count"


def count_rows(
    tsc: TSC.Server, luid: str, keys: Mapping[str, str | None], *, fresh: bool
) -> dict[str, int]:
    """Return the number of rows of each table in the published file; the keys are table names.

    Args:
        keys: for each table to count, a column without NULL; None if no such column is known.
        fresh: whether to bypass the server's caches.
    """
    fields, tables = _fields_and_tables(tsc, luid)
    # If one table is to be counted, and the service lists no second table, do not compare names.
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
    """Return the number of rows of each table; the keys are names of tables in the service.

    A data source with one table takes two requests. Several tables require version 2026.1.

    Raises:
        RefreshError: the rows of a table cannot be counted; or an error of `ask`.
    """
    fields, tables = _fields_and_tables(tsc, luid)
    counted = {}
    for table in sorted(tables) or [None]:
        name = _ID_SUFFIX.sub("", table) if table else "its table"
        formulas = _formulas(fields, name, None, table=table, alone=len(tables) < 2)
        # Keep the suffix if two tables would otherwise have the same name: the suffix may be part
        # of the table's own name.
        name = table if table and name in counted else name
        counted[name] = _first_understood(tsc, luid, name, formulas, fresh=False)
    return counted


# The suffix of an id, which follows the name of the table; see `_ids`.
_ID_SUFFIX = re.compile(r"( \(.*\))?_[0-9A-Fa-f]{8,32}$")


def _fields_and_tables(
    tsc: TSC.Server, luid: str
) -> tuple[Sequence[Mapping[str, Any]], Collection[str]]:
    """Return the fields of a data source, and the ids of its tables if the server reports ids."""
    answer = ask(tsc, "read-metadata", {"datasource": {"datasourceLuid": luid}})
    try:
        fields = [{str(key): value for key, value in field.items()} for field in answer["data"]]
    except (AttributeError, KeyError, TypeError) as error:
        raise RefreshError(
            "its metadata cannot be understood: the VizQL Data Service lists no fields"
        ) from error
    return fields, {str(field["logicalTableId"]) for field in fields if field.get("logicalTableId")}


def _first_understood(
    tsc: TSC.Server, luid: str, name: str, formulas: Mapping[str, bool], *, fresh: bool
) -> int:
    """Return the value of the first formula that the service understands."""
    refused: object = "no column to count is known"
    for formula, by_id in formulas.items():
        try:
            return _query_count(tsc, luid, formula, by_id=by_id, fresh=fresh)
        except NotUnderstoodError as error:
            refused = error
    raise RefreshError(f"the rows of {name} cannot be counted: {refused}")


def _ids(
    tsc: TSC.Server, luid: str, tables: Collection[str], names: Iterable[str]
) -> dict[str, str]:
    """Return the id of each table; the keys are names of tables.

    An id begins with the name that the table had when the id was made. Tableau Desktop has written
    "orders (Extract.orders)_<32 digits>" for files of Hyper, "orders_<32 digits>" for other files,
    and also the shorter form "pp-2025.csv_35B9C215". If no id fits, or several fit, compare the
    captions of tables. Captions come second because users may edit them.

    Raises:
        RefreshError: a name matches no table, or several.
    """
    ids: dict[str, str] = {}
    captions: Mapping[str, str] | None = None
    for name in names:
        escaped = re.escape(name)
        form = re.compile(rf"{escaped}( \((.+\.)?{escaped}\))?(_[0-9A-Fa-f]{{8,32}})?")
        matches = [*filter(form.fullmatch, tables)]
        if len(matches) != 1:
            captions = _captions(tsc, luid) if captions is None else captions
            matches = [table for table in matches or tables if captions.get(table) == name]
        if len(matches) != 1:
            raise RefreshError(f"the server shows no table {name}, or several")
        (ids[name],) = matches
    return ids


def _captions(tsc: TSC.Server, luid: str) -> dict[str, str]:
    """Return the caption of each table id; servers before 2025.3 report no captions."""
    try:
        answer = ask(tsc, "get-datasource-model", {"datasource": {"datasourceLuid": luid}})
    except RefreshError:
        return {}
    try:
        return {
            str(table["logicalTableId"]): str(table["caption"]) for table in answer["logicalTables"]
        }
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
    """Return formulas that count a table exactly; True marks a formula with the table's id.

    Args:
        table: the id of the table; None if the server reports no ids.
        alone: whether the data source has no other table.
    """
    captions = {
        str(field.get("fieldName")): str(field["fieldCaption"])
        for field in fields
        if field.get("fieldCaption")
        and field.get("columnClass", "COLUMN") == "COLUMN"
        and (table is None or field.get("logicalTableId") == table)
    }
    formulas: dict[str, bool] = {}
    # Count a column without NULL: every version of the service can do this. If another table has a
    # column of the same name, the service appends the name of the table to the name of the field.
    if key and (caption := captions.get(key) or captions.get(f"{key} ({name})")):
        formulas[f"COUNT({bracketed(caption)})"] = False
    # The service understands this formula since version 2026.1.
    if table:
        formulas[f"COUNT({bracketed(table)})"] = True
    # Use this formula only for a single table: for several tables, Tableau does not document the
    # result.
    if alone and captions:
        formulas[f"SUM(IIF(ISNULL({bracketed(min(captions.values()))}), 1, 1))"] = False
    return formulas


def _query_count(tsc: TSC.Server, luid: str, formula: str, *, by_id: bool, fresh: bool) -> int:
    """Send a query with a formula that counts rows; return the count."""
    body: dict[str, Any] = {
        "datasource": {"datasourceLuid": luid},
        "query": {"fields": [{"fieldCaption": _ALIAS, "calculation": formula}]},
    }
    # Send an option only if it is needed: a version that does not know the option refuses the
    # request.
    options = {"interpretFieldCaptionsAsFieldNames": True} if by_id else {}
    answer = None
    if fresh:
        with suppress(NotUnderstoodError):
            fresh_body = body | {"options": options | {"withNewSession": True}}
            answer = ask(tsc, "query-datasource", fresh_body)
    if answer is None:
        answer = ask(tsc, "query-datasource", body | ({"options": options} if options else {}))
    rows = answer.get("data") if isinstance(answer, dict) else None
    if not isinstance(rows, list) or len(rows) > 1:
        raise RefreshError("the answer of the VizQL Data Service is not one row")
    # For a table without rows, the answer has no row, or a sum that is NULL.
    if not rows:
        return 0
    try:
        number = rows[0][_ALIAS]
    except (KeyError, TypeError) as error:
        raise RefreshError(f"the answer of the VizQL Data Service lacks {error}") from error
    # A count may have a decimal point. Accept such a count only up to 2^53, because larger ones
    # lose digits.
    if isinstance(number, float) and number.is_integer() and abs(number) < 2**53:
        return int(number)
    if number is None or (isinstance(number, int) and not isinstance(number, bool)):
        return number or 0
    raise RefreshError(f"the VizQL Data Service counts {number!r}, which is no number of rows")
