"""Whether what a data source shows after a change of ours is our own doing."""

from datetime import UTC, datetime, timedelta

import pytest

from tableau_pipeline.core.checkpoint import Habits
from tableau_pipeline.refresh.window import Change, Window, revisions_of

BEFORE, SECOND = datetime(2025, 3, 1, 12, tzinfo=UTC), timedelta(seconds=1)
START = BEFORE + 60 * SECOND + timedelta(milliseconds=400)
END = START + 9 * SECOND
JOB = Window(START, END)
# What a stamp shows of the first moment: it counts whole seconds.
FIRST = START.replace(microsecond=0)


def change(
    stamp: datetime,
    *,
    window: Window | None = JOB,
    seen: tuple[datetime, ...] = (),
    revisions: tuple[int | None, int | None] = (None, None),
    may_make: tuple[int, ...] = (1,),
) -> Change:
    before, after = revisions
    return Change(window, (BEFORE, before), (stamp, after), revisions=may_make, seen=seen)


@pytest.mark.parametrize(
    ("stamp", "ours"),
    [
        (BEFORE, True),  # as of servers that leave it alone
        (FIRST, True),
        (END.replace(microsecond=0), True),
        (END + SECOND, False),
        (FIRST - SECOND, False),
    ],
)
def test_time_stamps_of_our_own_doing(stamp: datetime, *, ours: bool):
    """Prevents: a time stamp near to that of our job makes the rows of others pass for ours."""
    assert (change(stamp).unexplained(Habits()) is None) is ours


def test_stamp_that_was_seen_meanwhile():
    """Prevents: somebody publishes while our job waits, and our job's stamp covers theirs up."""
    assert change(FIRST, seen=(BEFORE, FIRST)).unexplained(Habits()) is None
    told = change(FIRST, seen=(BEFORE, FIRST - 9 * SECOND)).unexplained(Habits())
    assert told
    assert "updated at 2025-03-01 12:00:51" in told


def test_nothing_of_ours_explains_a_new_stamp():
    """Prevents: the work of others between two refreshes passes for ours."""
    assert change(BEFORE, window=None).unexplained(Habits()) is None
    told = change(FIRST, window=None).unexplained(Habits())
    assert told
    assert "that was not this pipeline" in told


@pytest.mark.parametrize(
    ("before", "after", "may_make", "ours"),
    [
        (3, 4, (1,), True),
        (3, 5, (1,), False),
        (3, 3, (0,), True),
        (3, 4, (0,), False),
        (3, 4, (0, 1), True),
        (None, 4, (1,), True),
        (3, None, (1,), True),
    ],
)
def test_revisions(before: int | None, after: int | None, may_make: tuple[int, ...], *, ours: bool):
    """Prevents: a publish of somebody else in the very second of ours stays hidden."""
    made = change(FIRST, revisions=(before, after), may_make=may_make)
    assert (made.unexplained(Habits()) is None) is ours


def test_revisions_of_what_was_created():
    """Prevents: a publish by others right after our first one passes for ours."""
    once = Change(JOB, None, (FIRST, 1), revisions=(1,))
    assert once.unexplained(Habits()) is None
    twice = Change(JOB, None, (FIRST, 2), revisions=(1,))
    assert twice.unexplained(Habits()) is not None


def test_site_with_late_stamps():
    """Prevents: each refresh of a site with late stamps costs a whole file."""
    late = change(END + 2 * SECOND)
    assert late.unexplained(Habits()) is not None
    habits = late.learnt(Habits(), is_update=False)
    assert habits.lag == pytest.approx(2)
    assert late.unexplained(habits) is None
    assert change(END + 4 * SECOND).unexplained(habits) is not None


def test_longest_lag():
    """Prevents: one stamp of hours later, and the site is believed whatever it shows."""
    habits = change(END + 3600 * SECOND).learnt(Habits(), is_update=False)
    assert habits.lag == 30


@pytest.mark.parametrize("moves", [True, False])
@pytest.mark.parametrize("made", [0, 1])
def test_what_an_update_shows_of_a_site(*, moves: bool, made: int):
    """Prevents: a site whose updates move no stamp or make revisions is doubted each time."""
    stamp = FIRST if moves else BEFORE
    update = change(stamp, revisions=(3, 3 + made), may_make=(0, 1))
    habits = update.learnt(Habits(), is_update=True)
    assert (habits.moves_timestamp, habits.update_revisions) == (moves, made)
    assert revisions_of(habits, is_update=True) == (made,)
    assert revisions_of(habits, is_update=False) == (1,)


def test_window_of_a_publish_teaches_nothing_of_updates():
    """Prevents: what a publish makes is expected of updates, which make no revisions."""
    habits = change(FIRST, revisions=(3, 4)).learnt(Habits(), is_update=False)
    assert (habits.moves_timestamp, habits.update_revisions) == (None, None)
