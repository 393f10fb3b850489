"""VizQL Data Service: sessions, metadata of data sources, and counts of rows."""

import re
from typing import Any

import pytest

from tableau_sandbox_tests.contract.files import related_file, rows_file, table_file
from tableau_sandbox_tests.contract.session import Session
from tableau_sandbox_tests.contract.sources import Source, fact
from tableau_sandbox_tests.contract.vds import call, fields, query, refused, values
from tableau_sandbox_tests.contract.workspace import ROWS, Published, Workspace

_METADATA = "POST vizql-data-service/read-metadata"
_QUERY = "POST vizql-data-service/query-datasource"
_NO_LUID = {"datasource": {"datasourceLuid": "00000000-0000-0000-0000-000000000000"}}
# Programs that read JSON numbers as doubles change a number of this size.
_LARGE = 2**53 + 1


@fact(_METADATA, Source.VDS_HELP, service_needs_a_session=("a call without a session", ""))
@fact(_METADATA, Source.MCP, service_with_an_unknown_session=("an unknown session", "a|b|{site}"))
def test_sessions(session: Session, *, what: str, token: str):
    """VizQL Data Service refuses {what} with 401001 or 401002."""
    answer = call(session, "read-metadata", _NO_LUID, token=token.format(site=session.site))
    answer.is_refused("401001 or 401002" if not token else "401002")


@fact(
    _METADATA,
    Source.MCP,
    service_of_an_unknown_datasource=("an unknown data source", "read-metadata", {}, "404937"),
    unknown_endpoint_of_the_service=("an unknown endpoint", "no-such-endpoint", {}, "404950"),
)
@fact(
    _METADATA,
    Source.VDS_OPENAPI,
    service_of_another_form=("an unknown key", "read-metadata", {"colour": "red"}, "400802"),
)
def test_refused_calls(session: Session, *, what: str, endpoint: str, more: Any, code: str):
    """VizQL Data Service refuses {what} with {code}."""
    call(session, endpoint, {**_NO_LUID, **more}).is_refused(code)


@fact(_METADATA, Source.VDS_HELP)
def test_service_of_no_json(session: Session):
    """VizQL Data Service refuses a body that is no JSON with 400000, a message and the UTC time."""
    error = refused(call(session, "read-metadata", "{"), "400000")
    assert error.get("message"), error.keys()
    stamp = str(error.get("datetime"))
    assert re.fullmatch(r"[\d-]{10}T[\d:]{8}(\.\d+)?Z", stamp), stamp


@fact(_METADATA, Source.UNSTATED)
def test_service_by_another_verb(session: Session):
    """VizQL Data Service accepts only POST; other verbs are refused with 405."""
    assert call(session, "read-metadata", _NO_LUID, method="PUT").status == 405


@fact(_METADATA, Source.VDS_OPENAPI)
def test_metadata_of_fields(workspace: Workspace):
    """VizQL Data Service lists the name, the caption and the type of each field."""
    types = {
        "BIGINT": "INTEGER",
        "NUMERIC(10, 2)": "REAL",
        "DOUBLE PRECISION": "REAL",
        "TEXT": "STRING",
        "BOOLEAN": "BOOLEAN",
        "DATE": "DATE",
        "TIMESTAMP": "DATETIME",
    }
    target = workspace.published(table_file(", ".join(f'"{each}" {each}' for each in types)))
    listed = fields(workspace.session, target.luid)
    assert {each["fieldName"]: each["dataType"] for each in listed} == types
    assert {each["fieldCaption"] for each in listed} == types.keys()


@fact(_METADATA, Source.VDS_HELP)
def test_roles_of_fields(workspace: Workspace):
    """New texts are dimensions that are counted; new numbers are measures that are added up."""
    listed = fields(workspace.session, workspace.shared.luid)
    if "fieldRole" not in listed[0]:
        pytest.skip("the server's VizQL Data Service tells no roles")
    assert {
        each["fieldName"]: (each["fieldRole"], each["fieldType"], each["defaultAggregation"])
        for each in listed
    } == {"id": ("MEASURE", "CONTINUOUS", "SUM"), "name": ("DIMENSION", "NOMINAL", "COUNT")}


@fact(_METADATA, Source.VDS_OPENAPI)
def test_identifiers_of_tables(workspace: Workspace):
    """The identifier of a table is its name, optionally its full name, and 32 digits."""
    listed = fields(workspace.session, workspace.shared.luid)
    (table,) = {each["logicalTableId"] for each in listed}
    assert re.fullmatch(r"Extract( \(Extract\.Extract\))?_[0-9A-Fa-f]{32}", table), table


@fact(_METADATA, Source.FILES)
def test_identifiers_by_desktop(workspace: Workspace):
    """The identifier of a table has the full name in brackets, as in Tableau Desktop."""
    listed = fields(workspace.session, workspace.shared.luid)
    assert listed[0]["logicalTableId"].startswith("Extract (Extract.Extract)_")


def _two_tables(workspace: Workspace) -> Published:
    rows = 'INSERT INTO "Extract"."{}" VALUES {}'
    one, two = rows.format("One", "(1), (2), (3)"), rows.format("Two", "(1), (NULL)")
    return workspace.published(related_file(one, two))


@fact(_METADATA, Source.FILES)
def test_columns_of_one_name(workspace: Workspace):
    """If two columns have the same name, the caption of the second column includes its table."""
    listed = {
        each["fieldCaption"]: re.split(r" \(|_", each["logicalTableId"])[0]
        for each in fields(workspace.session, _two_tables(workspace).luid)
    }
    (other,) = listed.keys() - {"id"}
    assert other == f"id ({listed[other]})"
    assert set(listed.values()) == {"One", "Two"}


