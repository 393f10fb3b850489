"""Action batches that are refused, that fail, and that are sent twice."""

import secrets
from collections.abc import Mapping
from uuid import uuid4

from tableau_sandbox.facts.answer import attribute, expect, expect_that
from tableau_sandbox.facts.fact import writes
from tableau_sandbox.facts.files import hyper_file, rows_file, table_file
from tableau_sandbox.facts.playground import ROWS, Playground
from tableau_sandbox.facts.sources import (
    LIVE_MESSAGES,
    NOBODY,
    SCHEMA,
    TSC,
    UPDATE_GUIDE,
)

_UPDATE = "PATCH sites/{site}/datasources/{datasource}/data"
_BY_ID = {"op": "eq", "target-col": "id", "source-col": "id"}
_INSERT = {"action": "insert", "target-table": "Extract", "source-table": "Extract"}
_CLEAR = {"action": "delete", "target-table": "Extract", "condition": True}
_JSON = {"Content-Type": "application/json"}


def _fails(play: Playground, *actions: Mapping[str, object], payload: bytes | None) -> str:
    """Send a batch that must fail and change nothing; return the notes of its job."""
    job = play.finished(play.update(play.shared, actions, payload))
    expect("1", attribute(job, "finishCode"))
    expect([*ROWS], play.rows(play.shared))
    return job.findtext("updateUploadedFileJob/notes") or ""


@writes(_UPDATE, LIVE_MESSAGES)
def unknown_source_table(play: Playground) -> None:
    """A source table that is not in the payload fails the job, with code 410012 in its notes."""
    batch = _INSERT | {"source-table": "NoSuchTable"}
    notes = _fails(play, batch, payload=rows_file())
    expect_that("errorCode=410012" in notes, "notes with errorCode=410012", notes)


@writes(_UPDATE, UPDATE_GUIDE)
def batches_are_atomic(play: Playground) -> None:
    """If an action fails, none of its batch takes effect."""
    _fails(play, _CLEAR, _INSERT | {"source-table": "NoSuchTable"}, payload=rows_file())


@writes(_UPDATE, UPDATE_GUIDE)
def names_in_another_case(play: Playground) -> None:
    """Names of tables distinguish the case of letters."""
    _fails(play, _CLEAR | {"target-table": "EXTRACT"}, payload=None)


@writes(_UPDATE, UPDATE_GUIDE)
def delete_with_columns_beyond_the_condition(play: Playground) -> None:
    """A delete fails if its source has columns that the condition does not name."""
    batch = _INSERT | {"action": "delete", "condition": _BY_ID}
    _fails(play, batch, payload=rows_file(ROWS[0]))


@writes(_UPDATE, UPDATE_GUIDE)
def replace_with_other_columns(play: Playground) -> None:
    """A replace fails if the columns of the source differ from those of the target."""
    payload = hyper_file('CREATE TABLE "Extract"."Extract" (id INTEGER)')
    _fails(play, _INSERT | {"action": "replace"}, payload=payload)


@writes(_UPDATE, NOBODY)
def insert_of_unknown_columns(play: Playground) -> None:
    """An insert fails if the source has a column that the target lacks."""
    payload = rows_file(columns="id INTEGER, other TEXT")
    _fails(play, _INSERT, payload=payload)


@writes(_UPDATE, NOBODY)
def insert_of_another_type(play: Playground) -> None:
    """An insert fails if a column has another type in the source."""
    payload = rows_file(columns="id TEXT, name TEXT")
    _fails(play, _INSERT, payload=payload)


@writes(_UPDATE, NOBODY)
def update_by_an_ambiguous_source(play: Playground) -> None:
    """An update fails if several rows of the source match one row."""
    batch = _INSERT | {"action": "update", "condition": _BY_ID}
    _fails(play, batch, payload=rows_file((1, "a"), (1, "b")))


@writes(_UPDATE, NOBODY)
def payload_that_is_no_hyper_file(play: Playground) -> None:
    """A payload that cannot be read fails the job."""
    _fails(play, _INSERT, payload=b"this is no .hyper file")


@writes(_UPDATE, SCHEMA)
def no_actions(play: Playground) -> None:
    """A batch without an action is refused with 400000."""
    play.update(play.shared, []).is_refused("400000")


@writes(_UPDATE, NOBODY)
def unknown_action(play: Playground) -> None:
    """An unknown action is refused with 400000."""
    play.update(play.shared, [_CLEAR | {"action": "merge"}]).is_refused("400000")


@writes(_UPDATE, NOBODY)
def delete_without_a_condition(play: Playground) -> None:
    """A delete without a condition is refused with 400000."""
    batch = {"action": "delete", "target-table": "Extract"}
    play.update(play.shared, [batch]).is_refused("400000")


@writes(_UPDATE, NOBODY)
def conditions_without_arguments(play: Playground) -> None:
    """A combined condition without parts is refused with 400000."""
    batch = _CLEAR | {"condition": {"op": "and", "args": []}}
    play.update(play.shared, [batch]).is_refused("400000")


@writes(_UPDATE, NOBODY)
def insert_without_an_upload(play: Playground) -> None:
    """A batch with a source, but without an upload, is refused with 400000."""
    play.update(play.shared, [_INSERT]).is_refused("400000")


@writes(_UPDATE, NOBODY)
def upsert_by_more_than_keys(play: Playground) -> None:
    """An upsert whose condition compares by order is refused with 400000."""
    batch = _INSERT | {"action": "upsert", "condition": _BY_ID | {"op": "gt"}}
    play.update(play.shared, [batch], rows_file()).is_refused("400000")


