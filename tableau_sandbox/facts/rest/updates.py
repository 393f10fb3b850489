"""Action batches: what they do to the rows."""

from collections.abc import Mapping, Sequence
from typing import Any

from tableau_sandbox.facts.answer import attribute, expect, expect_that
from tableau_sandbox.facts.fact import writes
from tableau_sandbox.facts.files import rows_file, table_file
from tableau_sandbox.facts.playground import ROWS, Playground
from tableau_sandbox.facts.sources import (
    LIVE_TESTS,
    NOBODY,
    SAMPLES,
    SCHEMA,
    TSC,
    UPDATE_GUIDE,
)

_UPDATE = "PATCH sites/{site}/datasources/{datasource}/data"
_ONE, _TWO = ROWS
_BY_ID: Mapping[str, Any] = {"op": "eq", "target-col": "id", "source-col": "id"}
_BY_NAME: Mapping[str, Any] = {"op": "eq", "target-col": "name", "source-col": "name"}


def action(kind: str, **parts: object) -> dict[str, object]:
    """Return an action on the usual table; underscores in names become hyphens."""
    return {"action": kind, "target-table": "Extract", "target-schema": "Extract"} | {
        name.replace("_", "-"): value for name, value in parts.items()
    }


def _with_source(kind: str, **parts: object) -> dict[str, object]:
    return action(kind, source_table="Extract", source_schema="Extract", **parts)


def _const(column: str, operator: str, kind: str, value: str | None) -> dict[str, object]:
    return {"op": operator, "target-col": column, "const": {"type": kind, "v": value}}


def _becomes(
    play: Playground,
    actions: Sequence[Mapping[str, object]],
    payload: bytes | None,
    expected: list[tuple],
) -> None:
    target = play.published()
    job = play.finished(play.update(target, actions, payload))
    expect("0", attribute(job, "finishCode"))
    expect(expected, play.rows(target))


@writes(_UPDATE, TSC)
def accepted_update(play: Playground) -> None:
    """An update is answered 202 and a job UpdateUploadedFile that names its data source."""
    target = play.published()
    answer = play.update(target, [action("delete", condition=True)]).succeeds(202)
    job = answer.element("job")
    expect(("UpdateUploadedFile", "Asynchronous"), (job.get("type"), job.get("mode")))
    about = "job/updateUploadedFileJob"
    expect(target.luid, attribute(answer.element(f"{about}/datasource"), "id"))
    expect_that(answer.element(f"{about}/connectionLuid").text, "a connectionLuid", answer)


@writes("PATCH sites/{site}/datasources/{datasource}/connections/{connection}/data", TSC)
def update_of_a_connection(play: Playground) -> None:
    """An update may name the connection of the data source."""
    target = play.published()
    answer = play.ask("GET", f"{target.path}/connections").succeeds(200)
    connection = attribute(answer.element("connections/connection"), "id")
    batch = [action("delete", condition=True)]
    play.finished(play.update(target, batch, connection=connection))
    expect([], play.rows(target))


@writes(_UPDATE, UPDATE_GUIDE)
def insert_appends(play: Playground) -> None:
    """An insert appends all rows of the source."""
    _becomes(play, [_with_source("insert")], rows_file(_TWO), [_ONE, _TWO, _TWO])


@writes(_UPDATE, UPDATE_GUIDE)
def update_changes(play: Playground) -> None:
    """An update changes the rows that match, and no others."""
    payload = rows_file((2, "TWO"), (3, "THREE"))
    _becomes(play, [_with_source("update", condition=_BY_ID)], payload, [_ONE, (2, "TWO")])


@writes(_UPDATE, UPDATE_GUIDE)
def upsert_changes_and_appends(play: Playground) -> None:
    """An upsert changes the rows that match and appends the others."""
    payload = rows_file((2, "TWO"), (3, "THREE"))
    changed = [_ONE, (2, "TWO"), (3, "THREE")]
    _becomes(play, [_with_source("upsert", condition=_BY_ID)], payload, changed)


@writes(_UPDATE, UPDATE_GUIDE)
def delete_by_a_source(play: Playground) -> None:
    """A delete removes the rows that match a row of its source."""
    payload = rows_file((2, "two"))
    condition = {"op": "and", "args": [_BY_ID, _BY_NAME]}
    _becomes(play, [_with_source("delete", condition=condition)], payload, [_ONE])


