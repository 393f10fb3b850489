import json
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from enum import IntEnum, StrEnum
from functools import reduce
from operator import or_
from typing import Any, cast
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import pytest

from tableau_pipeline.actions.batch import (
    Batch,
    BatchError,
    Delete,
    Insert,
    all_of,
    source,
    target,
)
from tableau_pipeline.actions.conditions import Condition
from tableau_pipeline.errors import RefusedError

ON_ID = target("id") == source("id")


def where(condition: Condition) -> Any:
    """The condition of a delete, as it is sent."""
    (action,) = json.loads(Batch([Delete(target="t", source="s", where=condition)]).json())[
        "actions"
    ]
    return action["condition"]


def const(type_: str, value: str | None, op: str = "eq") -> dict[str, Any]:
    return {"op": op, "target-col": "a", "const": {"type": type_, "v": value}}


@pytest.mark.parametrize(
    ("condition", "op", "columns"),
    [
        (target("t") == source("s"), "eq", ("t", "s")),
        (source("s") == target("t"), "eq", ("t", "s")),
        (target("t") != source("s"), "neq", ("t", "s")),
        (target("t") < source("s"), "lt", ("t", "s")),
        (source("s") < target("t"), "gt", ("t", "s")),
        (target("t") <= source("s"), "lte", ("t", "s")),
        (source("s") <= target("t"), "gte", ("t", "s")),
        (target("t") > source("s"), "gt", ("t", "s")),
        (source("s") > target("t"), "lt", ("t", "s")),
        (target("t") >= source("s"), "gte", ("t", "s")),
        (source("s") >= target("t"), "lte", ("t", "s")),
        (target("t").is_(source("s")), "is", ("t", "s")),
        (source("s").is_(target("t")), "is", ("t", "s")),
    ],
)
def test_columns_compared(condition: Condition, op: str, columns: tuple[str, str]):
    # Prevents: a comparison written the other way round chooses the opposite rows.
    assert where(condition) == {"op": op, "target-col": columns[0], "source-col": columns[1]}


class Level(IntEnum):
    HIGH = 3


class Colour(StrEnum):
    RED = "red"


PARIS = ZoneInfo("Europe/Paris")


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        (target("a") == True, const("boolean", "true")),  # noqa: E712
        (target("a") != False, const("boolean", "false", "neq")),  # noqa: E712
        (target("a") == 5, const("integer", "5")),
        (5 < target("a"), const("integer", "5", "gt")),  # noqa: SIM300
        (target("a") == -(1 << 63), const("integer", "-9223372036854775808")),
        (target("a") == Level.HIGH, const("integer", "3")),
        (target("a") <= 0.1, const("double", "0.1", "lte")),
        (target("a") == 5.0, const("double", "5.0")),
        (target("a") == np.float64(1e300), const("double", "1e+300")),
        (target("a") == "5", const("string", "5")),
        (target("a") == Colour.RED, const("string", "red")),
        (target("a") == "ß'\"\\\n", const("string", "ß'\"\\\n")),
        (target("a").is_("x"), const("string", "x", "is")),
        (target("a").is_null(), const("string", None, "is")),
        (
            target("a") == datetime(2020, 1, 1, 12, tzinfo=UTC),
            const("datetime", "2020-01-01T12:00:00.000Z"),
        ),
        (
            target("a") < datetime(2020, 1, 1, 0, 0, 0, 7000, timezone(timedelta(hours=1))),
            const("datetime", "2019-12-31T23:00:00.007Z", "lt"),
        ),
        (
            target("a") == datetime(2020, 10, 25, 2, 30, fold=1, tzinfo=PARIS),
            const("datetime", "2020-10-25T01:30:00.000Z"),
        ),
        (
            target("a") == datetime(20, 1, 1, tzinfo=UTC),
            const("datetime", "0020-01-01T00:00:00.000Z"),
        ),
        (
            source("a") == 5,
            {"op": "eq", "source-col": "a", "const": const("integer", "5")["const"]},
        ),
    ],
)
def test_constants(condition: Condition, expected: dict[str, Any]):
    # Prevents: a value is sent as another one, or as one of another type.
    assert where(condition) == expected


