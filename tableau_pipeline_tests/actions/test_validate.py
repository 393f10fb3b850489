from typing import Any

import pytest
from tableauhyperapi import TableName

from tableau_pipeline.actions.batch import (
    Action,
    Batch,
    Delete,
    Insert,
    Replace,
    Update,
    Upsert,
    always,
    any_of,
    batch_problems,
    source,
    target,
)

T, S = TableName("Extract", "Extract"), TableName("public", "s")
USERS = {"id": "BIGINT", "name": "TEXT", "price": "NUMERIC(10,2)"}
ON_ID = target("id") == source("id")


def problems(action: Action, columns: dict[str, str], **more: Any) -> list[str]:
    tables = {"target": {T: USERS}, "source": {S: columns}} | more
    return batch_problems(Batch([action]), **tables)


def insert(**more: Any) -> Insert:
    return Insert(**({"target": "Extract", "source": "s"} | more))


def update(where: Any = ON_ID) -> Update:
    return Update(target=T, source=S, where=where)


@pytest.mark.parametrize(
    ("action", "columns", "expected"),
    [
        (
            insert(),
            {"id": "BIGINT"},
            'Action 1 (insert): the source table "public"."s" lacks "name" (TEXT), "price" '
            '(NUMERIC(10,2)) of the target table "Extract"."Extract": add it to the payload, NULL '
            "where there is no value.",
        ),
        (
            Upsert(target=T, source=S, where=ON_ID),
            {**USERS, "Name": "TEXT"},
            'Action 1 (upsert): the source table "public"."s" has "Name" (TEXT), which the target '
            'table "Extract"."Extract" lacks: remove it from the payload, or publish a file that '
            "has it.",
        ),
        (
            Replace(target=T, source=S),
            {**USERS, "price": "NUMERIC(10,3)"},
            'Action 1 (replace): column "price" is NUMERIC(10,2) in the target table '
            '"Extract"."Extract" and NUMERIC(10,3) in the source table "public"."s": cast it to '
            "NUMERIC(10,2) in the payload.",
        ),
        (
            update(target("id") == source("key")),
            {"key": "BIGINT"},
            'Action 1 (update): the source table "public"."s" has no column of the target table '
            '"Extract"."Extract", so there is nothing to set: use the same column names.',
        ),
        (
            Delete(target=T, source=S, where=ON_ID),
            USERS,
            'Action 1 (delete): the source table "public"."s" has "name" (TEXT), "price" '
            "(NUMERIC(10,2)), which the condition does not use: remove it from the payload, "
            'or compare it with a column of the target table "Extract"."Extract".',
        ),
        (
            update(),
            {"id": "INTEGER"},
            'Action 1 (update): target("id") == source("id"): "id" of the target table '
            '"Extract"."Extract" is BIGINT, "id" of the source table "public"."s" is INTEGER; cast '
            "the column in the payload.",
        ),
        (
            update(ON_ID & (target("price") == 5)),
            {"id": "BIGINT", "name": "TEXT"},
            'Action 1 (update): target("price") == 5: "price" of the target table '
            '"Extract"."Extract" is NUMERIC(10,2), the constant of type integer; write it as '
            "float, such as 5.0.",
        ),
        (
            update(ON_ID & (source("b") == "x")),
            {"id": "BIGINT", "name": "TEXT", "b": "BYTES"},
            'Action 1 (update): source("b") == \'x\': "b" of the source table "public"."s" is '
            "BYTES, the constant of type string; put the values into a small table of the payload, "
            "and compare with its column.",
        ),
        (
            update(ON_ID & (source("ci") < "x")),
            {"id": "BIGINT", "name": "TEXT", "ci": 'TEXT COLLATE "en_US_CI"'},
            'Action 1 (update): source("ci") < \'x\': "ci" of the source table "public"."s" is '
            'TEXT COLLATE "en_US_CI", which supports ==, !=, is: use another column or operator.',
        ),
        (
            update(target("nmae") == source("id")),
            {"id": "BIGINT"},
            'Action 1 (update): the target table "Extract"."Extract" has no column "nmae", which '
            'the condition names; it has "id", "name", "price".',
        ),
        (
            insert(target="extract"),
            USERS,
            'Action 1 (insert): the target has no table "Extract"."extract"; it has '
            '"Extract"."Extract" (names are exact, also in case).',
        ),
        (
            insert(source=TableName("nowhere", "s")),
            USERS,
            'Action 1 (insert): the source has no table "nowhere"."s"; it has "public"."s" (names '
            "are exact, also in case).",
        ),
    ],
)
def test_problems_say_what_to_do(action: Action, columns: dict[str, str], expected: str):
    # Prevents: somebody who reads only the message does not know what to change.
    found = problems(action, columns)
    assert expected in found
    assert len(found) <= 2


def test_nothing_wrong():
    # Prevents: a batch is refused for the order of columns, or for what it may leave out.
    assert problems(insert(), dict(reversed(USERS.items()))) == []
    assert problems(update(), {"id": "BIGINT", "name": "TEXT"}) == []
    assert problems(update(target("id") == source("key")), {"key": "BIGINT", "name": "TEXT"}) == []
    assert problems(Delete(target=T, source=S, where=ON_ID), {"id": "BIGINT"}) == []
    everything = Delete(target=T, where=always)
    assert problems(everything, {}, source={}) == []


def test_all_problems_at_once():
    # Prevents: mistakes come to light one by one, each after another attempt.
    batch = Batch([insert(), update(), insert(source="x"), Delete(target=T, where=always)])
    found = batch_problems(batch, target={T: USERS}, source={S: {"id": "INTEGER", "x": "DATE"}})
    assert [problem.partition(")")[0] for problem in found] == [
        *["Action 1 (insert"] * 3,
        *["Action 2 (update"] * 3,
        "Action 3 (insert",
    ]


def test_schemas_are_needed_where_several_hold_tables():
    # Prevents: a batch without schemas fails on the server, or a name is asked for needlessly.
    several = {T: USERS, TableName("public", "t"): USERS}
    assert problems(insert(), USERS, target=several) == [
        "Action 1 (insert): the target holds tables in several schemas, Extract, public: name "
        'one, as in TableName("Extract", "Extract").'
    ]
    assert problems(insert(target=T), USERS, target=several) == []


def test_no_payload():
    # Prevents: a batch is sent without the file that it reads.
    assert problems(insert(), {}, source={}) == [
        'Action 1 (insert): the source has no table "s"; it has no tables at all (names are exact, '
        "also in case)."
    ]


def test_problems_stay_short():
    # Prevents: a long condition, or a wide table, fills the log with one mistake.
    wide = {f"c{number}": "BIGINT" for number in range(1000)}
    where = any_of(target("x") == number for number in range(1000))
    (found,) = problems(Delete(target=T, where=where), {}, target={T: wide})
    assert found.endswith(
        'it has "c0", "c1", "c2", "c3", "c4", "c5", "c6", "c7", "c8", "c9" and 990 more.'
    )


def test_types_are_spelt_in_one_way():
    # Prevents: a type that nobody knows is taken for one that cannot be compared.
    for unknown in ("INT", "NUMERIC(10, 2)", "VARCHAR", 'BIGINT COLLATE "x"', "bigint"):
        with pytest.raises(ValueError, match=r'"public"."s", column "id": .* INTEGER, BIGINT'):
            problems(insert(), {"id": unknown})
