"""Action batches: changes of rows, refusals, failures and repeated requests."""

import secrets
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import uuid4

import pytest

from tableau_sandbox_tests.contract.extract import extract
from tableau_sandbox_tests.contract.files import rows_file, table_file
from tableau_sandbox_tests.contract.session import Answer, Session
from tableau_sandbox_tests.contract.sources import Source, fact
from tableau_sandbox_tests.contract.workspace import ROWS, Published, Workspace

_UPDATE = "PATCH sites/{site}/datasources/{datasource}/data"
_CONNECTION = "PATCH sites/{site}/datasources/{datasource}/connections/{connection}/data"
_ONE, _TWO = ROWS
_THREE = (3, "three")
Batch = Sequence[Mapping[str, Any]]


def _const(column: str, operator: str, kind: str, value: object) -> dict[str, Any]:
    return {"op": operator, "target-col": column, "const": {"type": kind, "v": value}}


def _delete(condition: object = True, **parts: object) -> dict[str, Any]:
    return {"action": "delete", "target-table": "Extract", "condition": condition, **parts}


def _take(kind: str, condition: object = None, **parts: object) -> dict[str, Any]:
    """Return an action with a source; without `condition`, the action has no condition."""
    action = {"action": kind, "target-table": "Extract", "source-table": "Extract", **parts}
    return action if condition is None else action | {"condition": condition}


def _equal(column: str, source: str = "") -> dict[str, Any]:
    return {"op": "eq", "target-col": column, "source-col": source or column}


def _has(text: str) -> dict[str, Any]:
    return _delete(_const("name", "has", "string", text))


_BY_ID = _equal("id")
_NESTED = {
    "op": "or",
    "args": [
        {
            "op": "and",
            "args": [_const("id", "gte", "integer", "2"), _const("id", "lt", "integer", "3")],
        }
    ],
}


def _becomes(workspace: Workspace, target: Published, batch: Batch, payload: bytes | None, rows):
    job = workspace.finished(workspace.update(target, batch, payload))
    assert job["job@finishCode"] == "0"
    assert workspace.rows(target) == rows


@pytest.mark.few_variants(6)
@fact(
    _UPDATE,
    Source.UPDATE_GUIDE,
    insert_appends=(
        "An insert appends all rows of the source",
        [_take("insert")],
        [_THREE],
        [_ONE, _TWO, _THREE],
    ),
    update_changes=(
        "An update changes the rows that match, and no others",
        [_take("update", _BY_ID)],
        [(2, "TWO"), _THREE],
        [_ONE, (2, "TWO")],
    ),
    upsert_changes_and_appends=(
        "An upsert changes the rows that match and appends the others",
        [_take("upsert", _BY_ID)],
        [(2, "TWO"), _THREE],
        [_ONE, (2, "TWO"), _THREE],
    ),
    delete_by_a_source=(
        "A delete removes the rows that match a row of its source",
        [_take("delete", {"op": "and", "args": [_BY_ID, _equal("name")]})],
        [_TWO],
        [_ONE],
    ),
    delete_everything=("The condition true matches all rows", [_delete()], None, []),
    replace_changes_everything=(
        "A replace leaves the rows of the source, and no others",
        [_take("replace")],
        [_THREE],
        [_THREE],
    ),
    actions_run_in_order=(
        "The actions of a batch run one after another",
        [_delete(), _take("insert")],
        [_THREE],
        [_THREE],
    ),
    operator_has=("The operator `has` finds a text in a column", [_has("ne")], None, [_TWO]),
)
@fact(
    _UPDATE,
    Source.SAMPLES,
    delete_by_a_constant=(
        "A delete by a constant needs no source and no payload",
        [_delete(_const("id", "eq", "integer", "1"))],
        None,
        [_TWO],
    ),
)
@fact(
    _UPDATE,
    Source.SCHEMA,
    nested_conditions=("Conditions are combined by op and args", [_delete(_NESTED)], None, [_ONE]),
)
@fact(
    _UPDATE,
    Source.LIVE_TESTS,
    delete_with_an_unused_payload=(
        "A payload that no action names does no harm",
        [_delete(_const("name", "eq", "string", "one"))],
        [],
        [_TWO],
    ),
)
@fact(
    _UPDATE,
    Source.UNSTATED,
    case_of_has=("The operator `has` is case-sensitive", [_has("ON")], None, [*ROWS]),
    null_overwrites=(
        "NULL in the source of an update replaces the value",
        [_take("update", _BY_ID)],
        [(1, None)],
        [(1, None), _TWO],
    ),
    constant_as_a_number=(
        "A constant may be a JSON number",
        [_delete(_const("id", "eq", "integer", 1))],
        None,
        [_TWO],
    ),
)
def test_rows_of_a_batch(workspace: Workspace, *, claim: str, batch: Any, payload: Any, rows: Any):
    """{claim}."""
    file = None if payload is None else rows_file(*payload)
    _becomes(workspace, workspace.published(), batch, file, rows)


