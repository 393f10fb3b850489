from typing import Any

import pytest

from tableau_sandbox.vds.errors import VdsError
from tableau_sandbox.vds.functions import DataType, Function
from tableau_sandbox.vds.rules import check_query
from tableau_sandbox.vds.schema import Endpoint, Schema
from tableau_sandbox_tests.vds.bodies import (
    CONDITION,
    NEWEST,
    SOURCE,
    TABLE_CALCULATION,
    body,
    parse,
)

TYPES = {
    "number": DataType.INTEGER,
    "amount": DataType.REAL,
    "region": DataType.STRING,
    "yes": DataType.BOOLEAN,
    "day": DataType.DATE,
    "moment": DataType.DATETIME,
    "place": DataType.SPATIAL,
    "odd": DataType.UNKNOWN,
}


def check(sent: Any, schema: Schema = NEWEST) -> None:
    check_query(parse(sent, schema), types=TYPES, tables=["orders"], schema=schema)


def refused(sent: Any, schema: Schema = NEWEST) -> VdsError:
    # The form is right, so that the rules are what refuses.
    parse(sent, schema)
    with pytest.raises(VdsError) as caught:
        check(sent, schema)
    return caught.value


def field(caption: str, function: str | None = None, **more: Any) -> dict[str, Any]:
    return {"fieldCaption": caption, **({"function": function} if function else {}), **more}


def formula(text: str, caption: str = "n", **more: Any) -> dict[str, Any]:
    return {"fieldCaption": caption, "calculation": text, **more}


def filtered(kind: str, about: Any, **keys: Any) -> dict[str, Any]:
    on = field(about) if isinstance(about, str) else about
    return body(field("region"), filters=[{"field": on, "filterType": kind, **keys}])


def numbers(about: Any, kind: str, **keys: Any) -> dict[str, Any]:
    return filtered("QUANTITATIVE_NUMERICAL", about, quantitativeFilterType=kind, **keys)


def dates(about: Any, kind: str, **keys: Any) -> dict[str, Any]:
    return filtered("QUANTITATIVE_DATE", about, quantitativeFilterType=kind, **keys)


COUNT = {"calculation": "COUNT([orders])"}
RELATIVE = {"periodType": "DAYS", "dateRangeType": "TODATE"}


@pytest.mark.parametrize(
    "sent",
    [
        body(field("region")),
        body(field("place")),
        body(field("number", "COUNT", fieldAlias="n")),
        body(formula("COUNT([orders])")),
        body(formula("COUNT([orders])"), formula("SUM(IIF(ISNULL([place]),1,1))", "m")),
        body(field("day"), field("day", "YEAR"), field("day", "QUARTER")),
        body(field("region", sortPriority=2), field("amount", "SUM", sortPriority=1)),
        body(field("region", fieldAlias="number"), field("day", maxDecimalPlaces=0)),
        body(field("region"), filters=[], parameters=[], options={"disaggregate": False}),
        filtered("SET", "region", values=["x", None]),
        filtered("SET", "number", values=[1, 1.5]),
        filtered("SET", "amount", values=[1, 1.5], context=True),
        filtered("SET", "yes", values=[True]),
        filtered("SET", field("region", "COUNT"), values=[1]),
        filtered("SET", COUNT, values=[1]),
        filtered("MATCH", "region", startsWith="", contains="x"),
        filtered("MATCH", field("region", "MIN"), endsWith="x"),
        numbers("amount", "RANGE", min=2, max=1),
        numbers("number", "MIN", min=2.5),
        numbers(field("region", "COUNTD"), "MAX", max=1, includeNulls=True),
        numbers(field("day", "YEAR"), "MAX", max=2025),
        numbers(COUNT, "ONLY_NULL"),
        dates("day", "RANGE", minDate="2025-03-14", maxDate="2025-03-14"),
        dates("moment", "ONLY_NON_NULL"),
        dates(field("moment", "TRUNC_YEAR"), "MIN", minDate="2025-03-14"),
        dates({"calculation": "MAX([day])"}, "MAX", maxDate="2025-03-14"),
        body(
            field("region"),
            filters=[
                {"field": on, "filterType": "SET", "values": [None]}
                for on in (field("region"), field("region", "MIN"), COUNT)
            ],
        ),
    ],
)
def test_what_is_allowed(sent: Any):
    """Prevents: a query that real servers answer is refused."""
    check(sent)


