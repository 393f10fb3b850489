"""Action batches: what they do to the rows."""

from collections.abc import Mapping, Sequence
from typing import Any

from tableau_sandbox_tests.contract.answer import attribute
from tableau_sandbox_tests.contract.files import rows_file, table_file
from tableau_sandbox_tests.contract.sources import (
    LIVE_TESTS,
    NOBODY,
    SAMPLES,
    SCHEMA,
    TSC,
    UPDATE_GUIDE,
    fact,
)
from tableau_sandbox_tests.contract.workspace import ROWS, Workspace

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
    workspace: Workspace,
    actions: Sequence[Mapping[str, object]],
    payload: bytes | None,
    expected: list[tuple],
) -> None:
    target = workspace.published()
    job = workspace.finished(workspace.update(target, actions, payload))
    assert attribute(job, "finishCode") == "0"
    assert workspace.rows(target) == expected


@fact(_UPDATE, TSC)
def test_accepted_update(workspace: Workspace):
    """An update is answered 202 and a job UpdateUploadedFile that names its data source."""
    target = workspace.published()
    answer = workspace.update(target, [action("delete", condition=True)]).succeeds(202)
    job = answer.element("job")
    assert (job.get("type"), job.get("mode")) == ("UpdateUploadedFile", "Asynchronous")
    about = "job/updateUploadedFileJob"
    assert attribute(answer.element(f"{about}/datasource"), "id") == target.luid
    assert answer.element(f"{about}/connectionLuid").text, answer


@fact("PATCH sites/{site}/datasources/{datasource}/connections/{connection}/data", TSC)
def test_update_of_a_connection(workspace: Workspace):
    """An update may name the connection of the data source."""
    target = workspace.published()
    answer = workspace.ask("GET", f"{target.path}/connections").succeeds(200)
    connection = attribute(answer.element("connections/connection"), "id")
    batch = [action("delete", condition=True)]
    workspace.finished(workspace.update(target, batch, connection=connection))
    assert workspace.rows(target) == []


@fact(_UPDATE, UPDATE_GUIDE)
def test_insert_appends(workspace: Workspace):
    """An insert appends all rows of the source."""
    _becomes(workspace, [_with_source("insert")], rows_file(_TWO), [_ONE, _TWO, _TWO])


@fact(_UPDATE, UPDATE_GUIDE)
def test_update_changes(workspace: Workspace):
    """An update changes the rows that match, and no others."""
    payload = rows_file((2, "TWO"), (3, "THREE"))
    _becomes(workspace, [_with_source("update", condition=_BY_ID)], payload, [_ONE, (2, "TWO")])


@fact(_UPDATE, UPDATE_GUIDE)
def test_upsert_changes_and_appends(workspace: Workspace):
    """An upsert changes the rows that match and appends the others."""
    payload = rows_file((2, "TWO"), (3, "THREE"))
    changed = [_ONE, (2, "TWO"), (3, "THREE")]
    _becomes(workspace, [_with_source("upsert", condition=_BY_ID)], payload, changed)


@fact(_UPDATE, UPDATE_GUIDE)
def test_delete_by_a_source(workspace: Workspace):
    """A delete removes the rows that match a row of its source."""
    payload = rows_file((2, "two"))
    condition = {"op": "and", "args": [_BY_ID, _BY_NAME]}
    _becomes(workspace, [_with_source("delete", condition=condition)], payload, [_ONE])


@fact(_UPDATE, SAMPLES)
def test_delete_by_a_constant(workspace: Workspace):
    """A delete by a constant needs no source and no payload."""
    condition = _const("id", "eq", "integer", "1")
    _becomes(workspace, [action("delete", condition=condition)], None, [_TWO])


@fact(_UPDATE, LIVE_TESTS)
def test_delete_with_an_unused_payload(workspace: Workspace):
    """A payload that no action names does no harm."""
    condition = _const("name", "eq", "string", "one")
    _becomes(workspace, [action("delete", condition=condition)], rows_file(), [_TWO])


@fact(_UPDATE, UPDATE_GUIDE)
def test_delete_everything(workspace: Workspace):
    """The condition true matches all rows."""
    _becomes(workspace, [action("delete", condition=True)], None, [])


@fact(_UPDATE, SCHEMA)
def test_nested_conditions(workspace: Workspace):
    """Conditions are combined by op and args."""
    numbers = [_const("id", "gte", "integer", "2"), _const("id", "lt", "integer", "3")]
    condition = {"op": "or", "args": [{"op": "and", "args": numbers}]}
    _becomes(workspace, [action("delete", condition=condition)], None, [_ONE])


@fact(_UPDATE, UPDATE_GUIDE)
def test_replace_changes_everything(workspace: Workspace):
    """A replace leaves the rows of the source, and no others."""
    _becomes(workspace, [_with_source("replace")], rows_file((3, "three")), [(3, "three")])


@fact(_UPDATE, UPDATE_GUIDE)
def test_actions_run_in_order(workspace: Workspace):
    """The actions of a batch run one after another."""
    batch = [action("delete", condition=True), _with_source("insert")]
    _becomes(workspace, batch, rows_file((3, "three")), [(3, "three")])


@fact(_UPDATE, UPDATE_GUIDE)
def test_null_keys(workspace: Workspace):
    """NULL matches NULL by the operator is, and by eq nothing."""
    target = workspace.published(rows_file((None, "none"), _ONE))
    payload = rows_file((None, "changed"))
    for operator, name in (("eq", "none"), ("is", "changed")):
        condition = {**_BY_ID, "op": operator}
        workspace.finished(
            workspace.update(target, [_with_source("update", condition=condition)], payload)
        )
        assert workspace.rows(target) == [_ONE, (None, name)]


