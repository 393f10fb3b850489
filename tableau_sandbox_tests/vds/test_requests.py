import json
from datetime import date
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tableau_sandbox.vds.filters import (
    Bounds,
    DateFilter,
    FieldReference,
    FilterType,
    FormulaReference,
    MatchFilter,
    NumberFilter,
    OtherFilter,
    SetFilter,
)
from tableau_sandbox.vds.functions import Function
from tableau_sandbox.vds.query_fields import (
    Bin,
    Calculation,
    Dimension,
    Measure,
    SortDirection,
    TableCalculation,
    answer_key,
)
from tableau_sandbox.vds.requests import (
    Connection,
    Options,
    Parameter,
    Query,
    Request,
    ReturnFormat,
    Source,
)
from tableau_sandbox.vds.schema import Endpoint, Schema
from tableau_sandbox_tests.vds.bodies import (
    CONDITION,
    FIELD,
    FULL,
    NEWEST,
    SOURCE,
    TABLE_CALCULATION,
    body,
    filtered,
    parse,
    refusal,
)

V1, V2, V3, V4, V5 = Schema
QUERY = Endpoint.QUERY_DATASOURCE
SUM = FieldReference("amount", Function.SUM)


FIELDS = (
    Dimension(
        caption="region",
        alias="Region",
        max_decimal_places=2,
        sort_direction=SortDirection.DESC,
        sort_priority=1,
    ),
    Measure(caption="amount", function=Function.SUM),
    Calculation(caption="n", formula="COUNT([orders])"),
    Bin(caption="price", size=10),
    TableCalculation(caption="amount"),
)
REGION, DAY = FieldReference("region"), FieldReference("day")
FILTERS = (
    SetFilter(field=REGION, context=True, values=("North", None), exclude=True),
    MatchFilter(
        field=FieldReference("region", Function.MIN),
        starts_with="a",
        ends_with="b",
        contains="c",
        exclude=True,
    ),
    NumberFilter(
        field=FormulaReference("SUM([amount])"),
        bounds=Bounds.RANGE,
        minimum=Decimal("0.1"),
        maximum=9007199254740993,
        include_nulls=True,
    ),
    DateFilter(
        field=DAY,
        bounds=Bounds.MIN,
        minimum=date(2024, 2, 29),
        maximum=date(2025, 3, 14),
    ),
    OtherFilter(field=FieldReference("day", Function.TRUNC_MONTH), filter_type=FilterType.DATE),
    OtherFilter(field=FieldReference("shop"), filter_type=FilterType.TOP, references=(SUM,)),
    OtherFilter(
        field=FieldReference("seller"), filter_type=FilterType.CONDITION, references=(SUM,)
    ),
)
OPTIONS_ON = Options(
    debug=True,
    bypass_metadata_cache=True,
    captions_are_names=True,
    include_hidden_fields=True,
    include_group_formulas=True,
    with_new_session=True,
    disaggregate=True,
    return_format=ReturnFormat.ARRAYS,
    row_limit=10,
    server_sent_events=True,
)


def test_every_part_arrives():
    """Prevents: parts of a query get lost or mixed up on the way."""
    source = Source("1a2a3b4b", (Connection("c", "u", "p"),))
    query = Query(FIELDS, FILTERS, (Parameter("top", 3),))
    assert parse(FULL) == Request(source, OPTIONS_ON, query)
    keys = [answer_key(field) for field in FIELDS]
    assert keys == ["Region", "SUM(amount)", "n", "price (bin)", "amount"]


def test_the_counting_query_of_the_sdk():
    """Prevents: a query that Tableau's Python SDK writes, with its defaults, is refused."""
    sent = (
        b'{"datasource":{"datasourceLuid":"d"},"query":{"fields":[{"fieldCaption":"n",'
        b'"calculation":"COUNT([orders])"}],"filters":[{"field":{"fieldCaption":"r"},'
        b'"filterType":"SET","context":false,"values":["x",null],"exclude":false}]}}'
    )
    for schema in Schema:
        request = parse(sent, schema)
        assert request.source == Source("d")
        assert request.options == Options()
        assert request.query == Query(
            (Calculation(caption="n", formula="COUNT([orders])"),),
            (SetFilter(field=FieldReference("r"), values=("x", None)),),
        )


def test_passwords_are_not_shown():
    """Prevents: the credentials of a connection appear in a log of the sandbox."""
    assert "'p'" not in repr(parse(FULL).source)