@fact(
    _UPDATE,
    Source.UPDATE_GUIDE,
    schemas_by_name=(
        "An action may name the schemas of its tables, or leave them out where there is one",
        {"target-schema": "Extract", "source-schema": "Extract"},
    ),
)
@fact(
    _UPDATE,
    Source.UNSTATED,
    source_file_in_an_action=(
        "A source-file in an action has no effect",
        {"source-file": "any.hyper"},
    ),
)
def test_parts_of_an_action(workspace: Workspace, *, claim: str, parts: dict[str, str]):
    """{claim}."""
    batch = [_take("insert", **parts)]
    _becomes(workspace, workspace.published(), batch, rows_file(_TWO), [_ONE, _TWO, _TWO])


@fact(_UPDATE, Source.UPDATE_GUIDE)
def test_key_of_another_name(workspace: Workspace):
    """A condition may compare columns of different names."""
    payload = rows_file((2, "TWO"), columns="update_id INTEGER, name TEXT")
    batch = [_take("update", _equal("id", "update_id"))]
    _becomes(workspace, workspace.published(), batch, payload, [_ONE, (2, "TWO")])


@fact(_UPDATE, Source.UPDATE_GUIDE)
def test_columns_by_their_names(workspace: Workspace):
    """Inserts and replaces match columns by name; the order of columns does not matter."""
    payload = table_file("name TEXT, id INTEGER", "('x', 7)")
    for kind, rows in (("insert", [_ONE, _TWO, (7, "x")]), ("replace", [(7, "x")])):
        _becomes(workspace, workspace.published(), [_take(kind)], payload, rows)


@fact(_UPDATE, Source.UPDATE_GUIDE)
def test_columns_that_an_update_lacks(workspace: Workspace):
    """An update keeps the values of columns that its source lacks."""
    payload = table_file("id INTEGER", "(1)")
    _becomes(workspace, workspace.published(), [_take("update", _BY_ID)], payload, [*ROWS])


@fact(_UPDATE, Source.UPDATE_GUIDE)
def test_null_keys(workspace: Workspace):
    """With the operator `is`, NULL matches NULL; with `eq`, NULL matches nothing."""
    target = workspace.published(rows_file((None, "none"), _ONE))
    payload = rows_file((None, "changed"))
    for operator, name in (("eq", "none"), ("is", "changed")):
        batch = [_take("update", _BY_ID | {"op": operator})]
        _becomes(workspace, target, batch, payload, [_ONE, (None, name)])


@fact(_UPDATE, Source.UPDATE_GUIDE)
def test_constant_null(workspace: Workspace):
    """The operator `is` can compare a column with the constant null."""
    target = workspace.published(rows_file((None, "none"), _ONE))
    _becomes(workspace, target, [_delete(_const("id", "is", "integer", None))], None, [_ONE])


@pytest.mark.slow
@fact(_UPDATE, Source.UPDATE_GUIDE)
def test_comparisons_by_order(workspace: Workspace):
    """The operators `neq`, `lt`, `lte`, `gt` and `gte` compare a column with a constant."""
    for operator, kept in (("neq", "2"), ("lt", "23"), ("lte", "3"), ("gt", "12"), ("gte", "1")):
        target = workspace.published(table_file("id INTEGER", "(1)", "(2)", "(3)"))
        batch = [_delete(_const("id", operator, "integer", "2"))]
        _becomes(workspace, target, batch, None, [(int(number),) for number in kept])