@fact(_UPDATE, UPDATE_GUIDE)
def test_constant_null(workspace: Workspace):
    """The operator is compares with a constant null."""
    target = workspace.published(rows_file((None, "none"), _ONE))
    condition = _const("id", "is", "integer", None)
    workspace.finished(workspace.update(target, [action("delete", condition=condition)]))
    assert workspace.rows(target) == [_ONE]


@fact(_UPDATE, UPDATE_GUIDE)
def test_default_schemas(workspace: Workspace):
    """A schema need not be named where a file has tables in one only."""
    batch = [{"action": "insert", "target-table": "Extract", "source-table": "Extract"}]
    _becomes(workspace, batch, rows_file(_TWO), [_ONE, _TWO, _TWO])


@fact(_UPDATE, NOBODY)
def test_case_of_has(workspace: Workspace):
    """The operator has distinguishes the case of letters."""
    condition = _const("name", "has", "string", "ON")
    _becomes(workspace, [action("delete", condition=condition)], None, [_ONE, _TWO])


@fact(_UPDATE, NOBODY)
def test_update_moves_the_stamp(workspace: Workspace):
    """An update of rows moves updatedAt."""
    target = workspace.published()
    before = workspace.ask("GET", target.path).succeeds(200).element("datasource").get("updatedAt")
    workspace.pass_a_second()
    workspace.finished(workspace.update(target, [action("delete", condition=True)]))
    after = workspace.ask("GET", target.path).succeeds(200).element("datasource").get("updatedAt")
    assert before != after, after


@fact(_UPDATE, NOBODY)
def test_update_makes_no_revision(workspace: Workspace):
    """An update of rows makes no revision."""
    target = workspace.published()
    workspace.finished(workspace.update(target, [action("delete", condition=True)]))
    answer = workspace.ask("GET", f"{target.path}/revisions").succeeds(200)
    assert len(answer.elements("revisions/revision")) == 1


@fact(_UPDATE, UPDATE_GUIDE)
def test_key_of_another_name(workspace: Workspace):
    """A condition may compare columns of different names."""
    payload = rows_file((2, "TWO"), columns="update_id INTEGER, name TEXT")
    condition = {"op": "eq", "target-col": "id", "source-col": "update_id"}
    batch = [_with_source("update", condition=condition)]
    _becomes(workspace, batch, payload, [_ONE, (2, "TWO")])


@fact(_UPDATE, UPDATE_GUIDE)
def test_columns_by_their_names(workspace: Workspace):
    """Columns are matched by their names, whatever their order, in an insert and in a replace."""
    payload = table_file("name TEXT, id INTEGER", "('x', 7)")
    _becomes(workspace, [_with_source("insert")], payload, [_ONE, _TWO, (7, "x")])
    _becomes(workspace, [_with_source("replace")], payload, [(7, "x")])


@fact(_UPDATE, UPDATE_GUIDE)
def test_columns_that_an_update_lacks(workspace: Workspace):
    """An update leaves the columns that its source lacks as they are."""
    target = workspace.published(rows_file((1, "one"), columns="id INTEGER, name TEXT"))
    payload = table_file("id INTEGER", "(1)")
    workspace.finished(
        workspace.update(target, [_with_source("update", condition=_BY_ID)], payload)
    )
    assert workspace.rows(target) == [_ONE]


@fact(_UPDATE, UPDATE_GUIDE)
def test_comparisons_by_order(workspace: Workspace):
    """The operators neq, lt, lte, gt and gte compare a column with a constant."""
    three = [_ONE, _TWO, (3, "three")]
    for operator, kept in (
        ("neq", [_TWO]),
        ("lt", [_TWO, three[2]]),
        ("lte", [three[2]]),
        ("gt", [_ONE, _TWO]),
        ("gte", [_ONE]),
    ):
        target = workspace.published(rows_file(*three))
        condition = _const("id", operator, "integer", "2")
        workspace.finished(workspace.update(target, [action("delete", condition=condition)]))
        assert workspace.rows(target) == sorted(kept, key=repr)


@fact(_UPDATE, UPDATE_GUIDE)
def test_operator_has(workspace: Workspace):
    """The operator has finds a text in a column."""
    condition = _const("name", "has", "string", "ne")
    _becomes(workspace, [action("delete", condition=condition)], None, [_TWO])


@fact(_UPDATE, UPDATE_GUIDE)
def test_constants_of_all_types(workspace: Workspace):
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
        target = workspace.published(file)
        condition = _const(column, "eq", kind, value)
        workspace.finished(workspace.update(target, [action("delete", condition=condition)]))
        assert workspace.rows(target) == []


@fact(_UPDATE, NOBODY)
def test_null_overwrites(workspace: Workspace):
    """NULL in the source of an update replaces the value."""
    batch = [_with_source("update", condition=_BY_ID)]
    _becomes(workspace, batch, rows_file((1, None)), sorted([(1, None), _TWO], key=repr))


@fact(_UPDATE, NOBODY)
def test_constant_as_a_number(workspace: Workspace):
    """A constant may be a number of JSON."""
    condition = {"op": "eq", "target-col": "id", "const": {"type": "integer", "v": 1}}
    _becomes(workspace, [action("delete", condition=condition)], None, [_TWO])


@fact(_UPDATE, NOBODY)
def test_source_file_in_an_action(workspace: Workspace):
    """An action may name a source-file, which has no effect."""
    batch = [_with_source("insert", source_file="any.hyper")]
    _becomes(workspace, batch, rows_file(_TWO), [_ONE, _TWO, _TWO])