def test_conditions_nest():
    # Prevents: parentheses get lost, and other rows are chosen.
    one, two, three = target("a") == 1, target("a") == 2, target("a") == 3
    a, b, c = where(one), where(two), where(three)
    both = {"op": "and", "args": [a, b]}
    assert where((one & two) | three) == {"op": "or", "args": [both, c]}
    assert where(one & (two | three)) == {"op": "and", "args": [a, {"op": "or", "args": [b, c]}]}
    assert where(one & two & three) == where(all_of([one, two, three]))
    assert where(one & two & three) == {"op": "and", "args": [a, b, c]}
    assert where(all_of([one])) == a


def test_as_long_as_servers_bear():
    # Prevents: a condition that real servers die of is sent, or a long one that they take is not.
    terms = [target("a") == number for number in range(5_000)]
    assert len(where(reduce(or_, terms))["args"]) == 5_000
    with pytest.raises(BatchError, match=r"5,001 terms .* small table of the payload"):
        all_of([*terms, target("a") == 0])


def test_batches_are_values():
    # Prevents: a batch changes after it was checked, or two equal ones differ.
    actions = [Insert(target="t", source="s"), Delete(target="t", where=target("a") == 1)]
    batch = Batch(actions)
    actions.pop()
    assert batch.actions == (Insert(target="t", source="s"), batch.actions[1])
    assert batch == Batch(batch.actions)
    assert hash(batch) == hash(Batch(batch.actions))
    assert batch != Batch([*batch.actions[:1], Delete(target="t", where=target("a") == 2)])


def test_refusals_stop_a_refresh():
    # Prevents: a refresh tries again what will never work, or a script does not catch it.
    assert issubclass(BatchError, RefusedError)
    assert issubclass(BatchError, ValueError)


a, ANY = target("a"), cast("Any", None)


@pytest.mark.parametrize(
    ("build", "reason"),
    [
        (lambda: Decimal("0.1") == a, r'target\("a"\): .* decimal 0.1: put .* small table'),
        (lambda: date(2020, 1, 1) < a, "a constant cannot be the date 2020-01-01: put the values"),
        (lambda: a < datetime(2020, 1, 1), r"2020-01-01 .* has no time zone: .*tzinfo=UTC"),
        (lambda: a < datetime(2020, 1, 1, 0, 0, 0, 1, UTC), "has more than milliseconds"),
        (lambda: a < pd.Timestamp(1_000_001, tz="UTC"), "has more than milliseconds"),
        (lambda: a < datetime.min.replace(tzinfo=timezone(timedelta(hours=1))), "years 1 to 9999"),
        (lambda: a == float("nan"), "a constant cannot be nan"),
        (lambda: a == float("inf"), "a constant cannot be inf"),
        (lambda: a == 1 << 63, "9,223,372,036,854,775,808 has more than 64 bits"),
        (lambda: a == "a\0b", r"contains U\+0000"),
        (lambda: a == "\ud800", "not Unicode"),
        (lambda: a == b"x", "b'x' is not a constant: use bool, int"),
        (lambda: a == np.int64(1), "is not a constant: use bool, int"),
        (lambda: a == None, r"\.is_null\(\)"),  # noqa: E711
        (lambda: a == target("b"), r'target\("a"\) cannot be compared with target\("b"\)'),
        (lambda: source("a") < source("b"), r'source\("a"\) cannot be compared with source'),
        (lambda: target(cast("Any", 5)), "the target column must be a string, not 5"),
        (lambda: ON_ID and ON_ID, "by & and |"),
        (lambda: not ON_ID, "by & and |"),
        (lambda: 1 < a < 5, r'target\("a"\) > 1 is neither true nor false'),
        (lambda: ON_ID | cast("Any", True), "'or' combines comparisons, not True"),
        (lambda: all_of([]), "'and' needs a condition"),
        (lambda: Batch([Insert(target=ANY, source="s")]), "the target table must be a string"),
        (lambda: Batch([Delete(target="t", where=cast("Any", True))]), "True is not a condition"),
        (lambda: Batch([Delete(target="t", where=ANY)]), "None is not a condition"),
        (lambda: Batch([]), "a batch needs at least one action"),
    ],
)
def test_refused_at_once(build: Callable[[], object], reason: str):
    # Prevents: a batch does another thing than what is written.
    with pytest.raises(BatchError, match=reason):
        build()