@pytest.mark.slow
@fact(_UPDATE, Source.UPDATE_GUIDE)
def test_constants_of_all_types(workspace: Workspace):
    """A constant may be a truth value in any case, a number, a text or a time with a zone."""
    columns = "b BOOLEAN, d DOUBLE PRECISION, t TIMESTAMP, id INTEGER"
    file = table_file(columns, "(true, 1.5, TIMESTAMP '2026-01-31 10:00:00', 1)")
    for constant in (
        _const("b", "eq", "boolean", "TRUE"),
        _const("d", "eq", "double", "1.5"),
        _const("t", "eq", "datetime", "2026-01-31T10:00:00Z"),
        _const("t", "eq", "datetime", "2026-01-31T11:00:00+0100"),
    ):
        _becomes(workspace, workspace.published(file), [_delete(constant)], None, [])


@fact(_UPDATE, Source.TSC)
def test_accepted_update(workspace: Workspace):
    """An update is answered with 202 and a job UpdateUploadedFile that names the data source."""
    target = workspace.published()
    answer = workspace.update(target, [_delete()]).succeeds(202)
    assert (answer["job@type"], answer["job@mode"]) == ("UpdateUploadedFile", "Asynchronous")
    assert answer["job/updateUploadedFileJob/datasource@id"] == target.luid
    assert answer["job/updateUploadedFileJob/connectionLuid"]


@fact(_CONNECTION, Source.TSC)
def test_update_of_a_connection(workspace: Workspace):
    """An update may name the connection of the data source."""
    target = workspace.published()
    answer = workspace.send(f"GET {target.path}/connections").succeeds()
    connection = answer["connections/connection@id"]
    workspace.finished(workspace.update(target, [_delete()], connection=connection))
    assert workspace.rows(target) == []


@fact(_UPDATE, Source.UNSTATED)
def test_update_moves_the_stamp(workspace: Workspace):
    """An update moves updatedAt."""
    target = workspace.published()
    before = workspace.record(target)["datasource@updatedAt"]
    workspace.pass_a_second()
    workspace.finished(workspace.update(target, [_delete()]))
    assert workspace.record(target)["datasource@updatedAt"] != before


@fact(_UPDATE, Source.UNSTATED)
def test_update_makes_no_revision(workspace: Workspace):
    """An update makes no revision."""
    target = workspace.published()
    workspace.finished(workspace.update(target, [_delete()]))
    answer = workspace.send(f"GET {target.path}/revisions").succeeds()
    assert len(answer.elements("revisions/revision")) == 1


def _fails(workspace: Workspace, batch: Batch, payload: bytes | None) -> Answer:
    """Send a batch that must fail and change nothing; return its job."""
    job = workspace.finished(workspace.update(workspace.shared, batch, payload))
    assert job["job@finishCode"] == "1"
    assert workspace.rows(workspace.shared) == [*ROWS]
    return job


@fact(_UPDATE, Source.LIVE_MESSAGES)
def test_unknown_source_table(workspace: Workspace):
    """A source table that is not in the payload fails the job, with code 410012 in its notes."""
    batch = [_take("insert", **{"source-table": "NoSuchTable"})]
    notes = _fails(workspace, batch, rows_file())["job/updateUploadedFileJob/notes"]
    assert "errorCode=410012" in notes


@fact(_UPDATE, Source.UPDATE_GUIDE)
def test_batches_are_atomic(workspace: Workspace):
    """If an action fails, its batch has no effect; table names are case-sensitive."""
    _fails(workspace, [_delete(), _delete(**{"target-table": "EXTRACT"})], None)


@fact(
    _UPDATE,
    Source.UPDATE_GUIDE,
    delete_with_columns_beyond_the_condition=(
        "A delete fails if its source has columns that the condition does not name",
        _take("delete", _BY_ID),
        "id INTEGER, name TEXT",
    ),
    replace_with_other_columns=(
        "A replace fails if the columns of the source differ from those of the target",
        _take("replace"),
        "id INTEGER",
    ),
)
@fact(
    _UPDATE,
    Source.UNSTATED,
    insert_of_unknown_columns=(
        "An insert fails with a column that the target lacks",
        _take("insert"),
        "id INTEGER, name TEXT, other TEXT",
    ),
    insert_without_a_column=(
        "An insert fails without a column of the target",
        _take("insert"),
        "id INTEGER",
    ),
    insert_of_another_type=(
        "An insert fails with a column of another type",
        _take("insert"),
        "id TEXT, name TEXT",
    ),
    constant_of_another_type=(
        "Comparing a text with a number fails the job",
        _delete(_const("name", "eq", "integer", "1")),
        "id INTEGER",
    ),
)
def test_failure_of_a_batch(workspace: Workspace, *, claim: str, action: Any, columns: str):
    """{claim}."""
    _fails(workspace, [action], table_file(columns))


