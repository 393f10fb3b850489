"""Action batches: the requests that the builder makes, its refusals, and the rows after a batch."""

import json
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from enum import IntEnum, StrEnum
from functools import reduce
from operator import or_
from pathlib import Path
from typing import Any, cast
from uuid import uuid4
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import pytest
import tableauserverclient as tsc
from tableauhyperapi import Connection, CreateMode, TableName

from tableau_pipeline.actions.batch import (
    Batch,
    Condition,
    Delete,
    Insert,
    Replace,
    Upsert,
    all_of,
    source,
    target,
)
from tableau_pipeline.errors import BatchError, RefusedError
from tableau_pipeline.hyper.hyper_file import read_table
from tableau_pipeline.hyper.process import hyper_process
from tableau_pipeline.publishing.site import TableauSite
from tableau_pipeline_tests.refresh.support.pipeline import published_rows
from tableau_sandbox.simulation import apply_batch, parse_batch

Rows = list[tuple]

USERS = "SELECT * FROM (VALUES (1, 'ann'), (2, 'bob'), (3, 'cy')) AS t (user_id, name)"


def rows_after(
    batch: Batch,
    folder: Path,
    *,
    published: Mapping[str, str],
    payload: Mapping[str, str] | None = None,
) -> dict[str, Rows]:
    """Apply a batch to a new file, and return the rows of each published table.

    `published` and `payload` map the name of each table to the query that makes its rows.
    """
    before = file_of(folder / "before.hyper", published)
    source = None if payload is None else file_of(folder / "payload.hyper", payload)
    after = folder / "after.hyper"
    apply_batch(before, source, parse_batch(batch.json().encode()), after)
    return {name: _rows(after, name) for name in published}


def file_of(path: Path, tables: Mapping[str, str]) -> Path:
    """Write a `.hyper` file whose tables, in the schema "Extract", come from queries."""
    with Connection(hyper_process().endpoint, path, CreateMode.CREATE_AND_REPLACE) as connection:
        connection.execute_command('CREATE SCHEMA "Extract"')
        for name, query in tables.items():
            connection.execute_command(f'CREATE TABLE "Extract"."{name}" AS ({query})')
    return path


def _rows(path: Path, name: str) -> Rows:
    table = read_table(hyper_process(), path, TableName("Extract", name))
    return sorted(tuple(row.values()) for row in table.to_pylist())


ON_ID = target("id") == source("id")


a, b, ANY = target("a"), source("b"), cast("Any", None)


def where(condition: Condition) -> Any:
    """The JSON that a delete sends for this condition."""
    batch = Batch([Delete(target="t", source="s", where=condition)])
    return json.loads(batch.json())["actions"][0]["condition"]


def const(type_: str, value: str | None, op: str = "eq") -> dict[str, Any]:
    return {"op": op, "target-col": "a", "const": {"type": type_, "v": value}}


@pytest.mark.parametrize(
    ("condition", "op"),
    [
        (a == b, "eq"),
        (b == a, "eq"),
        (a != b, "neq"),
        (a < b, "lt"),
        (b < a, "gt"),
        (a <= b, "lte"),
        (b <= a, "gte"),
        (a > b, "gt"),
        (b > a, "lt"),
        (a >= b, "gte"),
        (b >= a, "lte"),
        (a.is_(b), "is"),
        (b.is_(a), "is"),
    ],
)
def test_columns_compared(condition: Condition, op: str):
    # Prevents: `source < target` chooses the rows of `target < source`.
    assert where(condition) == {"op": op, "target-col": "a", "source-col": "b"}


class Level(IntEnum):
    HIGH = 3


class Colour(StrEnum):
    RED = "red"