def _counted(workspace: Workspace, target: Published, table: str, **options: bool) -> list[Any]:
    """Count the rows of a table; skip the fact if the server cannot count tables."""
    answer = query(workspace.session, target.luid, f"COUNT([{table}])", options=options)
    if answer.status == 400:
        pytest.skip("the server's VizQL Data Service counts no tables")
    return values(answer)


@fact(_QUERY, Source.VDS_HELP)
def test_count_of_one_of_two_tables(workspace: Workspace):
    """In a data source of two tables, COUNT of a table counts only the rows of that table."""
    target = _two_tables(workspace)
    assert [_counted(workspace, target, table) for table in ("One", "Two")] == [[3], [2]]


@fact(_QUERY, Source.UNSTATED)
def test_caption_of_the_only_table(workspace: Workspace):
    """The only logical table of a data source has the name of its physical table as caption."""
    assert _counted(workspace, workspace.shared, "Extract") == [len(ROWS)]


@fact(_QUERY, Source.VDS_HELP)
def test_count_by_the_identifier_of_a_table(workspace: Workspace):
    """With names in place of captions, a calculation can count a table by its identifier."""
    table = fields(workspace.session, workspace.shared.luid)[0]["logicalTableId"]
    options = {"interpretFieldCaptionsAsFieldNames": True, "bypassMetadataCache": True}
    assert _counted(workspace, workspace.shared, table, **options) == [len(ROWS)]


@fact(_QUERY, Source.UNSTATED)
def test_count_of_nothing(workspace: Workspace):
    """An aggregate over no rows gives no row."""
    target = workspace.published(rows_file())
    assert values(query(workspace.session, target.luid, "COUNT([name])")) == []


_NUMBERS = "(1)", "(2)", "(2)", "(7)", "(NULL)"


@fact(
    _QUERY,
    Source.VDS_HELP,
    count_of_a_column=("COUNT of a column counts its values, not NULL", _NUMBERS, ["COUNT"], [4]),
    aggregates=(
        "One query has several aggregates of a column",
        _NUMBERS,
        ["COUNT", "COUNTD", "SUM", "MIN", "MAX"],
        [4, 3, 12, 1, 7],
    ),
    aggregates_of_null=("MAX of no values is null", ["(NULL)"], ["MAX"], [None]),
)
@fact(
    _QUERY,
    Source.UNSTATED,
    large_numbers=(
        "Whole numbers beyond 2^53 keep all digits",
        [f"({_LARGE})"],
        ["MAX"],
        [_LARGE],
    ),
)
def test_aggregates(workspace: Workspace, *, claim: str, rows: Any, functions: Any, expected: Any):
    """{claim}."""
    target = workspace.published(table_file("a BIGINT", *rows))
    asked = (f"{function}([a])" for function in functions)
    assert values(query(workspace.session, target.luid, *asked)) == expected


@fact(_QUERY, Source.UNSTATED)
def test_count_by_a_constant(workspace: Workspace):
    """SUM(IIF(ISNULL([name]),1,1)) counts rows."""
    target = workspace.published(rows_file((1, None), (2, None), (3, "one")))
    assert values(query(workspace.session, target.luid, "SUM(IIF(ISNULL([name]),1,1))")) == [3]


@fact(_QUERY, Source.VDS_HELP)
def test_rows_as_arrays(workspace: Workspace):
    """With the format ARRAYS, rows are arrays in the order of the fields."""
    asked, options = ("MAX([id])", "COUNT([name])", "MIN([id])"), {"returnFormat": "ARRAYS"}
    answer = query(workspace.session, workspace.shared.luid, *asked, options=options)
    assert answer.succeeds().json() == {"data": [[2, 2, 1]]}


_COUNT = {"fieldCaption": "n", "calculation": "COUNT([name])"}


@fact(_QUERY, Source.VDS_HELP)
def test_alias_of_a_field(workspace: Workspace):
    """The alias of a field replaces its name in the answer."""
    field = {**_COUNT, "fieldAlias": "n0"}
    assert values(query(workspace.session, workspace.shared.luid, field)) == [len(ROWS)]


@fact(_QUERY, Source.MCP)
def test_unknown_option_of_a_query(workspace: Workspace):
    """A query with an option that the server does not know is refused with 400802."""
    luid, options = workspace.shared.luid, {"noSuchOption": False}
    query(workspace.session, luid, _COUNT, options=options).is_refused("400802")


_EITHER = "400802 or 400803"


@fact(
    _QUERY,
    Source.VDS_HELP,
    unknown_field_of_a_query=("unknown field", [{"fieldCaption": "x"}], "400803 or 404934"),
    invalid_formula_of_a_query=("invalid formula", ["COUNT(["], "400800"),
    field_asked_for_twice=("name twice", [_COUNT, {**_COUNT, "fieldAlias": "m"}], _EITHER),
)
@fact(
    _QUERY,
    Source.MCP,
    sum_of_texts=("sum of texts", ["SUM([name])"], "400800 or 400803"),
    calculation_named_like_a_field=("known name", [{**_COUNT, "fieldCaption": "id"}], _EITHER),
)
@fact(
    _QUERY,
    Source.VDS_OPENAPI,
    query_without_fields=("lack of fields", [], _EITHER),
    function_and_calculation=("second computation", [{**_COUNT, "function": "SUM"}], _EITHER),
    unknown_function_of_a_query=(
        "function that does not exist",
        [{"fieldCaption": "name", "function": "FIRST"}],
        _EITHER,
    ),
)
def test_refused_queries(workspace: Workspace, *, what: str, asked: list[Any], codes: str):
    """A query is refused for a {what} with {codes}."""
    query(workspace.session, workspace.shared.luid, *asked).is_refused(codes)
