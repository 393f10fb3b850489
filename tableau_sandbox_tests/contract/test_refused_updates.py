"""Action batches that are refused, that fail, and that are sent twice."""

import secrets
from collections.abc import Mapping
from uuid import uuid4

from tableau_sandbox_tests.contract.answer import attribute
from tableau_sandbox_tests.contract.files import hyper_file, rows_file, table_file
from tableau_sandbox_tests.contract.sources import (
    LIVE_MESSAGES,
    NOBODY,
    SCHEMA,
    TSC,
    UPDATE_GUIDE,
    fact,
)
from tableau_sandbox_tests.contract.workspace import ROWS, Workspace

_UPDATE = "PATCH sites/{site}/datasources/{datasource}/data"
_BY_ID = {"op": "eq", "target-col": "id", "source-col": "id"}
_INSERT = {"action": "insert", "target-table": "Extract", "source-table": "Extract"}
_CLEAR = {"action": "delete", "target-table": "Extract", "condition": True}
_JSON = {"Content-Type": "application/json"}


def _fails(workspace: Workspace, *actions: Mapping[str, object], payload: bytes | None) -> str:
    """Send a batch that must fail and change nothing; return the notes of its job."""
    job = workspace.finished(workspace.update(workspace.shared, actions, payload))
    assert attribute(job, "finishCode") == "1"
    assert workspace.rows(workspace.shared) == [*ROWS]
    return job.findtext("updateUploadedFileJob/notes") or ""


@fact(_UPDATE, LIVE_MESSAGES)
def test_unknown_source_table(workspace: Workspace):
    """A source table that is not in the payload fails the job, with code 410012 in its notes."""
    batch = _INSERT | {"source-table": "NoSuchTable"}
    notes = _fails(workspace, batch, payload=rows_file())
    assert "errorCode=410012" in notes, notes


@fact(_UPDATE, UPDATE_GUIDE)
def test_batches_are_atomic(workspace: Workspace):
    """If an action fails, none of its batch takes effect."""
    _fails(workspace, _CLEAR, _INSERT | {"source-table": "NoSuchTable"}, payload=rows_file())


@fact(_UPDATE, UPDATE_GUIDE)
def test_names_in_another_case(workspace: Workspace):
    """Names of tables distinguish the case of letters."""
    _fails(workspace, _CLEAR | {"target-table": "EXTRACT"}, payload=None)


@fact(_UPDATE, UPDATE_GUIDE)
def test_delete_with_columns_beyond_the_condition(workspace: Workspace):
    """A delete fails if its source has columns that the condition does not name."""
    batch = _INSERT | {"action": "delete", "condition": _BY_ID}
    _fails(workspace, batch, payload=rows_file(ROWS[0]))


@fact(_UPDATE, UPDATE_GUIDE)
def test_replace_with_other_columns(workspace: Workspace):
    """A replace fails if the columns of the source differ from those of the target."""
    payload = hyper_file('CREATE TABLE "Extract"."Extract" (id INTEGER)')
    _fails(workspace, _INSERT | {"action": "replace"}, payload=payload)


@fact(_UPDATE, NOBODY)
def test_insert_of_unknown_columns(workspace: Workspace):
    """An insert fails if the source has a column that the target lacks."""
    payload = rows_file(columns="id INTEGER, other TEXT")
    _fails(workspace, _INSERT, payload=payload)


@fact(_UPDATE, NOBODY)
def test_insert_of_another_type(workspace: Workspace):
    """An insert fails if a column has another type in the source."""
    payload = rows_file(columns="id TEXT, name TEXT")
    _fails(workspace, _INSERT, payload=payload)


@fact(_UPDATE, NOBODY)
def test_update_by_an_ambiguous_source(workspace: Workspace):
    """An update fails if several rows of the source match one row."""
    batch = _INSERT | {"action": "update", "condition": _BY_ID}
    _fails(workspace, batch, payload=rows_file((1, "a"), (1, "b")))


@fact(_UPDATE, NOBODY)
def test_payload_that_is_no_hyper_file(workspace: Workspace):
    """A payload that cannot be read fails the job."""
    _fails(workspace, _INSERT, payload=b"this is no .hyper file")


