import json
from typing import Any

import pytest

from tableau_sandbox.vds.schema import Endpoint
from tableau_sandbox_tests.vds.bodies import (
    CONDITION,
    FIELD,
    FULL,
    SOURCE,
    TABLE_CALCULATION,
    body,
    filtered,
    parse,
    refusal,
)

Path = tuple[str | int, ...]


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"{",
        b"ahoy",
        b"<tsRequest/>",
        b"{} {}",
        b'{"a": NaN}',
        b'{"a": -Infinity}',
        b'{"a": 01}',
        b"{'a': 1}",
        b'{"a": 1, "a": 1}',
        b'{"a": {"b": [{"c": 1, "c": 2}]}}',
        b'{"a": "\xff"}',
        b'{"a": "\\ud800"}',
        b'{"\\u0000": 1}',
        b'{"a": ["\\u0000"]}',
        b'"\\udfff"',
        b'{"a": 1e9999999999999999999}',
        b'{"a": ' + b"9" * 10_000 + b"}",
        b"[" * 101 + b"]" * 101,
        b'{"a":' * 100_000,
        b"[" * 100_000,
    ],
)
def test_not_json(sent: bytes):
    """Prevents: a body that is not JSON passes for a query, or brings the sandbox down."""
    assert refusal(sent) == "400000"
    assert refusal(sent, endpoint=Endpoint.READ_METADATA) == "400000"


def test_a_byte_order_mark():
    """Prevents: a client whose library writes a byte order mark is refused."""
    assert parse(b"\xef\xbb\xbf" + json.dumps(FULL).encode()) == parse(FULL)


@pytest.mark.parametrize(
    "sent",
    [
        [],
        None,
        {},
        {"datasource": SOURCE},
        {**body(), "query": {}},
        body(options={"rowLimit": 0}),
        body(options={"rowLimit": 1 << 31}),
        body(options={"returnFormat": "objects"}),
        body({"fieldCaption": "a", "sortPriority": 0}),
        body({"fieldCaption": "a", "maxDecimalPlaces": 1.0}),
        body({"fieldCaption": "a", "function": "sum"}),
        body({"fieldCaption": "a", "function": "HOUR"}),
        body({"fieldCaption": "a", "binSize": 0.5}),
        body({"fieldCaption": "a", "binSize": 2, "function": "SUM"}),
        body({"fieldCaption": "a", "binSize": 2, "calculation": "SUM([a])"}),
        body({"fieldCaption": "a", "binSize": 2, **TABLE_CALCULATION}),
        body({"fieldCaption": "a", "nestedTableCalculations": None}),
        body({"fieldCaption": "a", "function": "SUM", "calculation": 1}),
        body({"function": "SUM"}),
        filtered("RANGE"),
        filtered("SET"),
        filtered("SET", values=[{}]),
        filtered("SET", values=[[1]]),
        filtered("SET", values=[1], min=1),
        filtered("MATCH", startsWith="a", values=["a"]),
        filtered("QUANTITATIVE_NUMERICAL", min=1),
        filtered("QUANTITATIVE_NUMERICAL", quantitativeFilterType="MIN", minDate="2025-03-14"),
        filtered("QUANTITATIVE_DATE", quantitativeFilterType="MIN", min=1),
        *(
            filtered("QUANTITATIVE_DATE", quantitativeFilterType="MIN", minDate=written)
            for written in (
                "",
                "2025-3-14",
                "2025-02-29",
                "20250314",
                "2025-W11-5",
                "2025-03-14T00:00:00Z",
                "٢٠٢٥-٠٣-١٤",
                "0000-01-01",
            )
        ),
        {**body(), "query": {**body()["query"], "filters": [{"filterType": "SET", "values": [1]}]}},
        body(filters=[{"field": {}, "filterType": "MATCH"}]),
        body(filters=[{"field": {"function": "SUM"}, "filterType": "MATCH"}]),
        body(
            filters=[
                {"field": {"fieldCaption": "a", "calculation": "SUM([a])"}, "filterType": "MATCH"}
            ]
        ),
    ],
)
def test_not_per_the_schema(sent: Any):
    """Prevents: a request passes that is not of the form that Tableau describes."""
    assert refusal(sent) == "400802"


@pytest.mark.parametrize("written", ["1e309", "-1e309", "9" * 400, "1e-400", "1e-99999999"])
def test_numbers_out_of_range(written: str):
    """Prevents: a number that no double can hold is compared with data."""
    sent = json.dumps(filtered("SET", values=["@"])).replace('"@"', written).encode()
    assert refusal(sent) == "400802"


RELATIVE = {"periodType": "DAYS", "dateRangeType": "LASTN"}


@pytest.mark.parametrize(
    "sent",
    [
        body({**FIELD, "function": "SUM", "calculation": "SUM([amount])"}),
        body({**FIELD, "function": "SUM", "calculation": "SUM([amount])", **TABLE_CALCULATION}),
        body(
            filters=[
                {
                    "field": {**FIELD, "function": "SUM", "calculation": "SUM([amount])"},
                    "filterType": "MATCH",
                }
            ]
        ),
        filtered("DATE", **RELATIVE),
        filtered("DATE", **{**RELATIVE, "dateRangeType": "LAST", "rangeN": 2}),
        filtered("TOP", howMany=0, fieldToMeasure=FIELD),
        filtered("CONDITION"),
        filtered("CONDITION", condition=CONDITION, calculation="SUM([a]) > 1"),
    ],
)
def test_keys_that_exclude_each_other(sent: Any):
    """Prevents: a request passes whose parts, each of the right form, contradict each other."""
    assert refusal(sent) == "400803"
