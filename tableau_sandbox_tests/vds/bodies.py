"""Bodies of requests as a client writes them, and what the parser says to them."""

import json
from typing import Any

from tableau_sandbox.vds.errors import VdsError
from tableau_sandbox.vds.grammar.bodies import parse_request
from tableau_sandbox.vds.requests import Request
from tableau_sandbox.vds.schema import Endpoint, Schema

NEWEST = Schema.V20262
SOURCE: dict[str, Any] = {"datasourceLuid": "1a2a3b4b"}
FIELD: dict[str, Any] = {"fieldCaption": "amount"}


def body(*fields: Any, options: Any = None, **query: Any) -> dict[str, Any]:
    """A query of some fields, or else of one."""
    asked = {"datasource": SOURCE, "query": {"fields": list(fields) or [FIELD], **query}}
    return asked if options is None else {**asked, "options": options}


def filtered(kind: str, **keys: Any) -> dict[str, Any]:
    """A query with one filter."""
    return body(filters=[{"field": FIELD, "filterType": kind, **keys}])


def parse(
    written: Any,
    schema: Schema = NEWEST,
    endpoint: Endpoint = Endpoint.QUERY_DATASOURCE,
) -> Request:
    """What the parser makes of a body, given as bytes or as a JSON value."""
    sent = written if isinstance(written, bytes) else json.dumps(written).encode()
    return parse_request(sent, endpoint, schema)


def refusal(
    written: Any,
    schema: Schema = NEWEST,
    endpoint: Endpoint = Endpoint.QUERY_DATASOURCE,
) -> str | None:
    """The code with which the parser refuses a body; None if it does not."""
    try:
        parse(written, schema, endpoint)
    except VdsError as error:
        return error.code
    return None


TABLE_CALCULATION = {"tableCalculation": {"tableCalcType": "RANK", "dimensions": []}}
CONDITION = {"fieldCaption": "a", "function": "SUM", "comparison": "=", "value": 1}
SORT = {"fieldCaption": "amount", "function": "SUM", "direction": "DESC"}
RUNNING = {
    "tableCalcType": "RUNNING_TOTAL",
    "dimensions": [{"fieldCaption": "region", "function": "MIN"}],
    "aggregation": "AVG",
    "restartEvery": {"fieldCaption": "region"},
    "customSort": SORT,
}
# Every key of every part of a query.
FULL: dict[str, Any] = {
    "datasource": {
        "datasourceLuid": "1a2a3b4b",
        "connections": [
            {"connectionLuid": "c", "connectionUsername": "u", "connectionPassword": "p"}
        ],
    },
    "query": {
        "fields": [
            {
                "fieldCaption": "region",
                "fieldAlias": "Region",
                "maxDecimalPlaces": 2,
                "sortDirection": "DESC",
                "sortPriority": 1,
            },
            {"fieldCaption": "amount", "function": "SUM"},
            {"fieldCaption": "n", "calculation": "COUNT([orders])"},
            {"fieldCaption": "price", "binSize": 10},
            {
                "fieldCaption": "amount",
                "function": "SUM",
                "tableCalculation": {
                    "tableCalcType": "MOVING_CALCULATION",
                    "dimensions": [],
                    "aggregation": "SUM",
                    "previous": -2,
                    "next": 0,
                    "includeCurrent": True,
                    "fillInNull": False,
                    "customSort": SORT,
                    "secondaryTableCalculation": RUNNING,
                },
                "nestedTableCalculations": [
                    {
                        "tableCalcType": "NESTED",
                        "fieldCaption": "inner",
                        "dimensions": [],
                        "levelAddress": {"fieldCaption": "region"},
                    },
                    {"tableCalcType": "CUSTOM", "dimensions": []},
                    {"tableCalcType": "PERCENT_FROM", "dimensions": [], "relativeTo": "FIRST"},
                    {"tableCalcType": "PERCENT_OF_TOTAL", "dimensions": []},
                    {
                        "tableCalcType": "RANK",
                        "dimensions": [],
                        "rankType": "MODIFIED COMPETITION",
                        "direction": "ASC",
                    },
                    {"tableCalcType": "PERCENTILE", "dimensions": [], "direction": "ASC"},
                ],
            },
        ],
        "filters": [
            {
                "field": {"fieldCaption": "region"},
                "filterType": "SET",
                "context": True,
                "values": ["North", None],
                "exclude": True,
            },
            {
                "field": {"fieldCaption": "region", "function": "MIN"},
                "filterType": "MATCH",
                "startsWith": "a",
                "endsWith": "b",
                "contains": "c",
                "exclude": True,
            },
            {
                "field": {"calculation": "SUM([amount])"},
                "filterType": "QUANTITATIVE_NUMERICAL",
                "quantitativeFilterType": "RANGE",
                "min": 0.1,
                "max": 9007199254740993,
                "includeNulls": True,
            },
            {
                "field": {"fieldCaption": "day"},
                "filterType": "QUANTITATIVE_DATE",
                "quantitativeFilterType": "MIN",
                "minDate": "2024-02-29",
                "maxDate": "2025-03-14",
                "includeNulls": False,
            },
            {
                "field": {"fieldCaption": "day", "function": "TRUNC_MONTH"},
                "filterType": "DATE",
                "periodType": "MONTHS",
                "dateRangeType": "LASTN",
                "rangeN": 3,
                "anchorDate": "2025-03-14",
                "includeNulls": False,
            },
            {
                "field": {"fieldCaption": "shop"},
                "filterType": "TOP",
                "howMany": 3,
                "direction": "BOTTOM",
                "fieldToMeasure": {"fieldCaption": "amount", "function": "SUM"},
            },
            {
                "field": {"fieldCaption": "seller"},
                "filterType": "CONDITION",
                "condition": {
                    "fieldCaption": "amount",
                    "function": "SUM",
                    "comparison": "<>",
                    "value": 5,
                },
            },
        ],
        "parameters": [{"parameterCaption": "top", "value": 3}],
    },
    "options": {
        "debug": True,
        "bypassMetadataCache": True,
        "interpretFieldCaptionsAsFieldNames": True,
        "includeHiddenFields": True,
        "includeGroupFormulas": True,
        "withNewSession": True,
        "disaggregate": True,
        "returnFormat": "ARRAYS",
        "rowLimit": 10,
        "returnServerSentEvents": True,
    },
}