@pytest.mark.parametrize(
    "sent",
    [
        {**body(), "query": {"fields": []}},
        body(field("")),
        body(formula("COUNT([orders])", "")),
        body(field("region"), field("region")),
        body(field("amount", "SUM"), field("amount", "SUM", fieldAlias="total")),
        body(field("amount", binSize=2), field("amount", binSize=3, fieldAlias="wider")),
        body(formula("COUNT([orders])"), formula("SUM([amount])")),
        body(field("region", sortPriority=1), field("day", sortPriority=1)),
        body(field("region", maxDecimalPlaces=-1)),
        body(formula("COUNT([orders])", "region")),
        body(field("amount", "AGG")),
        body(field("amount", "NONE")),
        body(field("amount", "COLLECT")),
        filtered("SET", "region", values=[]),
        filtered("SET", "region", values=[1]),
        filtered("SET", "region", values=["x", False]),
        filtered("SET", "number", values=["1"]),
        filtered("SET", "number", values=[True]),
        filtered("SET", "yes", values=[1]),
        filtered("SET", "yes", values=["true"]),
        filtered("SET", COUNT, values=["1"]),
        filtered("MATCH", "region"),
        filtered("MATCH", "region", startsWith="", endsWith="", contains=""),
        filtered("MATCH", "number", contains="1"),
        filtered("MATCH", field("region", "COUNT"), contains="1"),
        numbers("region", "MIN", min=1),
        numbers("day", "ONLY_NULL"),
        numbers(field("day", "TRUNC_DAY"), "ONLY_NULL"),
        numbers("number", "RANGE", min=1),
        numbers("number", "RANGE", max=1),
        numbers("number", "MIN"),
        numbers("number", "MIN", max=1),
        numbers("number", "MAX", min=1, max=1),
        numbers("number", "ONLY_NULL", min=1),
        numbers(field("region", "SUM"), "ONLY_NULL"),
        dates("number", "ONLY_NULL"),
        dates(field("day", "COUNT"), "ONLY_NULL"),
        dates("day", "RANGE", minDate="2025-03-14"),
        dates("day", "MAX"),
        dates({"calculation": "COUNT([day])"}, "ONLY_NULL"),
        filtered("DATE", "region", **RELATIVE),
        body(
            field("region"),
            filters=[
                {"field": field("number"), "filterType": "SET", "values": [1]},
                {
                    "field": field("number"),
                    "filterType": "TOP",
                    "howMany": 1,
                    "fieldToMeasure": field("amount", "SUM"),
                },
            ],
        ),
        body(field("region"), filters=[{"field": COUNT, "filterType": "SET", "values": [1]}] * 2),
    ],
)
def test_what_is_against_the_rules(sent: Any):
    """Prevents: a query passes that real servers refuse."""
    error = refused(sent)
    assert (error.code, error.status) == ("400803", 400)


@pytest.mark.parametrize(
    "sent",
    [
        body(field("Region")),
        body(field("orders")),
        body(field("nothing", "COUNT")),
        body(field("nothing", binSize=2)),
        filtered("SET", "nothing", values=["x"]),
        filtered("SET", "n", values=[1]),
        filtered("TOP", "region", howMany=1, fieldToMeasure=field("nothing", "SUM")),
        filtered("CONDITION", "region", condition={**CONDITION, "fieldCaption": "nothing"}),
        filtered("DATE", "nothing", **RELATIVE),
    ],
)
def test_unknown_fields(sent: Any):
    """Prevents: a query about a field that does not exist gets another refusal, or an answer."""
    error = refused(sent)
    assert error.code == "400803"
    assert error.message.startswith("Unknown Field: ")


@pytest.mark.parametrize(
    "sent",
    [
        body(formula("AVG([amount])")),
        body(formula("SUM([region])")),
        body(formula("COUNT([nothing])")),
        filtered("SET", {"calculation": "1"}, values=[1]),
        filtered("TOP", "region", howMany=1, fieldToMeasure={"calculation": "SUM([nothing])"}),
    ],
)
def test_invalid_calculations(sent: Any):
    """Prevents: a calculation that the sandbox cannot compute reaches the engine."""
    assert refused(sent).code == "400800"