PARIS = ZoneInfo("Europe/Paris")


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        (a == True, const("boolean", "true")),  # noqa: E712
        (a != False, const("boolean", "false", "neq")),  # noqa: E712
        (a == 5, const("integer", "5")),
        (5 < a, const("integer", "5", "gt")),  # noqa: SIM300
        (a == -(1 << 63), const("integer", "-9223372036854775808")),
        (a == Level.HIGH, const("integer", "3")),
        (a <= 0.1, const("double", "0.1", "lte")),
        (a == 5.0, const("double", "5.0")),
        (a == np.float64(1e300), const("double", "1e+300")),
        (a == "5", const("string", "5")),
        (a == Colour.RED, const("string", "red")),
        (a == "ß'\"\\\n", const("string", "ß'\"\\\n")),
        (a.is_("x"), const("string", "x", "is")),
        (a.is_null(), const("string", None, "is")),
        (a == datetime(2020, 1, 1, 12, tzinfo=UTC), const("datetime", "2020-01-01T12:00:00.000Z")),
        (
            a < datetime(2020, 1, 1, 0, 0, 0, 7000, timezone(timedelta(hours=1))),
            const("datetime", "2019-12-31T23:00:00.007Z", "lt"),
        ),
        (
            a == datetime(2020, 10, 25, 2, 30, fold=1, tzinfo=PARIS),
            const("datetime", "2020-10-25T01:30:00.000Z"),
        ),
        (a == datetime(20, 1, 1, tzinfo=UTC), const("datetime", "0020-01-01T00:00:00.000Z")),
        (
            source("a") == 5,
            {"op": "eq", "source-col": "a", "const": const("integer", "5")["const"]},
        ),
    ],
)
def test_constants(condition: Condition, expected: dict[str, Any]):
    # Prevents: a constant reaches the server with another value or type.
    assert where(condition) == expected


def test_conditions_nest():
    # Prevents: the builder loses parentheses, so that a batch deletes other rows.
    one, two, three = a == 1, a == 2, a == 3
    first, second, third = where(one), where(two), where(three)
    both = {"op": "and", "args": [first, second]}
    either = {"op": "or", "args": [second, third]}
    assert where((one & two) | three) == {"op": "or", "args": [both, third]}
    assert where(one & (two | three)) == {"op": "and", "args": [first, either]}
    assert where(one & two & three) == where(all_of([one, two, three]))
    assert where(one & two & three) == {"op": "and", "args": [first, second, third]}
    assert where(all_of([one])) == first


def test_as_long_as_servers_bear():
    # Prevents: a condition with too many terms crashes the server, or an allowed one is refused.
    terms = [target("a") == number for number in range(5_000)]
    assert len(where(reduce(or_, terms))["args"]) == 5_000
    with pytest.raises(BatchError, match=r"5,001 terms .* small table of the payload"):
        all_of([*terms, target("a") == 0])


def test_batches_are_values():
    # Prevents: a checked batch changes later, or two equal batches compare as different.
    actions = [Insert(target="t", source="s"), Delete(target="t", where=target("a") == 1)]
    batch = Batch(actions)
    actions.pop()
    assert batch.actions == (Insert(target="t", source="s"), batch.actions[1])
    assert batch == Batch(batch.actions)
    assert hash(batch) == hash(Batch(batch.actions))
    assert batch != Batch([*batch.actions[:1], Delete(target="t", where=target("a") == 2)])


def test_refusals_stop_a_refresh():
    # Prevents: a refresh retries a refused batch, or `except ValueError` misses the refusal.
    assert issubclass(BatchError, RefusedError)
    assert issubclass(BatchError, ValueError)


