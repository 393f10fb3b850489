"""Which changes come how often: mostly a few rows, sometimes something strange."""

from typing import Any

from hypothesis import strategies as st

from tableau_pipeline.refresh.plan import Accept
from tableau_pipeline_tests.refresh import histories_changes as changes
from tableau_pipeline_tests.refresh import histories_happenings as happenings
from tableau_pipeline_tests.refresh import histories_schema as schema
from tableau_pipeline_tests.refresh.histories_steps import Step
from tableau_pipeline_tests.refresh.histories_tables import MOST_ROWS
from tableau_pipeline_tests.refresh.histories_troubles import NONE, deaths, failures, releases
from tableau_pipeline_tests.refresh.histories_values import TYPES
from tableau_pipeline_tests.refresh.histories_worlds import rules

_number = st.integers(0, 9)
_numbers = st.lists(_number, min_size=1, max_size=4).map(tuple)
_at = st.integers(0, MOST_ROWS - 1)
_rows = st.one_of(
    st.builds(changes.Append, st.integers(1, 3), _numbers),
    st.builds(changes.Write, _at, _numbers),
    st.builds(changes.Touch, _at, st.integers(0, 5), _number),
    st.builds(changes.Delete, _at),
)
_strange = st.one_of(
    st.builds(changes.Swap, _at, _at),
    st.builds(changes.Rewind, st.integers(1, 4)),
    st.builds(changes.DropPartition, _at),
    st.just(changes.Reverse()),
    st.just(changes.Clear()),
    st.builds(changes.Twin, _at),
    st.builds(changes.Null, _at, _at),
)
_columns = st.one_of(
    st.builds(schema.AddColumn, st.sampled_from(TYPES), _number),
    st.builds(schema.Retype, st.sampled_from(TYPES), _number),
    st.just(schema.DropColumn()),
    st.just(schema.Reorder()),
    st.just(schema.Relabel()),
    st.builds(schema.LeaveBehind, _at),
)
_few_rows = st.lists(_rows, min_size=1, max_size=3)
_changes = st.one_of(
    *[_few_rows] * 8,
    *[_strange.map(lambda change: [change])] * 3,
    _columns.map(lambda change: [change]),
)
_rows_at_first = st.sampled_from([5, 8, 3, 1, 0, 2])
_first = st.builds(changes.Append, _rows_at_first, _numbers).map(lambda change: [change])
# For each of three tables.
first = st.tuples(_first, _first, _first)

_lost = st.sampled_from(["payloads", "payloads", "old snapshots", "state", "journal"])
_happenings = st.one_of(
    st.builds(happenings.Declare, st.integers(0, 2), rules),
    st.builds(happenings.Relate, st.integers(1, 3), st.booleans()),
    st.builds(happenings.Lose, _lost),
    st.builds(happenings.Lose, _lost),
    st.builds(happenings.Pass, st.sampled_from([0, 1, 4])),
)


def _mostly(usual: Any, *others: Any, often: int = 5) -> st.SearchStrategy[Any]:
    return st.sampled_from([usual] * often + list(others))


# What was changed and is changed back shows whether the way there is forgotten.
_usual_changes = st.one_of(
    *[_few_rows] * 2, st.builds(changes.Rewind, st.integers(1, 2)).map(lambda change: [change])
)
# Refreshes that build on each other, and on what a troubled one left open.
_usual = st.builds(
    Step,
    before=st.one_of(*[st.just(())] * 2, st.just((happenings.Lose("payloads"),))),
    changes=st.lists(st.tuples(st.integers(0, 2), _usual_changes), min_size=1, max_size=2).map(
        tuple
    ),
    accept=st.just(tuple(Accept)),
    hold=_mostly(False, True, often=2),
    trouble=st.one_of(st.just(NONE), deaths, deaths, failures, releases),
)
_wild = st.builds(
    Step,
    before=st.one_of(*[st.just(())] * 3, st.tuples(_happenings)),
    changes=st.lists(st.tuples(st.integers(0, 2), _changes), min_size=1, max_size=2).map(tuple),
    again=_mostly(False, True),
    accept=_mostly(tuple(Accept), (), often=2),
    full=_mostly(False, True, often=12),
    dry_run=_mostly(False, True, often=12),
    hold=_mostly(False, True),
    trouble=st.one_of(st.just(NONE), st.just(NONE), deaths, failures, releases),
)
steps = st.one_of(_usual, _usual, _wild)
