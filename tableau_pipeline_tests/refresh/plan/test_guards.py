"""Guards against lost rows where no record tells how many are published."""

from collections.abc import Callable

import pytest

from tableau_pipeline.core.declaration import Guard, Reconcile
from tableau_pipeline.errors import RefusedError
from tableau_pipeline.refresh.plan import Accept
from tableau_pipeline_tests.refresh.plan.test_ownership import forget
from tableau_pipeline_tests.refresh.support import other_users
from tableau_pipeline_tests.refresh.support.models import flights
from tableau_pipeline_tests.refresh.support.pipeline import Pipeline


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


def test_shrunk_against_what_is_adopted(pipeline: Pipeline):
    """Prevents: an adoption replaces many rows of another user by our few, unasked."""
    other_users.publishes(pipeline, flights(100))
    pipeline.declare(adopt=True)
    shrinks(pipeline, message="1 rows where 100 are published")


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        (Reconcile(), "1 rows where 8 are published"),
        # The server's own count shows what no file may.
        (Reconcile(max_mb=1e-6), "1 rows where 8 are published"),
        (
            Reconcile(max_mb=1e-6, by="download"),
            r"how many are published is not known.*reconcile: max_mb",
        ),
    ],
    ids=["file", "server", "not at all"],
)
def test_shrunk_since_the_records_were_lost(
    new_pipeline: Callable[..., Pipeline], rule: Reconcile, message: str
):
    """Prevents: with the records gone, 1,000 rows become 1 unasked."""
    pipeline = new_pipeline(reconcile=rule)
    pipeline.run()
    forget(pipeline)
    shrinks(pipeline, message=message)


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