@pytest.mark.parametrize(
    ("build", "reason"),
    [
        (lambda: Decimal("0.1") == a, r'target\("a"\): Decimal.* put .* small table'),
        (lambda: date(2020, 1, 1) < a, r"datetime.date\(2020, 1, 1\) is not a constant"),
        (lambda: a < datetime(2020, 1, 1), "not a constant: .* has a time zone"),
        (lambda: a < datetime(2020, 1, 1, 0, 0, 0, 1, UTC), "not a constant: .*milliseconds"),
        (lambda: a < pd.Timestamp(1_000_001, tz="UTC"), "not a constant: .*milliseconds"),
        (lambda: a < datetime.min.replace(tzinfo=timezone(timedelta(hours=1))), "1 to 9999"),
        (lambda: a == float("nan"), "nan is not a constant: .*a finite float"),
        (lambda: a == float("inf"), "inf is not a constant"),
        (lambda: a == 1 << 63, "9223372036854775808 is not a constant: .*64 bits"),
        (lambda: a == "a\0b", r"constant must be .* without U\+0000"),
        (lambda: a == "\ud800", "constant must be Unicode text"),
        (lambda: a == b"x", "b'x' is not a constant: use a bool, an int"),
        (lambda: a == np.int64(1), "is not a constant: use a bool, an int"),
        (lambda: a == None, r"\.is_null\(\)"),  # noqa: E711
        (lambda: a == target("b"), r'target\("a"\) cannot be compared with target\("b"\)'),
        (lambda: source("a") < source("b"), r'source\("a"\) cannot be compared with source'),
        (lambda: target(cast("Any", 5)), "the target column must be Unicode text .* not 5"),
        (lambda: ON_ID and ON_ID, "by & and |"),
        (lambda: not ON_ID, "by & and |"),
        (lambda: 1 < a < 5, r'target\("a"\) > 1 is neither true nor false'),
        (lambda: ON_ID | cast("Any", True), "'or' combines comparisons, not True"),
        (lambda: all_of([]), "'and' needs a condition"),
        (
            lambda: Batch([Insert(target=ANY, source="s")]),
            "the target table must be Unicode text",
        ),
        (lambda: Batch([Delete(target="t", where=cast("Any", True))]), "True is not a condition"),
        (lambda: Batch([Delete(target="t", where=ANY)]), "None is not a condition"),
        (lambda: Batch([]), "a batch needs at least one action"),
    ],
)
def test_refused_at_once(build: Callable[[], object], reason: str):
    # Prevents: the server runs a batch that differs from what its author wrote.
    with pytest.raises(BatchError, match=reason):
        build()


def test_multi_table_append(tmp_path: Path):
    # Prevents: an append puts the rows of one table into another table.
    customers = Insert(target=TableName("Extract", "customers"), source="new_customers")
    items = Insert(target=TableName("Extract", "items"), source="new_items")
    after = rows_after(
        Batch([customers, items]),
        tmp_path,
        published={"customers": "SELECT 1 AS id", "items": "SELECT 10 AS id"},
        payload={"new_customers": "SELECT 2 AS id", "new_items": "SELECT 20 AS id"},
    )
    assert after == {"customers": [(1,), (2,)], "items": [(10,), (20,)]}


STAR = {
    "marketing_campaigns": "SELECT 1 AS id, 'old' AS name",
    "ad_customers": "SELECT 5 AS id",
    "ad_views": "SELECT 100 AS view, 1 AS campaign, 5 AS customer",
}
CAMPAIGNS, NEW_CUSTOMER = "SELECT 'new' AS name, 2 AS id", "SELECT 6 AS id"
NEW_VIEW = "SELECT 101 AS view, 1 AS campaign, 5 AS customer"


def test_incremental_star(tmp_path: Path):
    # Prevents: a replaced dimension keeps old rows, or an appended fact table loses old rows.
    batch = Batch(
        [
            Replace(target="marketing_campaigns", source="campaigns"),
            Replace(target="ad_customers", source="ad_customers"),
            Insert(target="ad_views", source="new_ad_views"),
        ]
    )
    payload = {"campaigns": CAMPAIGNS, "ad_customers": NEW_CUSTOMER, "new_ad_views": NEW_VIEW}
    assert rows_after(batch, tmp_path, published=STAR, payload=payload) == {
        "marketing_campaigns": [(2, "new")],
        "ad_customers": [(6,)],
        "ad_views": [(100, 1, 5), (101, 1, 5)],
    }