@fact(_UPDATE, SCHEMA)
def test_no_actions(workspace: Workspace):
    """A batch without an action is refused with 400000."""
    workspace.update(workspace.shared, []).is_refused("400000")


@fact(_UPDATE, NOBODY)
def test_unknown_action(workspace: Workspace):
    """An unknown action is refused with 400000."""
    workspace.update(workspace.shared, [_CLEAR | {"action": "merge"}]).is_refused("400000")


@fact(_UPDATE, NOBODY)
def test_delete_without_a_condition(workspace: Workspace):
    """A delete without a condition is refused with 400000."""
    batch = {"action": "delete", "target-table": "Extract"}
    workspace.update(workspace.shared, [batch]).is_refused("400000")


@fact(_UPDATE, NOBODY)
def test_conditions_without_arguments(workspace: Workspace):
    """A combined condition without parts is refused with 400000."""
    batch = _CLEAR | {"condition": {"op": "and", "args": []}}
    workspace.update(workspace.shared, [batch]).is_refused("400000")


@fact(_UPDATE, NOBODY)
def test_insert_without_an_upload(workspace: Workspace):
    """A batch with a source, but without an upload, is refused with 400000."""
    workspace.update(workspace.shared, [_INSERT]).is_refused("400000")


@fact(_UPDATE, NOBODY)
def test_upsert_by_more_than_keys(workspace: Workspace):
    """An upsert whose condition compares by order is refused with 400000."""
    batch = _INSERT | {"action": "upsert", "condition": _BY_ID | {"op": "gt"}}
    workspace.update(workspace.shared, [batch], rows_file()).is_refused("400000")


@fact(_UPDATE, NOBODY)
def test_update_without_a_request_id(workspace: Workspace):
    """An update without the header RequestID is refused with 400000."""
    batch = '{"actions":[{"action":"delete","target-table":"NoSuchTable","condition":true}]}'
    path = f"{workspace.shared.path}/data"
    workspace.ask("PATCH", path, batch, headers=_JSON).is_refused("400000")


@fact("PATCH sites/{site}/datasources/{datasource}/connections/{connection}/data", NOBODY)
def test_update_of_an_unknown_connection(workspace: Workspace):
    """A connection that does not exist is refused with 404020."""
    batch = [_CLEAR | {"target-table": "NoSuchTable"}]
    workspace.update(workspace.shared, batch, connection=str(uuid4())).is_refused("404020")


@fact(_UPDATE, UPDATE_GUIDE)
def test_repeated_request_changes_nothing(workspace: Workspace):
    """A request with a known RequestID is not carried out again."""
    target, request_id = workspace.published(), secrets.token_hex(16)
    workspace.finished(
        workspace.update(target, [_INSERT], rows_file(ROWS[1]), request_id=request_id)
    )
    second = workspace.update(target, [_INSERT], rows_file(ROWS[1]), request_id=request_id)
    if second.status == 202 and second.element("job").get("id"):
        workspace.finished(second)
    assert workspace.rows(target) == [*ROWS, ROWS[1]]


@fact(_UPDATE, NOBODY)
def test_repeated_request_is_answered_alike(workspace: Workspace):
    """A request with a known RequestID is answered with the job of the first one."""
    target, request_id = workspace.published(), secrets.token_hex(16)
    first, second = (
        workspace.update(target, [_CLEAR], request_id=request_id).succeeds(202) for _ in range(2)
    )
    assert second.element("job").get("id") == first.element("job").get("id")


@fact(_UPDATE, TSC)
def test_repeated_request_has_a_job(workspace: Workspace):
    """A request with a known RequestID is answered with a job, which clients read."""
    target, request_id = workspace.published(), secrets.token_hex(16)
    for _ in range(2):
        answer = workspace.update(target, [_CLEAR], request_id=request_id).succeeds(202)
        attribute(answer.element("job"), "id")


@fact(_UPDATE, NOBODY)
def test_insert_without_a_column(workspace: Workspace):
    """An insert fails if the source lacks a column of the target."""
    _fails(workspace, _INSERT, payload=hyper_file('CREATE TABLE "Extract"."Extract" (id INTEGER)'))


