"""The examples of Tableau's guide to live-to-Hyper updates, and the rows that each leaves."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import tableauserverclient as tsc
from tableauhyperapi import TableName

from tableau_pipeline.actions.batch import (
    Batch,
    Delete,
    Insert,
    Replace,
    Upsert,
    source,
    target,
)
from tableau_pipeline.publishing.site import TableauSite
from tableau_pipeline_tests.actions.batches import (
    ON_USER,
    USERS,
    constant_test,
    file_of,
    rows_after,
    sent,
)
from tableau_pipeline_tests.refresh.support.pipeline import published_rows


def wire(batch: Batch) -> Any:
    return json.loads(batch.json())["actions"]


def test_multi_table_append(tmp_path: Path):
    # Prevents: the rows of one table land in the other one.
    batch = Batch(
        [
            Insert(target=TableName("Extract", "customers"), source="new_customers"),
            Insert(target=TableName("Extract", "items"), source="new_items"),
        ]
    )
    assert wire(batch) == [
        sent("insert", "new_customers", "customers", **{"target-schema": "Extract"}),
        sent("insert", "new_items", "items", **{"target-schema": "Extract"}),
    ]
    after = rows_after(
        batch,
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
    # Prevents: dimensions keep rows that are gone, or the facts lose their old ones.
    batch = Batch(
        [
            Replace(target="marketing_campaigns", source="campaigns"),
            Replace(target="ad_customers", source="ad_customers"),
            Insert(target="ad_views", source="new_ad_views"),
        ]
    )
    assert wire(batch) == [
        sent("replace", "campaigns", "marketing_campaigns"),
        sent("replace", "ad_customers", "ad_customers"),
        sent("insert", "new_ad_views", "ad_views"),
    ]
    payload = {"campaigns": CAMPAIGNS, "ad_customers": NEW_CUSTOMER, "new_ad_views": NEW_VIEW}
    assert rows_after(batch, tmp_path, published=STAR, payload=payload) == {
        "marketing_campaigns": [(2, "new")],
        "ad_customers": [(6,)],
        "ad_views": [(100, 1, 5), (101, 1, 5)],
    }


def test_windowed_extract(tmp_path: Path):
    # Prevents: a rolling window keeps what is too old, or loses the row on its edge.
    cutoff = datetime(2018, 12, 6, 19, 21, 12, 120_000, UTC)
    batch = Batch(
        [
            Delete(target="extract", where=target("creation_date") < cutoff),
            Insert(target="extract", source="extract_increment"),
        ]
    )
    older = constant_test("lt", "creation_date", "datetime", "2018-12-06T19:21:12.120Z")
    assert wire(batch) == [
        {"action": "delete", "target-table": "extract", "condition": older},
        sent("insert", "extract_increment", "extract"),
    ]
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
    # Prevents: a change is applied to other rows than those of its key, or a deletion is not.
    # The guide updates; an upsert of rows that are there does the same.
    same_user = target("user_id") == source("user_id")
    batch = Batch(
        [
            Insert(target="extract", source="new_tuples"),
            Upsert(target="extract", source="modified_tuples", where=same_user),
            Delete(target="extract", source="deleted_tuples", where=same_user),
        ]
    )
    assert wire(batch) == [
        sent("insert", "new_tuples", "extract"),
        sent("upsert", "modified_tuples", "extract", condition=ON_USER),
        sent("delete", "deleted_tuples", "extract", condition=ON_USER),
    ]
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
    assert wire(batch) == [sent("upsert", "s", "users", condition=ON_USER)]
    changed = {"s": "SELECT * FROM (VALUES ('bo', 2), ('dee', 4)) AS t (name, user_id)"}
    after = rows_after(batch, tmp_path, published={"users": USERS}, payload=changed)
    assert after == {"users": [(1, "ann"), (2, "bo"), (3, "cy"), (4, "dee")]}


NOT_BOB = [(1, "ann"), (3, "cy")]


@pytest.mark.parametrize(
    ("where", "condition", "left"),
    [
        (target("user_id") == 2, constant_test("eq", "user_id", "integer", "2"), NOT_BOB),
        (
            (target("user_id") > 1) & (target("name").is_null() | (target("name") <= "bob")),
            {
                "op": "and",
                "args": [
                    constant_test("gt", "user_id", "integer", "1"),
                    {
                        "op": "or",
                        "args": [
                            constant_test("is", "name", "string", None),
                            constant_test("lte", "name", "string", "bob"),
                        ],
                    },
                ],
            },
            NOT_BOB,
        ),
    ],
)
def test_deletes_without_a_payload(tmp_path: Path, where: Any, condition: Any, left: list):
    # Prevents: rows are chosen by another condition than the one written.
    batch = Batch([Delete(target="users", where=where)])
    assert wire(batch) == [{"action": "delete", "target-table": "users", "condition": condition}]
    assert rows_after(batch, tmp_path, published={"users": USERS}) == {"users": left}


def test_sent_by_the_client_library(tmp_path: Path, eyes: TableauSite):
    # Prevents: what the builder makes is not what the Tableau Server Client takes.
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