def test_windowed_extract(tmp_path: Path):
    # Prevents: a rolling window keeps rows before the cutoff, or loses the row at the cutoff.
    cutoff = datetime(2018, 12, 6, 19, 21, 12, 120_000, UTC)
    batch = Batch(
        [
            Delete(target="extract", where=target("creation_date") < cutoff),
            Insert(target="extract", source="extract_increment"),
        ]
    )
    edge, too_old, later = (
        f"SELECT TIMESTAMP '2018-12-06 19:21:{seconds}' AS creation_date"
        for seconds in ("12.12", "12.119999", "13")
    )
    after = rows_after(
        batch,
        tmp_path,
        published={"extract": f"{edge} UNION ALL {too_old}"},
        payload={"extract_increment": later},
    )
    kept = cutoff.replace(tzinfo=None)
    assert after == {"extract": [(kept,), (kept.replace(second=13, microsecond=0),)]}


def test_change_data_capture(tmp_path: Path):
    # Prevents: a change affects rows with another key, or a deletion has no effect.
    # Tableau's guide uses an update here. The upsert of this batch has the same effect on
    # existing rows.
    same_user = target("user_id") == source("user_id")
    batch = Batch(
        [
            Insert(target="extract", source="new_tuples"),
            Upsert(target="extract", source="modified_tuples", where=same_user),
            Delete(target="extract", source="deleted_tuples", where=same_user),
        ]
    )
    after = rows_after(
        batch,
        tmp_path,
        published={"extract": USERS},
        payload={
            "new_tuples": "SELECT 4 AS user_id, 'dee' AS name",
            "modified_tuples": "SELECT 1 AS user_id, 'anna' AS name",
            "deleted_tuples": "SELECT 2 AS user_id",
        },
    )
    assert after == {"extract": [(1, "anna"), (3, "cy"), (4, "dee")]}


def test_upsert(tmp_path: Path):
    # Prevents: an upsert only updates, or only inserts.
    same_user = target("user_id") == source("user_id")
    batch = Batch([Upsert(target="users", source="s", where=same_user)])
    changed = {"s": "SELECT * FROM (VALUES ('bo', 2), ('dee', 4)) AS t (name, user_id)"}
    after = rows_after(batch, tmp_path, published={"users": USERS}, payload=changed)
    assert after == {"users": [(1, "ann"), (2, "bo"), (3, "cy"), (4, "dee")]}


@pytest.mark.parametrize(
    "where",
    [
        target("user_id") == 2,
        (target("user_id") > 1) & (target("name").is_null() | (target("name") <= "bob")),
    ],
)
def test_deletes_without_a_payload(tmp_path: Path, where: Condition):
    # Prevents: a delete removes rows that its condition does not match.
    batch = Batch([Delete(target="users", where=where)])
    left = [(1, "ann"), (3, "cy")]
    assert rows_after(batch, tmp_path, published={"users": USERS}) == {"users": left}


def test_sent_by_the_client_library(tmp_path: Path, eyes: TableauSite):
    # Prevents: the Tableau Server Client rejects the actions that the builder makes.
    server = eyes.tsc
    item = tsc.DatasourceItem(name=f"Users {uuid4().hex[:8]}")
    file = file_of(tmp_path / "users.hyper", {"Extract": USERS})
    users = server.datasources.publish(item, file, "CreateNew")
    changed = {"Extract": "SELECT 4 AS user_id, 'ß\"' AS name"}
    payload = file_of(tmp_path / "changed.hyper", changed)
    batch = Batch(
        [
            Delete(target="Extract", where=target("name") == "bob"),
            Upsert(
                target=TableName("Extract", "Extract"),
                source=TableName("Extract", "Extract"),
                where=target("user_id") == source("user_id"),
            ),
        ]
    )
    job = server.datasources.update_hyper_data(
        users, request_id=str(uuid4()), actions=batch.wire_actions(), payload=payload
    )
    server.jobs.wait_for_job(job)
    rows = sorted(tuple(row.values()) for row in published_rows(eyes, users.id).to_pylist())
    assert rows == [(1, "ann"), (3, "cy"), (4, 'ß"')]
