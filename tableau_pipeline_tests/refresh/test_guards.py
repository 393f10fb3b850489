import pytest
from hypothesis import given
from hypothesis import strategies as st

from tableau_pipeline.core.declaration import Guard
from tableau_pipeline.refresh.plan import Accept, Refuse
from tableau_pipeline_tests.refresh.states import (
    NOTHING,
    decide,
    declaration,
    desired,
    state,
    table,
    view,
)


def problems(rows: int, before: int | None, guard: Guard, *, accept: bool = False) -> list[str]:
    known = NOTHING if before is None else view(state(tables={"orders": table(before)}))
    wanted = desired(tables={"orders": table(rows)})
    accepted = [Accept.SHRINK] if accept else []
    plan = decide(known, *accepted, wanted=wanted, declared=declaration(guard=guard))
    return [plan.reason] if isinstance(plan, Refuse) else []


def test_empty_table_is_refused_from_the_first_publish_on():
    """Prevents: a failed load upstream empties every dashboard."""
    plan = decide(NOTHING, wanted=desired(tables={"orders": table(0)}))
    assert isinstance(plan, Refuse)
    for part in ('"orders"', '"dbt/orders"', "0 rows", "guard.min_rows (1)", "accept: [shrink]"):
        assert part in plan.reason


def test_shrunk_table_is_refused():
    """Prevents: a half-finished load replaces the whole table."""
    plan = decide(view(), wanted=desired(tables={"orders": table(49)}))
    assert isinstance(plan, Refuse)
    for part in ("49 rows where 100 are published", "51%", "guard.max_shrink (50%)"):
        assert part in plan.reason


def test_equal_content_is_guarded_too():
    """Prevents: a guard that was tightened later passes until the next change."""
    declared = declaration(guard=Guard(min_rows=1000))
    assert isinstance(decide(view(), declared=declared), Refuse)


@pytest.mark.parametrize(
    ("rows", "before", "guard", "ok"),
    [
        (0, 0, Guard(min_rows=0), True),
        (0, None, Guard(min_rows=0), True),
        (0, 100, Guard(min_rows=0, max_shrink=1), True),
        (1, 100, Guard(min_rows=2, max_shrink=1), False),
        (99, 100, Guard(max_shrink=0), False),
        (100, 100, Guard(max_shrink=0), True),
        (50, 100, Guard(max_shrink=0.5), True),
        (1_000_000, 1, Guard(max_shrink=0), True),
    ],
)
def test_bounds(rows: int, before: int | None, guard: Guard, ok: bool):
    """Prevents: a guard is off by one at its bounds."""
    assert (problems(rows, before, guard) == []) is ok


@given(percent=st.integers(0, 100), hundreds=st.integers(1, 10**9))
def test_loss_of_exactly_the_allowed_share_passes(percent: int, hundreds: int):
    """Prevents: "a loss of 70%, more than guard.max_shrink (70%)", by a rounding of floats."""
    guard = Guard(min_rows=0, max_shrink=percent / 100)
    left = (100 - percent) * hundreds
    assert problems(left, 100 * hundreds, guard) == []
    if left:
        assert problems(left - 1, 100 * hundreds, guard) != []


@given(rows=st.integers(0, 10**12), before=st.integers(0, 10**12), guard=st.builds(
    Guard, min_rows=st.integers(0, 10**6), max_shrink=st.floats(0, 1)
))  # fmt: skip
def test_accept_shrink_lets_everything_through(rows: int, before: int, guard: Guard):
    """Prevents: a person who knows that the rows are right cannot say so."""
    assert problems(rows, before, guard, accept=True) == []


def test_every_base_is_guarded_against():
    """Prevents: a sending that never landed lowers the bar for the next one."""
    small = state(tables={"orders": table(60)}, updated_at=None)
    plan = decide(view(state(), small), wanted=desired(tables={"orders": table(40)}))
    assert isinstance(plan, Refuse)
    assert "40 rows where 100 are published" in plan.reason