@pytest.mark.parametrize(
    "sent",
    [
        body(field("amount", binSize=2)),
        body(field("amount", binSize=2), field("amount", "COUNT")),
        body(field("amount", "SUM", **TABLE_CALCULATION)),
        body(formula("RUNNING_SUM(SUM([amount]))", **TABLE_CALCULATION)),
        body(field("region"), parameters=[{"parameterCaption": "top", "value": 3}]),
        body(field("region"), options={"disaggregate": True}),
        body(field("region", fieldAlias="x"), field("day", fieldAlias="x")),
        body(field("amount", "SUM"), field("region", fieldAlias="SUM(amount)")),
        body(field("place", "COUNT")),
        body(field("odd", "COUNTD")),
        filtered("SET", "day", values=["2025-03-14"]),
        filtered("SET", field("moment", "MAX"), values=["2025-03-14"]),
        filtered("SET", "place", values=["x"]),
        filtered("DATE", "day", **RELATIVE),
        filtered("TOP", "region", howMany=1, fieldToMeasure=field("amount", "SUM")),
        filtered("CONDITION", "region", condition={**CONDITION, "fieldCaption": "amount"}),
        filtered("CONDITION", "region", calculation="SUM([amount]) > 1"),
    ],
)
def test_what_is_not_emulated(sent: Any):
    """Prevents: the sandbox invents an answer to a query that it does not understand."""
    error = refused(sent)
    assert (error.code, error.status) == ("501000", 501)
    assert error.message.endswith(": not emulated.")


def test_rules_come_before_gaps():
    """Prevents: a client that breaks a rule is told that the sandbox is to blame."""
    sent = body(field("amount", binSize=2), field("nothing"), options={"disaggregate": True})
    assert refused(sent).code == "400803"


COUNTS = {"COUNT", "COUNTD", "MIN", "MAX"}
OF_NUMBERS = COUNTS | {"SUM", "AVG", "MEDIAN", "STDEV", "VAR"}
PARTS = {"YEAR", "QUARTER", "MONTH", "WEEK", "DAY"}
OF_DATES = COUNTS | PARTS | {f"TRUNC_{part}" for part in PARTS}
APPLICABLE = {
    "number": OF_NUMBERS,
    "amount": OF_NUMBERS,
    "region": COUNTS,
    "yes": COUNTS,
    "day": OF_DATES,
    "moment": OF_DATES,
}


@pytest.mark.parametrize("caption", APPLICABLE)
def test_functions_by_type(caption: str):
    """Prevents: a function passes for a type to which real servers do not apply it."""
    for function in Function:
        if function in APPLICABLE[caption]:
            check(body(field(caption, function)))
        else:
            assert refused(body(field(caption, function))).code == "400803", function


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        (body(formula("COUNT([orders])")), "400800"),
        (filtered("SET", field("region", "MIN"), values=["x"]), "400803"),
        (filtered("SET", {"calculation": "MIN([region])"}, values=["x"]), "400803"),
        (filtered("MATCH", field("region", "MIN"), contains="x"), "400803"),
        (filtered("MATCH", {"calculation": "MIN([region])"}, contains="x"), "400803"),
    ],
)
def test_what_2026_1_brought(sent: Any, code: str):
    """Prevents: the count of a table, or a filter on a function, passes in older versions."""
    for schema in Schema:
        if schema < Schema.V20261:
            assert refused(sent, schema).code == code
        else:
            check(sent, schema)


def test_filters_on_functions_in_all_versions():
    """Prevents: quantitative filters on functions are refused in older versions too."""
    for schema in Schema:
        check(numbers(field("amount", "SUM"), "MIN", min=1), schema)


def test_requests_without_a_query():
    """Prevents: the rules of queries refuse requests that have none."""
    request = parse({"datasource": SOURCE}, endpoint=Endpoint.READ_METADATA)
    check_query(request, types={}, tables=[], schema=NEWEST)