@writes(_UPDATE, NOBODY)
def update_without_a_request_id(play: Playground) -> None:
    """An update without the header RequestID is refused with 400000."""
    batch = '{"actions":[{"action":"delete","target-table":"NoSuchTable","condition":true}]}'
    path = f"{play.shared.path}/data"
    play.ask("PATCH", path, batch, headers=_JSON).is_refused("400000")


@writes("PATCH sites/{site}/datasources/{datasource}/connections/{connection}/data", NOBODY)
def update_of_an_unknown_connection(play: Playground) -> None:
    """A connection that does not exist is refused with 404020."""
    batch = [_CLEAR | {"target-table": "NoSuchTable"}]
    play.update(play.shared, batch, connection=str(uuid4())).is_refused("404020")


@writes(_UPDATE, UPDATE_GUIDE)
def repeated_request_changes_nothing(play: Playground) -> None:
    """A request with a known RequestID is not carried out again."""
    target, request_id = play.published(), secrets.token_hex(16)
    play.finished(play.update(target, [_INSERT], rows_file(ROWS[1]), request_id=request_id))
    second = play.update(target, [_INSERT], rows_file(ROWS[1]), request_id=request_id)
    if second.status == 202 and second.element("job").get("id"):
        play.finished(second)
    expect([*ROWS, ROWS[1]], play.rows(target))


@writes(_UPDATE, NOBODY)
def repeated_request_is_answered_alike(play: Playground) -> None:
    """A request with a known RequestID is answered with the job of the first one."""
    target, request_id = play.published(), secrets.token_hex(16)
    first, second = (
        play.update(target, [_CLEAR], request_id=request_id).succeeds(202) for _ in range(2)
    )
    expect(first.element("job").get("id"), second.element("job").get("id"))


@writes(_UPDATE, TSC)
def repeated_request_has_a_job(play: Playground) -> None:
    """A request with a known RequestID is answered with a job, which clients read."""
    target, request_id = play.published(), secrets.token_hex(16)
    for _ in range(2):
        answer = play.update(target, [_CLEAR], request_id=request_id).succeeds(202)
        attribute(answer.element("job"), "id")


@writes(_UPDATE, NOBODY)
def insert_without_a_column(play: Playground) -> None:
    """An insert fails if the source lacks a column of the target."""
    _fails(play, _INSERT, payload=hyper_file('CREATE TABLE "Extract"."Extract" (id INTEGER)'))


@writes(_UPDATE, NOBODY)
def constant_of_another_type(play: Playground) -> None:
    """A comparison of a text with a number fails the job."""
    constant = {"op": "eq", "target-col": "name", "const": {"type": "integer", "v": "1"}}
    _fails(play, _CLEAR | {"condition": constant}, payload=None)


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


@writes(_UPDATE, NOBODY)
def malformed_actions(play: Playground) -> None:
    """Unknown keys and operators, and conditions that make no sense, are refused with 400000."""
    for what, batch in _MALFORMED.items():
        payload = rows_file() if "source-table" in batch else None
        answer = play.update(play.shared, [batch], payload)
        expect_that(answer.status == 400, f"400 for {what}", answer)
        answer.is_refused("400000")


@writes(_UPDATE, UPDATE_GUIDE)
def repeated_request_with_other_actions(play: Playground) -> None:
    """A known RequestID is ignored, even if the request asks for something else."""
    target, request_id = play.published(), secrets.token_hex(16)
    play.finished(play.update(target, [_INSERT], rows_file(), request_id=request_id))
    second = play.update(target, [_CLEAR], request_id=request_id)
    if second.status == 202 and second.element("job").get("id"):
        play.finished(second)
    expect([*ROWS], play.rows(target))


@writes(_UPDATE, NOBODY)
def repeated_request_after_a_failure(play: Playground) -> None:
    """A known RequestID is ignored, even if the first request has failed."""
    target, request_id = play.published(), secrets.token_hex(16)
    wrong = _CLEAR | {"target-table": "NoSuchTable"}
    play.finished(play.update(target, [wrong], request_id=request_id))
    second = play.finished(play.update(target, [_CLEAR], request_id=request_id))
    expect(("1", [*ROWS]), (second.get("finishCode"), play.rows(target)))


@writes(_UPDATE, NOBODY)
def repeated_request_for_another_target(play: Playground) -> None:
    """A known RequestID is ignored for other data sources of the site, too."""
    first, second, request_id = play.published(), play.published(), secrets.token_hex(16)
    for target in (first, second):
        play.finished(play.update(target, [_CLEAR], request_id=request_id))
    expect(([], [*ROWS]), (play.rows(first), play.rows(second)))


@writes(_UPDATE, NOBODY)
def repeated_request_keeps_its_upload(play: Playground) -> None:
    """A request with a known RequestID does not use up its upload."""
    target, request_id = play.published(), secrets.token_hex(16)
    play.finished(play.update(target, [_CLEAR], request_id=request_id))
    path = f"{target.path}/data?uploadSessionId={play.upload(rows_file(ROWS[0]))}"
    play.send_batch(path, [_INSERT], request_id=request_id).succeeds(202)
    play.finished(play.send_batch(path, [_INSERT]))
    expect([ROWS[0]], play.rows(target))


@writes(_UPDATE, NOBODY)
def order_of_collated_texts(play: Playground) -> None:
    """Texts with a collation are compared by equality only; the job fails otherwise."""
    target = play.published(table_file('id INTEGER, name TEXT COLLATE "en_US"', "(1, 'one')"))
    constant = {"op": "gt", "target-col": "name", "const": {"type": "string", "v": "a"}}
    job = play.finished(play.update(target, [_CLEAR | {"condition": constant}]))
    expect("1", attribute(job, "finishCode"))