@fact(_UPDATE, NOBODY)
def test_constant_of_another_type(workspace: Workspace):
    """A comparison of a text with a number fails the job."""
    constant = {"op": "eq", "target-col": "name", "const": {"type": "integer", "v": "1"}}
    _fails(workspace, _CLEAR | {"condition": constant}, payload=None)


_MALFORMED: Mapping[str, Mapping[str, object]] = {
    "a key that no action has": _CLEAR | {"colour": "red"},
    "an insert with a condition": _INSERT | {"condition": True},
    "an operator in signs": _CLEAR
    | {"condition": {"op": "<", "target-col": "id", "const": {"type": "integer", "v": "1"}}},
    "two columns and a constant": _INSERT
    | {"action": "update", "condition": _BY_ID | {"const": {"type": "integer", "v": "1"}}},
    "a time without a zone": _CLEAR
    | {
        "condition": {
            "op": "lt",
            "target-col": "id",
            "const": {"type": "datetime", "v": "2026-01-31T10:00:00"},
        }
    },
    "a column of a source that there is not": _CLEAR
    | {"condition": {"op": "has", "source-col": "name", "const": {"type": "string", "v": "x"}}},
}


@fact(_UPDATE, NOBODY)
def test_malformed_actions(workspace: Workspace):
    """Unknown keys and operators, and conditions that make no sense, are refused with 400000."""
    for what, batch in _MALFORMED.items():
        payload = rows_file() if "source-table" in batch else None
        answer = workspace.update(workspace.shared, [batch], payload)
        assert answer.status == 400, f"{what}: {answer}"
        answer.is_refused("400000")


@fact(_UPDATE, UPDATE_GUIDE)
def test_repeated_request_with_other_actions(workspace: Workspace):
    """A known RequestID is ignored, even if the request asks for something else."""
    target, request_id = workspace.published(), secrets.token_hex(16)
    workspace.finished(workspace.update(target, [_INSERT], rows_file(), request_id=request_id))
    second = workspace.update(target, [_CLEAR], request_id=request_id)
    if second.status == 202 and second.element("job").get("id"):
        workspace.finished(second)
    assert workspace.rows(target) == [*ROWS]


@fact(_UPDATE, NOBODY)
def test_repeated_request_after_a_failure(workspace: Workspace):
    """A known RequestID is ignored, even if the first request has failed."""
    target, request_id = workspace.published(), secrets.token_hex(16)
    wrong = _CLEAR | {"target-table": "NoSuchTable"}
    workspace.finished(workspace.update(target, [wrong], request_id=request_id))
    second = workspace.finished(workspace.update(target, [_CLEAR], request_id=request_id))
    assert (second.get("finishCode"), workspace.rows(target)) == ("1", [*ROWS])


@fact(_UPDATE, NOBODY)
def test_repeated_request_for_another_target(workspace: Workspace):
    """A known RequestID is ignored for other data sources of the site, too."""
    first, second, request_id = workspace.published(), workspace.published(), secrets.token_hex(16)
    for target in (first, second):
        workspace.finished(workspace.update(target, [_CLEAR], request_id=request_id))
    assert (workspace.rows(first), workspace.rows(second)) == ([], [*ROWS])


@fact(_UPDATE, NOBODY)
def test_repeated_request_keeps_its_upload(workspace: Workspace):
    """A request with a known RequestID does not use up its upload."""
    target, request_id = workspace.published(), secrets.token_hex(16)
    workspace.finished(workspace.update(target, [_CLEAR], request_id=request_id))
    path = f"{target.path}/data?uploadSessionId={workspace.upload(rows_file(ROWS[0]))}"
    workspace.send_batch(path, [_INSERT], request_id=request_id).succeeds(202)
    workspace.finished(workspace.send_batch(path, [_INSERT]))
    assert workspace.rows(target) == [ROWS[0]]


@fact(_UPDATE, NOBODY)
def test_order_of_collated_texts(workspace: Workspace):
    """Texts with a collation are compared by equality only; the job fails otherwise."""
    target = workspace.published(table_file('id INTEGER, name TEXT COLLATE "en_US"', "(1, 'one')"))
    constant = {"op": "gt", "target-col": "name", "const": {"type": "string", "v": "a"}}
    job = workspace.finished(workspace.update(target, [_CLEAR | {"condition": constant}]))
    assert attribute(job, "finishCode") == "1"
