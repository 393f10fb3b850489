"""What VizQL Data Service computes: aggregates, filters and forms of answers."""

import json
from collections.abc import Mapping
from typing import Any

from tableau_sandbox.facts.answer import NotShown, expect, expect_that
from tableau_sandbox.facts.fact import writes
from tableau_sandbox.facts.files import table_file
from tableau_sandbox.facts.playground import ROWS, Playground, Published
from tableau_sandbox.facts.sources import VDS_HELP, VDS_OPENAPI
from tableau_sandbox.facts.vds.asking import about, query, rows

_QUERY = "POST vizql-data-service/query-datasource"
_COUNT = {"fieldCaption": "name", "function": "COUNT", "fieldAlias": "n"}


def _of(field: str, kind: str, **keys: Any) -> dict[str, Any]:
    return {"field": {"fieldCaption": field}, "filterType": kind, **keys}


def _counts(play: Playground, target: Published, **filters: Mapping[str, Any]) -> dict[str, int]:
    """Count the names that each of some filters lets through."""
    found = {}
    for name, each in filters.items():
        asked = {"fields": [_COUNT], "filters": [each]}
        answer = rows(query(play.scene, target.luid, query=asked))
        found[name] = answer[0]["n"] if answer else 0
    return found


@writes(_QUERY, VDS_HELP)
def aggregates(play: Playground) -> None:
    """SUM, AVG, MIN, MAX and COUNTD aggregate a column."""
    target = play.published(table_file("a INTEGER", "(1)", "(2)", "(2)", "(7)", "(NULL)"))
    expected = {"SUM": 12, "AVG": 3, "MIN": 1, "MAX": 7, "COUNTD": 3, "COUNT": 4}
    for function, value in expected.items():
        answer = query(play.scene, target.luid, {"fieldCaption": "a", "function": function})
        expect([{f"{function}(a)": value}], rows(answer))


@writes(_QUERY, VDS_HELP)
def sorted_rows(play: Playground) -> None:
    """Rows are sorted as asked for."""
    for direction, expected in (("ASC", ["one", "two"]), ("DESC", ["two", "one"])):
        field = {"fieldCaption": "name", "sortPriority": 1, "sortDirection": direction}
        answer = rows(query(play.scene, play.shared.luid, field))
        expect(expected, [each["name"] for each in answer])


@writes(_QUERY, VDS_HELP)
def values_of_dimensions(play: Playground) -> None:
    """Texts, truth values and NULL come as those of JSON."""
    target = play.published(table_file("t TEXT, b BOOLEAN", "('x', true)", "(NULL, false)"))
    fields = {"fieldCaption": "t"}, {"fieldCaption": "b", "sortPriority": 1}
    answer = rows(query(play.scene, target.luid, *fields))
    expect([{"t": None, "b": False}, {"t": "x", "b": True}], answer)


@writes(_QUERY, VDS_HELP)
def filters_by_values(play: Playground) -> None:
    """SET keeps rows with some values, or without them."""
    values = {"values": ["one"]}
    found = _counts(
        play,
        play.shared,
        kept=_of("name", "SET", **values),
        left=_of("name", "SET", **values, exclude=True),
    )
    expect({"kept": 1, "left": 1}, found)


@writes(_QUERY, VDS_HELP)
def filters_by_parts_of_texts(play: Playground) -> None:
    """MATCH keeps texts by their beginning, their end, or a part of them."""
    found = _counts(
        play,
        play.shared,
        begins=_of("name", "MATCH", startsWith="o"),
        ends=_of("name", "MATCH", endsWith="wo"),
        has=_of("name", "MATCH", contains="w"),
        neither=_of("name", "MATCH", contains="x"),
    )
    expect({"begins": 1, "ends": 1, "has": 1, "neither": 0}, found)


@writes(_QUERY, VDS_HELP)
def filters_by_numbers(play: Playground) -> None:
    """QUANTITATIVE_NUMERICAL keeps numbers from one bound to the other, both included."""
    target = play.published(
        table_file("id INTEGER, name TEXT", "(1, 'a')", "(2, 'b')", "(3, 'c')", "(NULL, 'd')")
    )

    def numbers(kind: str, **bounds: int) -> dict[str, Any]:
        return _of("id", "QUANTITATIVE_NUMERICAL", quantitativeFilterType=kind, **bounds)

    found = _counts(
        play,
        target,
        between=numbers("RANGE", min=1, max=2),
        above=numbers("MIN", min=2),
        below=numbers("MAX", max=1),
        null=numbers("ONLY_NULL"),
        not_null=numbers("ONLY_NON_NULL"),
    )
    expect({"between": 2, "above": 2, "below": 1, "null": 1, "not_null": 3}, found)


