"""Queries by VizQL Data Service: what they compute, and what is refused in them."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from tableau_sandbox_tests.contract.files import rows_file, table_file
from tableau_sandbox_tests.contract.session import Session
from tableau_sandbox_tests.contract.sources import MCP, NOBODY, VDS_HELP, VDS_OPENAPI, fact
from tableau_sandbox_tests.contract.vds import about, call, query, refused, rows
from tableau_sandbox_tests.contract.workspace import ROWS, Published, Workspace

_QUERY = "POST vizql-data-service/query-datasource"
_COUNT_NAMES = {"fieldCaption": "name", "function": "COUNT"}
_COUNT = {**_COUNT_NAMES, "fieldAlias": "n"}


def _of(field: str, kind: str, **keys: Any) -> dict[str, Any]:
    return {"field": {"fieldCaption": field}, "filterType": kind, **keys}


def _counts(
    workspace: Workspace, target: Published, **filters: Mapping[str, Any]
) -> dict[str, int]:
    """Count the names that each of some filters lets through."""
    found = {}
    for name, each in filters.items():
        asked = {"fields": [_COUNT], "filters": [each]}
        answer = rows(query(workspace.session, target.luid, query=asked))
        found[name] = answer[0]["n"] if answer else 0
    return found


@fact(_QUERY, VDS_HELP)
def test_aggregates(workspace: Workspace):
    """SUM, AVG, MIN, MAX and COUNTD aggregate a column."""
    target = workspace.published(table_file("a INTEGER", "(1)", "(2)", "(2)", "(7)", "(NULL)"))
    expected = {"SUM": 12, "AVG": 3, "MIN": 1, "MAX": 7, "COUNTD": 3, "COUNT": 4}
    for function, value in expected.items():
        answer = query(workspace.session, target.luid, {"fieldCaption": "a", "function": function})
        assert rows(answer) == [{f"{function}(a)": value}]


@fact(_QUERY, VDS_HELP)
def test_sorted_rows(workspace: Workspace):
    """Rows are sorted as asked for."""
    for direction, expected in (("ASC", ["one", "two"]), ("DESC", ["two", "one"])):
        field = {"fieldCaption": "name", "sortPriority": 1, "sortDirection": direction}
        answer = rows(query(workspace.session, workspace.shared.luid, field))
        assert [each["name"] for each in answer] == expected


@fact(_QUERY, VDS_HELP)
def test_values_of_dimensions(workspace: Workspace):
    """Texts, truth values and NULL come as those of JSON."""
    target = workspace.published(table_file("t TEXT, b BOOLEAN", "('x', true)", "(NULL, false)"))
    fields = {"fieldCaption": "t"}, {"fieldCaption": "b", "sortPriority": 1}
    answer = rows(query(workspace.session, target.luid, *fields))
    assert answer == [{"t": None, "b": False}, {"t": "x", "b": True}]


@fact(_QUERY, VDS_HELP)
def test_filters_by_values(workspace: Workspace):
    """SET keeps rows with some values, or without them."""
    values = {"values": ["one"]}
    found = _counts(
        workspace,
        workspace.shared,
        kept=_of("name", "SET", **values),
        left=_of("name", "SET", **values, exclude=True),
    )
    assert found == {"kept": 1, "left": 1}


@fact(_QUERY, VDS_HELP)
def test_filters_by_parts_of_texts(workspace: Workspace):
    """MATCH keeps texts by their beginning, their end, or a part of them."""
    found = _counts(
        workspace,
        workspace.shared,
        begins=_of("name", "MATCH", startsWith="o"),
        ends=_of("name", "MATCH", endsWith="wo"),
        has=_of("name", "MATCH", contains="w"),
        neither=_of("name", "MATCH", contains="x"),
    )
    assert found == {"begins": 1, "ends": 1, "has": 1, "neither": 0}


@fact(_QUERY, VDS_HELP)
def test_filters_by_numbers(workspace: Workspace):
    """QUANTITATIVE_NUMERICAL keeps numbers from one bound to the other, both included."""
    target = workspace.published(
        table_file("id INTEGER, name TEXT", "(1, 'a')", "(2, 'b')", "(3, 'c')", "(NULL, 'd')")
    )

    def numbers(kind: str, **bounds: int) -> dict[str, Any]:
        return _of("id", "QUANTITATIVE_NUMERICAL", quantitativeFilterType=kind, **bounds)

    found = _counts(
        workspace,
        target,
        between=numbers("RANGE", min=1, max=2),
        above=numbers("MIN", min=2),
        below=numbers("MAX", max=1),
        null=numbers("ONLY_NULL"),
        not_null=numbers("ONLY_NON_NULL"),
    )
    assert found == {"between": 2, "above": 2, "below": 1, "null": 1, "not_null": 3}


@fact(_QUERY, VDS_HELP)
def test_filters_by_dates(workspace: Workspace):
    """QUANTITATIVE_DATE keeps days from one to another, both included."""
    days = [f"(DATE '2026-01-0{day}', '{day}')" for day in (1, 2, 3)]
    target = workspace.published(table_file("day DATE, name TEXT", *days))
    between = _of(
        "day",
        "QUANTITATIVE_DATE",
        quantitativeFilterType="RANGE",
        minDate="2026-01-01",
        maxDate="2026-01-02",
    )
    assert _counts(workspace, target, between=between) == {"between": 2}


@fact(_QUERY, VDS_OPENAPI)
def test_limited_rows(workspace: Workspace):
    """With the option rowLimit, an answer has no more rows; versions before 2026.1 refuse it."""
    field = {"fieldCaption": "name", "sortPriority": 1}
    answer = query(workspace.session, workspace.shared.luid, field, options={"rowLimit": 1})
    if answer.status == 400:
        pytest.skip("the server's VizQL Data Service does not know rowLimit")
    assert rows(answer) == [{"name": "one"}]


@fact(_QUERY, VDS_OPENAPI)
def test_rows_as_events(workspace: Workspace):
    """As events, an answer tells how many rows it has, and then the rows."""
    options = {"returnServerSentEvents": True}
    answer = query(workspace.session, workspace.shared.luid, _COUNT, options=options)
    if answer.status == 400:
        pytest.skip("the server's VizQL Data Service sends no events")
    lines = answer.succeeds().content.decode().splitlines()
    events = [json.loads(line.removeprefix("data:")) for line in lines if line]
    assert [each["event"] for each in events] == ["METADATA", "DATA"]
    assert tuple(each["data"] for each in events) == ({"rowCount": 1}, [{"n": 2}])


@fact(_QUERY, VDS_HELP)
def test_count_by_the_identifier_of_a_table(workspace: Workspace):
    """Names in place of captions also let a calculation count a table by its identifier."""
    (table,) = about(workspace.session, "get-datasource-model", workspace.shared.luid)[
        "logicalTables"
    ]
    field = {"fieldCaption": "n", "calculation": f"COUNT([{table['logicalTableId']}])"}
    options = {"interpretFieldCaptionsAsFieldNames": True}
    answer = query(workspace.session, workspace.shared.luid, field, options=options)
    if answer.status == 400:
        pytest.skip("the server's VizQL Data Service counts no tables")
    assert rows(answer) == [{"n": len(ROWS)}]


@fact("POST vizql-data-service/read-metadata", VDS_HELP)
def test_roles_of_fields(workspace: Workspace):
    """New texts are dimensions that are counted, and new numbers measures that are added up."""
    fields = about(workspace.session, "read-metadata", workspace.shared.luid)["data"]
    if "fieldRole" not in fields[0]:
        pytest.skip("the server's VizQL Data Service tells no roles")
    found = {
        each["fieldName"]: (each["fieldRole"], each["fieldType"], each["defaultAggregation"])
        for each in fields
    }
    assert found == {
        "id": ("MEASURE", "CONTINUOUS", "SUM"),
        "name": ("DIMENSION", "NOMINAL", "COUNT"),
    }


@fact("POST vizql-data-service/read-metadata", VDS_OPENAPI)
def test_types_of_fields(workspace: Workspace):
    """Columns are INTEGER, REAL, STRING, BOOLEAN, DATE and DATETIME fields."""
    types = {
        "i": ("BIGINT", "INTEGER"),
        "n": ("NUMERIC(10, 2)", "REAL"),
        "d": ("DOUBLE PRECISION", "REAL"),
        "s": ("TEXT", "STRING"),
        "b": ("BOOLEAN", "BOOLEAN"),
        "day": ("DATE", "DATE"),
        "at": ("TIMESTAMP", "DATETIME"),
    }
    columns = ", ".join(f'"{name}" {sql}' for name, (sql, _) in types.items())
    fields = about(
        workspace.session, "read-metadata", workspace.published(table_file(columns)).luid
    )["data"]
    assert {each["fieldName"]: each["dataType"] for each in fields} == {
        name: told for name, (_, told) in types.items()
    }


@fact("POST vizql-data-service/get-datasource-model", VDS_OPENAPI)
def test_identifiers_of_tables(workspace: Workspace):
    """The identifier of a logical table is its caption and 32 hexadecimal digits."""
    (table,) = about(workspace.session, "get-datasource-model", workspace.shared.luid)[
        "logicalTables"
    ]
    caption, _, digits = table["logicalTableId"].rpartition("_")
    assert caption == table["caption"]
    assert len(digits) == 32
    assert set(digits) <= set("0123456789ABCDEFabcdef")


def _formula(text: str) -> dict[str, Any]:
    return {"fieldCaption": "number of rows", "calculation": text}


@fact(_QUERY, VDS_HELP)
def test_count_of_a_column(workspace: Workspace):
    """COUNT of a column counts its values, not NULL, under the key COUNT(caption)."""
    target = workspace.published(rows_file((1, "one"), (2, None), (3, "one")))
    assert rows(query(workspace.session, target.luid, _COUNT_NAMES)) == [{"COUNT(name)": 2}]


@fact(_QUERY, VDS_HELP)
def test_count_of_a_table(workspace: Workspace):
    """COUNT of a logical table, by its caption, is the number of its rows."""
    target = workspace.published(rows_file((1, None), (2, None), (3, "one")))
    tables = about(workspace.session, "get-datasource-model", target.luid)["logicalTables"]
    answer = query(workspace.session, target.luid, _formula(f"COUNT([{tables[0]['caption']}])"))
    if answer.status == 400:
        pytest.skip("the server's VizQL Data Service counts no tables")
    assert rows(answer) == [{"number of rows": 3}]


@fact(_QUERY, NOBODY)
def test_count_by_a_constant(workspace: Workspace):
    """A sum of ones by ISNULL of a column is the number of rows of its table."""
    target = workspace.published(rows_file((1, None), (2, None), (3, "one")))
    answer = query(workspace.session, target.luid, _formula("SUM(IIF(ISNULL([name]),1,1))"))
    assert rows(answer) == [{"number of rows": 3}]


@fact(_QUERY, NOBODY)
def test_count_of_nothing(workspace: Workspace):
    """An aggregate over no rows is answered without a row."""
    target = workspace.published(rows_file())
    assert rows(query(workspace.session, target.luid, _COUNT_NAMES)) == []


@fact(_QUERY, VDS_HELP)
def test_rows_by_dimension(workspace: Workspace):
    """A query has a row for each value of its dimensions."""
    target = workspace.published(rows_file((1, "one"), (2, "two"), (3, "one")))
    sorted_names = {"fieldCaption": "name", "sortPriority": 1}
    answer = query(
        workspace.session, target.luid, sorted_names, {**_COUNT_NAMES, "fieldAlias": "n"}
    )
    if answer.status == 400:
        # Some versions take a field only once, whatever its functions.
        pytest.skip("the server does not take a field twice")
    assert rows(answer) == [{"name": "one", "n": 2}, {"name": "two", "n": 1}]


@fact(_QUERY, VDS_HELP)
def test_rows_as_arrays(workspace: Workspace):
    """With the format ARRAYS, rows are arrays in the order of the fields."""
    options = {"returnFormat": "ARRAYS"}
    answer = query(workspace.session, workspace.shared.luid, _COUNT_NAMES, options=options)
    assert rows(answer) == [[2]]


@fact(_QUERY, VDS_HELP)
def test_unknown_field_of_a_query(workspace: Workspace):
    """A query of an unknown field is refused with 400803 or 404934."""
    answer = query(workspace.session, workspace.shared.luid, {"fieldCaption": "no such field"})
    refused(answer, "400803", "404934")


@fact(_QUERY, MCP)
def test_unknown_option_of_a_query(workspace: Workspace):
    """A query with an option that the server does not know is refused with 400802."""
    options = {"noSuchOption": False}
    refused(
        query(workspace.session, workspace.shared.luid, _COUNT_NAMES, options=options),
        "400802",
    )


@fact(_QUERY, VDS_HELP)
def test_invalid_formula_of_a_query(workspace: Workspace):
    """A query with an invalid formula is refused with 400800."""
    refused(query(workspace.session, workspace.shared.luid, _formula("COUNT([")), "400800")


_RULES = ("400803", "400802")
_NAME = {"fieldCaption": "name"}
_ID = {"fieldCaption": "id", "function": "SUM"}


def _refuses(workspace: Workspace, *fields: dict[str, Any], filters: Sequence[Any] = ()) -> None:
    luid = workspace.shared.luid
    body: dict[str, Any] = {"fields": fields}
    if filters:
        body["filters"] = filters
    refused(query(workspace.session, luid, query=body), *_RULES)


@fact(_QUERY, VDS_OPENAPI)
def test_query_without_fields(workspace: Workspace):
    """A query without a field is refused with 400802 or 400803."""
    _refuses(workspace)


@fact(_QUERY, VDS_HELP)
def test_field_asked_for_twice(workspace: Workspace):
    """A query with the same field twice is refused with 400802 or 400803."""
    _refuses(workspace, _NAME, _NAME)


@fact(_QUERY, VDS_HELP)
def test_equal_sort_priorities(workspace: Workspace):
    """Two fields with the same sort priority are refused with 400802 or 400803."""
    _refuses(workspace, {**_NAME, "sortPriority": 1}, {**_ID, "sortPriority": 1})


@fact(_QUERY, VDS_OPENAPI)
def test_function_and_calculation(workspace: Workspace):
    """A field with a function and a calculation is refused with 400802 or 400803."""
    _refuses(workspace, {"fieldCaption": "n", "function": "SUM", "calculation": "SUM([id])"})


@fact(_QUERY, MCP)
def test_calculation_named_like_a_field(workspace: Workspace):
    """A calculation with the name of a field is refused with 400802 or 400803."""
    _refuses(workspace, {"fieldCaption": "id", "calculation": "SUM([id])"})


@fact(_QUERY, MCP)
def test_sum_of_texts(workspace: Workspace):
    """A function that does not go with the type of its field is refused with 400802 or 400803."""
    _refuses(workspace, {"fieldCaption": "name", "function": "SUM"})


@fact(_QUERY, VDS_OPENAPI)
def test_unknown_function_of_a_query(workspace: Workspace):
    """A function that does not exist is refused with 400802 or 400803."""
    _refuses(workspace, {"fieldCaption": "name", "function": "FIRST"})


@fact(_QUERY, MCP)
def test_two_filters_of_a_field(workspace: Workspace):
    """Two filters for one field are refused with 400802 or 400803."""
    one = {"field": _NAME, "filterType": "SET", "values": ["one"]}
    _refuses(workspace, _COUNT_NAMES, filters=[one, {**one, "values": ["two"]}])


@fact(_QUERY, MCP)
def test_filter_by_no_values(workspace: Workspace):
    """A filter by a set without values is refused with 400802 or 400803."""
    _refuses(workspace, _COUNT_NAMES, filters=[{"field": _NAME, "filterType": "SET", "values": []}])


@fact(_QUERY, MCP)
def test_match_of_nothing(workspace: Workspace):
    """A filter by texts that names no text is refused with 400802 or 400803."""
    _refuses(workspace, _COUNT_NAMES, filters=[{"field": _NAME, "filterType": "MATCH"}])


@fact(_QUERY, VDS_OPENAPI)
def test_unknown_filter_of_a_query(workspace: Workspace):
    """A kind of filter that does not exist is refused with 400802 or 400803."""
    _refuses(
        workspace,
        _COUNT_NAMES,
        filters=[{"field": _NAME, "filterType": "NEAR", "values": ["one"]}],
    )


@fact("POST vizql-data-service/read-metadata", MCP)
def test_service_with_an_unknown_session(session: Session):
    """VizQL Data Service refuses an unknown session with 401002."""
    body = {"datasource": {"datasourceLuid": session.site}}
    token = f"unknown|unknown|{session.site}"
    refused(call(session, "read-metadata", body, token=token), "401002")