@writes(_UPDATE, SAMPLES)
def delete_by_a_constant(play: Playground) -> None:
    """A delete by a constant needs no source and no payload."""
    condition = _const("id", "eq", "integer", "1")
    _becomes(play, [action("delete", condition=condition)], None, [_TWO])


@writes(_UPDATE, LIVE_TESTS)
def delete_with_an_unused_payload(play: Playground) -> None:
    """A payload that no action names does no harm."""
    condition = _const("name", "eq", "string", "one")
    _becomes(play, [action("delete", condition=condition)], rows_file(), [_TWO])


@writes(_UPDATE, UPDATE_GUIDE)
def delete_everything(play: Playground) -> None:
    """The condition true matches all rows."""
    _becomes(play, [action("delete", condition=True)], None, [])


@writes(_UPDATE, SCHEMA)
def nested_conditions(play: Playground) -> None:
    """Conditions are combined by op and args."""
    numbers = [_const("id", "gte", "integer", "2"), _const("id", "lt", "integer", "3")]
    condition = {"op": "or", "args": [{"op": "and", "args": numbers}]}
    _becomes(play, [action("delete", condition=condition)], None, [_ONE])


@writes(_UPDATE, UPDATE_GUIDE)
def replace_changes_everything(play: Playground) -> None:
    """A replace leaves the rows of the source, and no others."""
    _becomes(play, [_with_source("replace")], rows_file((3, "three")), [(3, "three")])


@writes(_UPDATE, UPDATE_GUIDE)
def actions_run_in_order(play: Playground) -> None:
    """The actions of a batch run one after another."""
    batch = [action("delete", condition=True), _with_source("insert")]
    _becomes(play, batch, rows_file((3, "three")), [(3, "three")])


@writes(_UPDATE, UPDATE_GUIDE)
def null_keys(play: Playground) -> None:
    """NULL matches NULL by the operator is, and by eq nothing."""
    target = play.published(rows_file((None, "none"), _ONE))
    payload = rows_file((None, "changed"))
    for operator, name in (("eq", "none"), ("is", "changed")):
        condition = {**_BY_ID, "op": operator}
        play.finished(play.update(target, [_with_source("update", condition=condition)], payload))
        expect([_ONE, (None, name)], play.rows(target))


@writes(_UPDATE, UPDATE_GUIDE)
def constant_null(play: Playground) -> None:
    """The operator is compares with a constant null."""
    target = play.published(rows_file((None, "none"), _ONE))
    condition = _const("id", "is", "integer", None)
    play.finished(play.update(target, [action("delete", condition=condition)]))
    expect([_ONE], play.rows(target))


@writes(_UPDATE, UPDATE_GUIDE)
def default_schemas(play: Playground) -> None:
    """A schema need not be named where a file has tables in one only."""
    batch = [{"action": "insert", "target-table": "Extract", "source-table": "Extract"}]
    _becomes(play, batch, rows_file(_TWO), [_ONE, _TWO, _TWO])


@writes(_UPDATE, NOBODY)
def case_of_has(play: Playground) -> None:
    """The operator has distinguishes the case of letters."""
    condition = _const("name", "has", "string", "ON")
    _becomes(play, [action("delete", condition=condition)], None, [_ONE, _TWO])


@writes(_UPDATE, NOBODY)
def update_moves_the_stamp(play: Playground) -> None:
    """An update of rows moves updatedAt."""
    target = play.published()
    before = play.ask("GET", target.path).succeeds(200).element("datasource").get("updatedAt")
    play.pass_a_second()
    play.finished(play.update(target, [action("delete", condition=True)]))
    after = play.ask("GET", target.path).succeeds(200).element("datasource").get("updatedAt")
    expect_that(before != after, "another updatedAt", after)


@writes(_UPDATE, NOBODY)
def update_makes_no_revision(play: Playground) -> None:
    """An update of rows makes no revision."""
    target = play.published()
    play.finished(play.update(target, [action("delete", condition=True)]))
    answer = play.ask("GET", f"{target.path}/revisions").succeeds(200)
    expect(1, len(answer.elements("revisions/revision")))