@given(
    st.one_of(
        st.integers(-(10**300), 10**300),
        st.decimals(-(10**20), 10**20, places=30),
    )
)
def test_numbers_are_exact(number: int | Decimal):
    """Prevents: a filter compares with another number than the one that was sent."""
    sent = filtered("SET", values=["@"], exclude=False)
    written = json.dumps(sent).replace('"@"', str(number)).encode()
    query = parse(written).query
    assert query is not None
    (filter_,) = query.filters
    assert isinstance(filter_, SetFilter)
    assert filter_.values == (number,)


COMMON = {"debug"}
SINCE_2025_3 = COMMON | {"bypassMetadataCache", "interpretFieldCaptionsAsFieldNames"}
SINCE_2026_1 = SINCE_2025_3 | {"includeHiddenFields", "includeGroupFormulas"}
SINCE_2026_2 = SINCE_2026_1 | {"withNewSession"}
OF_QUERIES = {"disaggregate", "returnFormat"}
OF_QUERIES_SINCE_2026_1 = OF_QUERIES | {"rowLimit", "returnServerSentEvents"}
OPTIONS = {
    Endpoint.READ_METADATA: [COMMON, COMMON, SINCE_2025_3, SINCE_2026_1, SINCE_2026_2],
    QUERY: [
        COMMON | OF_QUERIES,
        COMMON | OF_QUERIES,
        SINCE_2025_3 | OF_QUERIES,
        SINCE_2026_1 | OF_QUERIES_SINCE_2026_1,
        SINCE_2026_2 | OF_QUERIES_SINCE_2026_1,
    ],
    Endpoint.GET_DATASOURCE_MODEL: [None, None, SINCE_2025_3, SINCE_2026_1, SINCE_2026_2],
    Endpoint.LIST_SUPPORTED_FUNCTIONS: [None, None, None, SINCE_2026_1, SINCE_2026_2],
    Endpoint.USER_HAS_QUERY_PERMISSIONS: [None, None, None, None, set()],
}
ALL_OPTIONS = [*FULL["options"], "includeRemoteDatabaseNames"]


@pytest.mark.parametrize("endpoint", Endpoint)
@pytest.mark.parametrize("schema", Schema)
def test_options_of_each_version(schema: Schema, endpoint: Endpoint):
    """Prevents: an option or an endpoint passes that real servers of this version refuse."""
    asked = {"datasource": SOURCE} | ({"query": {"fields": [FIELD]}} if endpoint is QUERY else {})
    known = OPTIONS[endpoint][list(Schema).index(schema)]
    if known is None:
        assert refusal(asked, schema, endpoint) == "404950"
        return
    parse(asked, schema, endpoint)
    for option in ALL_OPTIONS:
        sent = {**asked, "options": {option: FULL["options"].get(option, True)}}
        if option in known:
            parsed = parse(sent, schema, endpoint)
            assert parsed.options != Options()
            assert (parsed.query is None) == (endpoint is not QUERY)
        else:
            assert refusal(sent, schema, endpoint) == "400802"


NESTED = {"tableCalcType": "NESTED", "fieldCaption": "x", "dimensions": []}


@pytest.mark.parametrize(
    ("sent", "since", "code"),
    [
        (body({**FIELD, "binSize": 1}), V3, "400802"),
        (body({**FIELD, **TABLE_CALCULATION}), V3, "400802"),
        (body({**FIELD, "tableCalculation": NESTED}), V4, "400802"),
        (body({**FIELD, **TABLE_CALCULATION, "nestedTableCalculations": None}), V4, "400802"),
        (filtered("CONDITION", condition=CONDITION), V4, "400802"),
        (filtered("CONDITION", calculation="SUM([a]) > 1"), V4, "400802"),
    ],
)
def test_parts_of_newer_versions(sent: Any, since: Schema, code: str):
    """Prevents: a field or a filter passes that real servers of this version do not know."""
    for schema in Schema:
        if schema >= since:
            parse(sent, schema)
        else:
            assert refusal(sent, schema) == code


def test_data_sources_of_workbooks():
    """Prevents: a request for a data source of a workbook finds a published one instead."""
    sent = {**body(), "datasource": {"workbookDatasourceId": "w"}}
    assert [refusal(sent, schema) for schema in Schema] == ["400802"] * 4 + ["501000"]
    sent["datasource"] = {**SOURCE, "workbookDatasourceId": "w"}
    assert refusal(sent) == "400802"


def test_the_newest_version_is_last():
    """Prevents: versions are compared in another order than that of their age."""
    assert sorted(Schema) == list(Schema)
    assert max(Schema) is NEWEST
