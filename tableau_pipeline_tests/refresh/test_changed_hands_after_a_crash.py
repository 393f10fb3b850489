"""What others do on the server while a killed refresh leaves open what became of its update."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

from tableau_pipeline.refresh.landing import Landing
from tableau_pipeline.refresh.plan import NoChange, Options
from tableau_pipeline.sandbox.open_questions import UpdatedAt
from tableau_pipeline_tests.refresh import analyst
from tableau_pipeline_tests.refresh.crashes import killed_after
from tableau_pipeline_tests.refresh.models import flights
from tableau_pipeline_tests.refresh.pipeline import Pipeline
from tableau_pipeline_tests.refresh.test_crash import changed_rows, new_file, new_rows

ADMIN = ("admin", "admin")
BEFORE, SECOND = datetime(2025, 3, 1, 12, tzinfo=UTC), timedelta(seconds=1)
START = BEFORE + 60 * SECOND
END = START + 9 * SECOND


@pytest.mark.parametrize("before", [new_rows, changed_rows, new_file])
@pytest.mark.parametrize("calls", range(1, 7))
def test_overwritten_by_hand_after_a_crash(
    pipeline: Pipeline, before: Callable[[Pipeline], None], calls: int
):
    """Prevents: rows of somebody else pass for ours, because an update of ours is open."""
    before(pipeline)
    assert killed_after(pipeline, calls)
    analyst.publishes(pipeline, flights(3), user=ADMIN)
    pipeline.run()
    assert pipeline.wrong() == []
    assert isinstance(pipeline.run().plan, NoChange)


def test_older_update_is_not_sent_after_a_newer_one(new_pipeline: Callable[..., Pipeline]):
    """Prevents: an update that was given up undoes the one that came in its place."""
    pipeline = new_pipeline(on={"updated_at": UpdatedAt.STAYS})
    changed_rows(pipeline)
    assert killed_after(pipeline, 1)
    (given_up,) = pipeline.journal.intents()
    assert given_up.payload is not None
    away = given_up.payload.rename(pipeline.folder / "lost for a while")
    pipeline.model("flights", flights(10))
    pipeline.refresh().run(Options())  # and nobody keeps its state
    away.rename(given_up.payload)
    assert isinstance(pipeline.run().plan, NoChange)
    assert pipeline.wrong() == []


@pytest.mark.parametrize(
    ("stamp", "seen", "ours"),
    [
        (BEFORE, BEFORE, True),  # as of servers that leave it alone
        (START, BEFORE, True),
        (END, BEFORE, True),
        (END + SECOND, BEFORE, False),
        (START - SECOND, BEFORE, False),
        (END, END, True),
        (START, START, False),  # of the same second: who was first?
        (END, START, False),  # our job came upon the work of others
        (END, START - SECOND, False),
        (END + SECOND, END + SECOND, False),
        (END, None, False),
    ],
)
def test_time_stamps_of_our_own_doing(stamp: datetime, seen: datetime | None, ours: bool):
    """Prevents: a time stamp near to that of our job makes the rows of others pass for ours."""
    landing = Landing(start=START, end=END, before=frozenset({BEFORE}), seen=seen)
    assert landing.explains(stamp) is ours