@fact(_UPDATE, Source.UNSTATED)
def test_update_by_an_ambiguous_source(workspace: Workspace):
    """An update fails if several source rows match one row."""
    _fails(workspace, [_take("update", _BY_ID)], rows_file((1, "a"), (1, "b")))


@fact(_UPDATE, Source.UNSTATED)
def test_payload_that_is_no_hyper_file(workspace: Workspace):
    """An unreadable payload fails the job."""
    _fails(workspace, [_take("insert")], b"this is no .hyper file")


@fact(_UPDATE, Source.UNSTATED)
def test_order_of_collated_texts(workspace: Workspace):
    """Collated texts are compared by equality only; otherwise the job fails."""
    file = table_file('id INTEGER, name TEXT COLLATE "en_US"', "(1, 'one')")
    update = workspace.update(
        workspace.published(file), [_delete(_const("name", "gt", "string", "a"))]
    )
    assert workspace.finished(update)["job@finishCode"] == "1"


_NO_SOURCE = {"op": "has", "source-col": "name", "const": {"type": "string", "v": "x"}}


@fact(_UPDATE, Source.SCHEMA, no_actions=("A batch without an action", None))
@fact(
    _UPDATE,
    Source.UNSTATED,
    unknown_action=("An unknown action", _delete(action="merge")),
    delete_without_a_condition=(
        "A delete without a condition",
        {"action": "delete", "target-table": "Extract"},
    ),
    conditions_without_arguments=(
        "A condition `and` without arguments",
        _delete({"op": "and", "args": []}),
    ),
    upsert_by_more_than_keys=(
        "An upsert by a comparison of order",
        _take("upsert", _BY_ID | {"op": "gt"}),
    ),
    unknown_key=("An unknown key", _delete(colour="red")),
    insert_with_a_condition=("An insert with a condition", _take("insert", condition=True)),
    operator_in_signs=(
        "An operator that is written as a sign",
        _delete(_const("id", "<", "integer", "1")),
    ),
    two_columns_and_a_constant=(
        "Comparing two columns and a constant",
        _take("update", _BY_ID | _const("id", "eq", "integer", "1")),
    ),
    time_without_a_zone=(
        "A time without a zone",
        _delete(_const("id", "lt", "datetime", "2026-01-31T10:00:00")),
    ),
    column_of_no_source=("A condition on a missing source", _delete(_NO_SOURCE)),
)
def test_refused_batch(workspace: Workspace, *, what: str, action: dict[str, Any] | None):
    """{what} is refused with 400000."""
    payload = rows_file() if "source-table" in (action or {}) else None
    batch = [action] if action else []
    workspace.update(workspace.shared, batch, payload).is_refused("400000")


@fact(_UPDATE, Source.UNSTATED)
def test_insert_without_an_upload(workspace: Workspace):
    """A batch with a source but no upload is refused with 400000."""
    workspace.update(workspace.shared, [_take("insert")]).is_refused("400000")


@fact(_UPDATE, Source.UNSTATED)
def test_update_without_a_request_id(workspace: Workspace):
    """An update without a RequestID is refused with 400000."""
    batch = '{"actions":[{"action":"delete","target-table":"NoSuchTable","condition":true}]}'
    headers = {"Content-Type": "application/json"}
    path = f"{workspace.shared.path}/data"
    workspace.ask("PATCH", path, batch, headers=headers).is_refused("400000")


@fact(_UPDATE, Source.UNSTATED)
def test_update_of_an_unknown_datasource(session: Session):
    """An update of an unknown data source is refused with 404004."""
    session.needs_version("3.12")
    headers = {"Content-Type": "application/json", "RequestID": str(uuid4())}
    batch = '{"actions":[{"action":"delete","target-table":"t","condition":true}]}'
    path = f"datasources/{uuid4()}/data"
    session.ask("PATCH", path, batch, headers=headers).is_refused("404004")


@fact(_CONNECTION, Source.UNSTATED)
def test_update_of_an_unknown_connection(workspace: Workspace):
    """An unknown connection is refused with 404020."""
    batch = [_delete(**{"target-table": "NoSuchTable"})]
    workspace.update(workspace.shared, batch, connection=str(uuid4())).is_refused("404020")