@writes(_UPDATE, UPDATE_GUIDE)
def key_of_another_name(play: Playground) -> None:
    """A condition may compare columns of different names."""
    payload = rows_file((2, "TWO"), columns="update_id INTEGER, name TEXT")
    condition = {"op": "eq", "target-col": "id", "source-col": "update_id"}
    batch = [_with_source("update", condition=condition)]
    _becomes(play, batch, payload, [_ONE, (2, "TWO")])


@writes(_UPDATE, UPDATE_GUIDE)
def columns_by_their_names(play: Playground) -> None:
    """Columns are matched by their names, whatever their order, in an insert and in a replace."""
    payload = table_file("name TEXT, id INTEGER", "('x', 7)")
    _becomes(play, [_with_source("insert")], payload, [_ONE, _TWO, (7, "x")])
    _becomes(play, [_with_source("replace")], payload, [(7, "x")])


@writes(_UPDATE, UPDATE_GUIDE)
def columns_that_an_update_lacks(play: Playground) -> None:
    """An update leaves the columns that its source lacks as they are."""
    target = play.published(rows_file((1, "one"), columns="id INTEGER, name TEXT"))
    payload = table_file("id INTEGER", "(1)")
    play.finished(play.update(target, [_with_source("update", condition=_BY_ID)], payload))
    expect([_ONE], play.rows(target))


@writes(_UPDATE, UPDATE_GUIDE)
def comparisons_by_order(play: Playground) -> None:
    """The operators neq, lt, lte, gt and gte compare a column with a constant."""
    three = [_ONE, _TWO, (3, "three")]
    for operator, kept in (
        ("neq", [_TWO]),
        ("lt", [_TWO, three[2]]),
        ("lte", [three[2]]),
        ("gt", [_ONE, _TWO]),
        ("gte", [_ONE]),
    ):
        target = play.published(rows_file(*three))
        condition = _const("id", operator, "integer", "2")
        play.finished(play.update(target, [action("delete", condition=condition)]))
        expect(sorted(kept, key=repr), play.rows(target))


@writes(_UPDATE, UPDATE_GUIDE)
def operator_has(play: Playground) -> None:
    """The operator has finds a text in a column."""
    condition = _const("name", "has", "string", "ne")
    _becomes(play, [action("delete", condition=condition)], None, [_TWO])


@writes(_UPDATE, UPDATE_GUIDE)
def constants_of_all_types(play: Playground) -> None:
    """Constants are truth values in any case of letters, numbers, texts and times with a zone."""
    columns = "b BOOLEAN, d DOUBLE PRECISION, t TIMESTAMP, id INTEGER"
    row = "(true, 1.5, TIMESTAMP '2026-01-31 10:00:00', 1)"
    file = table_file(columns, row)
    for column, kind, value in (
        ("b", "boolean", "TRUE"),
        ("d", "double", "1.5"),
        ("t", "datetime", "2026-01-31T10:00:00Z"),
        ("t", "datetime", "2026-01-31T11:00:00+0100"),
    ):
        target = play.published(file)
        condition = _const(column, "eq", kind, value)
        play.finished(play.update(target, [action("delete", condition=condition)]))
        expect([], play.rows(target))


@writes(_UPDATE, NOBODY)
def null_overwrites(play: Playground) -> None:
    """NULL in the source of an update replaces the value."""
    batch = [_with_source("update", condition=_BY_ID)]
    _becomes(play, batch, rows_file((1, None)), sorted([(1, None), _TWO], key=repr))


@writes(_UPDATE, NOBODY)
def constant_as_a_number(play: Playground) -> None:
    """A constant may be a number of JSON."""
    condition = {"op": "eq", "target-col": "id", "const": {"type": "integer", "v": 1}}
    _becomes(play, [action("delete", condition=condition)], None, [_TWO])


@writes(_UPDATE, NOBODY)
def source_file_in_an_action(play: Playground) -> None:
    """An action may name a source-file, which has no effect."""
    batch = [_with_source("insert", source_file="any.hyper")]
    _becomes(play, batch, rows_file(_TWO), [_ONE, _TWO, _TWO])