@writes(_QUERY, VDS_HELP)
def filters_by_dates(play: Playground) -> None:
    """QUANTITATIVE_DATE keeps days from one to another, both included."""
    days = [f"(DATE '2026-01-0{day}', '{day}')" for day in (1, 2, 3)]
    target = play.published(table_file("day DATE, name TEXT", *days))
    between = _of(
        "day",
        "QUANTITATIVE_DATE",
        quantitativeFilterType="RANGE",
        minDate="2026-01-01",
        maxDate="2026-01-02",
    )
    expect({"between": 2}, _counts(play, target, between=between))


@writes(_QUERY, VDS_OPENAPI)
def limited_rows(play: Playground) -> None:
    """With the option rowLimit, an answer has no more rows; versions before 2026.1 refuse it."""
    field = {"fieldCaption": "name", "sortPriority": 1}
    answer = query(play.scene, play.shared.luid, field, options={"rowLimit": 1})
    if answer.status == 400:
        raise NotShown("the server's VizQL Data Service does not know rowLimit")
    expect([{"name": "one"}], rows(answer))


@writes(_QUERY, VDS_OPENAPI)
def rows_as_events(play: Playground) -> None:
    """As events, an answer tells how many rows it has, and then the rows."""
    options = {"returnServerSentEvents": True}
    answer = query(play.scene, play.shared.luid, _COUNT, options=options)
    if answer.status == 400:
        raise NotShown("the server's VizQL Data Service sends no events")
    lines = answer.succeeds(200).content.decode().splitlines()
    events = [json.loads(line.removeprefix("data:")) for line in lines if line]
    expect(["METADATA", "DATA"], [each["event"] for each in events])
    expect(({"rowCount": 1}, [{"n": 2}]), tuple(each["data"] for each in events))


@writes(_QUERY, VDS_HELP)
def count_by_the_identifier_of_a_table(play: Playground) -> None:
    """Names in place of captions also let a calculation count a table by its identifier."""
    (table,) = about(play.scene, "get-datasource-model", play.shared.luid)["logicalTables"]
    field = {"fieldCaption": "n", "calculation": f"COUNT([{table['logicalTableId']}])"}
    options = {"interpretFieldCaptionsAsFieldNames": True}
    answer = query(play.scene, play.shared.luid, field, options=options)
    if answer.status == 400:
        raise NotShown("the server's VizQL Data Service counts no tables")
    expect([{"n": len(ROWS)}], rows(answer))


@writes("POST vizql-data-service/read-metadata", VDS_HELP)
def roles_of_fields(play: Playground) -> None:
    """New texts are dimensions that are counted, and new numbers measures that are added up."""
    fields = about(play.scene, "read-metadata", play.shared.luid)["data"]
    if "fieldRole" not in fields[0]:
        raise NotShown("the server's VizQL Data Service tells no roles")
    found = {
        each["fieldName"]: (each["fieldRole"], each["fieldType"], each["defaultAggregation"])
        for each in fields
    }
    expect(
        {"id": ("MEASURE", "CONTINUOUS", "SUM"), "name": ("DIMENSION", "NOMINAL", "COUNT")}, found
    )


@writes("POST vizql-data-service/read-metadata", VDS_OPENAPI)
def types_of_fields(play: Playground) -> None:
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
    fields = about(play.scene, "read-metadata", play.published(table_file(columns)).luid)["data"]
    expect(
        {name: told for name, (_, told) in types.items()},
        {each["fieldName"]: each["dataType"] for each in fields},
    )


@writes("POST vizql-data-service/get-datasource-model", VDS_OPENAPI)
def identifiers_of_tables(play: Playground) -> None:
    """The identifier of a logical table is its caption and 32 hexadecimal digits."""
    (table,) = about(play.scene, "get-datasource-model", play.shared.luid)["logicalTables"]
    caption, _, digits = table["logicalTableId"].rpartition("_")
    expect(table["caption"], caption)
    expect_that(
        len(digits) == 32 and set(digits) <= set("0123456789ABCDEFabcdef"),
        "32 hexadecimal digits",
        digits,
    )