@fact(_UPDATE, Source.REFERENCE)
def test_update_of_an_extract(workspace: Workspace):
    """Only live .hyper files can be updated: an update of an extract is refused with 404008."""
    workspace.update(extract(workspace), [_delete()]).is_refused("404008")


# This many publishes keep the queue busy while a fact sends two updates.
_QUEUE = 8


def _while_busy(workspace: Workspace, *request_ids: str) -> list[Answer]:
    """Send updates of one data source while the queue is busy, and return their answers."""
    target = workspace.published()
    for _ in range(_QUEUE):
        workspace.publish(query="asJob=true").succeeds(202)
    return [workspace.update(target, [_delete()], request_id=each) for each in request_ids]


def _overlap(workspace: Workspace, first: Answer, second: Answer) -> bool:
    """Return whether the second request was sent before the first job ended."""
    if second.status != 202:
        return True
    ended, sent = workspace.finished(first)["job@completedAt"], second["job@createdAt"]
    return ended >= sent


@fact(_UPDATE, Source.REFERENCE)
def test_second_update(workspace: Workspace):
    """While an update waits or runs, another update is refused with 409094."""
    first, second = _while_busy(workspace, *(secrets.token_hex(16) for _ in range(2)))
    if not _overlap(workspace, first, second):
        pytest.skip("the job was too fast")
    second.is_refused("409094")


@fact(_UPDATE, Source.UNSTATED)
def test_repeated_request_while_its_job_waits(workspace: Workspace):
    """A known RequestID whose job is queued is answered with this job, not with 409094."""
    first, second = _while_busy(workspace, *[secrets.token_hex(16)] * 2)
    assert second.succeeds(202)["job@id"] == first["job@id"]


def _twice(
    workspace: Workspace, first: Batch, second: Batch, payload: bytes | None = None
) -> tuple[Answer, Answer, Published]:
    """Send two batches with the same RequestID to a new data source; wait for the first job."""
    target, request_id = workspace.published(), secrets.token_hex(16)
    job = workspace.finished(workspace.update(target, first, payload, request_id=request_id))
    return job, workspace.update(target, second, payload, request_id=request_id), target


@pytest.mark.slow
@fact(_UPDATE, Source.UPDATE_GUIDE)
def test_repeated_request_changes_nothing(workspace: Workspace):
    """A request with a known RequestID changes nothing, even if its batch is different."""
    batch = [_take("insert")]
    for again in (batch, [_delete()]):
        _, second, target = _twice(workspace, batch, again, rows_file(_TWO))
        if second.get("job@id"):
            workspace.finished(second)
        assert workspace.rows(target) == [*ROWS, _TWO]


@fact(_UPDATE, Source.UNSTATED)
def test_repeated_request_is_answered_alike(workspace: Workspace):
    """A known RequestID is answered with the job of the first request."""
    first, second, _ = _twice(workspace, [_delete()], [_delete()])
    assert second.succeeds(202)["job@id"] == first["job@id"]


@fact(_UPDATE, Source.UNSTATED)
def test_repeated_request_after_a_failure(workspace: Workspace):
    """A known RequestID is ignored even if its first request failed."""
    wrong = _delete(**{"target-table": "NoSuchTable"})
    _, second, target = _twice(workspace, [wrong], [_delete()])
    assert workspace.finished(second)["job@finishCode"] == "1"
    assert workspace.rows(target) == [*ROWS]


@fact(_UPDATE, Source.UNSTATED)
def test_repeated_request_for_another_target(workspace: Workspace):
    """A known RequestID is ignored even if the request is for another data source."""
    first, second, request_id = workspace.published(), workspace.published(), secrets.token_hex(16)
    for target in (first, second):
        workspace.finished(workspace.update(target, [_delete()], request_id=request_id))
    assert (workspace.rows(first), workspace.rows(second)) == ([], [*ROWS])


@fact(_UPDATE, Source.UNSTATED)
def test_repeated_request_keeps_its_upload(workspace: Workspace):
    """A request with a known RequestID does not use up its upload."""
    target, request_id = workspace.published(), secrets.token_hex(16)
    workspace.finished(workspace.update(target, [_delete()], request_id=request_id))
    upload, batch = workspace.upload(rows_file(_ONE)), [_take("insert")]
    workspace.update(target, batch, upload=upload, request_id=request_id).succeeds(202)
    workspace.finished(workspace.update(target, batch, upload=upload))
    assert workspace.rows(target) == [_ONE]
