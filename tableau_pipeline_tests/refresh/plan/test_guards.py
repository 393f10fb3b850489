from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tableau_pipeline.core.checkpoint import TableContent
from tableau_pipeline.core.declaration import Guard, Reconcile
from tableau_pipeline.core.snapshot import Fingerprint
from tableau_pipeline.errors import RefusedError
from tableau_pipeline.refresh.plan import Accept, guard_problems
from tableau_pipeline_tests.refresh.plan.test_ownership import forget
from tableau_pipeline_tests.refresh.support import other_users
from tableau_pipeline_tests.refresh.support.models import airlines, flights
from tableau_pipeline_tests.refresh.support.pipeline import Pipeline
from tableau_pipeline_tests.refresh.support.states import declaration


def problems(rows: int, before: int | None, guard: Guard) -> list[str]:
    """What is wrong with so many rows of a table; `before` is None where nothing is published."""
    declared = declaration(guard=guard)
    content = Fingerprint(rows=rows, hash_sum=7)
    table = TableContent(
        model="dbt/orders", version=1, columns=(), all_rows=content, content=content
    )
    published = {} if before is None else {"orders": before}
    return guard_problems(declared, {"orders": table}, published)


def test_empty_table_is_refused_from_the_first_publish_on():
    """Prevents: a failed load upstream empties every dashboard."""
    (message,) = problems(0, None, Guard())
    for part in ('"orders"', '"dbt/orders"', "0 rows", "guard.min_rows (1)", "accept: [shrink]"):
        assert part in message


def test_shrunk_table_is_refused():
    """Prevents: a half-finished load replaces the whole table."""
    (message,) = problems(49, 100, Guard())
    for part in ("49 rows where 100 are published", "51%", "guard.max_shrink (50%)"):
        assert part in message


@pytest.mark.parametrize(
    ("rows", "before", "guard", "ok"),
    [
        (0, 0, Guard(min_rows=0), True),
        (0, None, Guard(min_rows=0), True),
        (0, 100, Guard(min_rows=0, max_shrink=1), True),
        (1, 100, Guard(min_rows=2, max_shrink=1), False),
        (1_000_000, 1, Guard(max_shrink=0), True),
    ],
)
def test_bounds(rows: int, before: int | None, guard: Guard, *, ok: bool):
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


def shrinks(pipeline: Pipeline, *, message: str) -> None:
    """A model that lost most of its rows is refused, until a person says that it is right."""
    pipeline.model("flights", flights(1))
    with pytest.raises(RefusedError, match=message) as caught:
        pipeline.run()
    assert "accept: [shrink]" in str(caught.value)
    assert pipeline.wrong() != []
    pipeline.run(Accept.SHRINK)
    assert pipeline.wrong() == []


def test_equal_content_is_guarded_too(pipeline: Pipeline):
    """Prevents: a guard that was tightened later passes until the next change."""
    pipeline.run()
    (table,) = pipeline.declaration.tables
    pipeline.policy(table.policy, guard=Guard(min_rows=1000))
    assert pipeline.decide().startswith("refuse")


def test_shrunk_since_the_records_were_lost(pipeline: Pipeline):
    """Prevents: with the records gone, 1,000 rows become 1 unasked."""
    pipeline.run()
    forget(pipeline)
    shrinks(pipeline, message="1 rows where 8 are published")


def test_shrunk_against_what_is_adopted(pipeline: Pipeline):
    """Prevents: an adoption replaces many rows of somebody by our few, unasked."""
    other_users.publishes(pipeline, flights(100))
    pipeline.declare(adopt=True)
    shrinks(pipeline, message="1 rows where 100 are published")


def test_rows_that_only_the_server_can_count(new_pipeline: Callable[..., Pipeline]):
    """Prevents: a person has to decide what the server's own count shows."""
    pipeline = new_pipeline(reconcile=Reconcile(max_mb=1e-6))
    pipeline.run()
    forget(pipeline)
    shrinks(pipeline, message="1 rows where 8 are published")


def test_rows_that_nobody_can_count(new_pipeline: Callable[..., Pipeline]):
    """Prevents: what is too large to be counted is not guarded at all."""
    pipeline = new_pipeline(reconcile=Reconcile(max_mb=1e-6, by="download"))
    pipeline.run()
    forget(pipeline)
    shrinks(pipeline, message=r"how many are published is not known.*reconcile: max_mb")


def test_nothing_is_counted_for_no_guard(new_pipeline: Callable[..., Pipeline]):
    """Prevents: a table that may lose all its rows is downloaded for nothing, or refused."""
    pipeline = new_pipeline(reconcile=Reconcile(max_mb=1e-6, by="download"))
    (table,) = pipeline.declaration.tables
    pipeline.policy(table.policy, guard=Guard(max_shrink=1))
    pipeline.run()
    forget(pipeline)
    pipeline.model("flights", flights(1))
    pipeline.run()
    assert pipeline.wrong() == []


@pytest.mark.slow
def test_gone_from_the_server(pipeline: Pipeline):
    """Prevents: a data source that somebody deleted cannot come back with fewer rows."""
    pipeline.run()
    other_users.deletes(pipeline)
    pipeline.model("flights", flights(1))
    pipeline.run()
    assert pipeline.wrong() == []


@pytest.mark.slow
def test_each_table_is_counted(star: Pipeline):
    """Prevents: the rows of one table are compared with those of another."""
    star.model("airlines", airlines(*(f"A{number}" for number in range(30)), "AA", "UA"))
    star.run()
    forget(star)
    star.model("airlines", airlines())
    with pytest.raises(RefusedError, match=r'Table "airlines".* 2 rows where 32 are published'):
        star.run()
