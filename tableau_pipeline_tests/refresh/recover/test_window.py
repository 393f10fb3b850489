"""Whether what a data source shows was our own doing."""

from dataclasses import replace
from datetime import datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tableau_pipeline.core.checkpoint import Habits, Outcome
from tableau_pipeline.core.server import Change, Job, Window, revisions_of
from tableau_pipeline_tests.refresh.support.states import NOON

SECOND = timedelta(seconds=1)
# A job that ran from a part of one second to a part of another.
WINDOW = Window(NOON + 0.7 * SECOND, NOON + 3.2 * SECOND)
BEFORE = (NOON - 60 * SECOND, 4)
SECONDS = st.floats(0, 1000).map(lambda seconds: timedelta(seconds=seconds))


def after(seconds: float, revision: int | None = 4) -> tuple[datetime, int | None]:
    return NOON + timedelta(seconds=seconds), revision


def job(created: datetime | None, started: datetime | None, completed: datetime | None) -> Job:
    return Job("job", Outcome.DONE, created_at=created, started_at=started, completed_at=completed)


# An update on a site that makes no revision of one.
UPDATE = Change(WINDOW, BEFORE, after(2), revisions=(0,))


@given(start=SECONDS, lasts=SECONDS, share=st.floats(0, 1), lag=SECONDS)
def test_what_happens_in_the_window_is_explained(
    start: timedelta, lasts: timedelta, share: float, lag: timedelta
):
    """Prevents: our own change passes for somebody else's, because the server cuts off parts."""
    window = Window(NOON + start, NOON + start + lasts)
    stamp = (window.start + share * (lasts + lag)).replace(microsecond=0)
    assert window.covers(stamp, lag=lag.total_seconds() + 1e-6)


@given(start=SECONDS, lasts=SECONDS, apart=SECONDS, lag=SECONDS)
def test_what_happens_beside_it_is_not(
    start: timedelta, lasts: timedelta, apart: timedelta, lag: timedelta
):
    """Prevents: what somebody else published before or after our job passes for ours."""
    window = Window(NOON + start, NOON + start + lasts)
    later = window.end + lag + apart + SECOND
    assert not window.covers(later.replace(microsecond=0), lag=lag.total_seconds() - 1e-6)
    earlier = window.start - apart - SECOND
    assert not window.covers(earlier.replace(microsecond=0), lag=lag.total_seconds())


@pytest.mark.parametrize(
    ("seen", "window"),
    [
        (job(NOON, NOON, NOON + SECOND), Window(NOON, NOON + SECOND)),
        (job(NOON, None, NOON + SECOND), Window(NOON, NOON + SECOND)),
        (job(NOON - SECOND, NOON, NOON), Window(NOON, NOON)),
        (job(NOON, NOON, None), None),
        (job(None, None, NOON), None),
        (None, None),
    ],
)
def test_window_of_a_job(seen: Job | None, window: Window | None):
    """Prevents: a job that tells no times explains everything."""
    assert Window.of(seen) == window


@pytest.mark.parametrize("window", [WINDOW, None], ids=["ours", "nothing of ours"])
def test_what_did_not_move_is_no_change(window: Window | None):
    """Prevents: a site that leaves the stamp alone on updates makes every refresh doubtful."""
    assert Change(window, BEFORE, BEFORE, revisions=(0,)).unexplained(Habits()) is None


def test_what_moved_without_us_was_somebody_else():
    """Prevents: "no change" over rows that somebody published since."""
    found = replace(UPDATE, window=None).unexplained(Habits())
    assert found
    assert "2025-03-01 12:00:02 UTC, and that was not this pipeline" in found


@pytest.mark.parametrize(
    ("seconds", "lag", "is_ours"),
    [(-1, 0, False), (0, 0, True), (3, 0, True), (4, 0, False), (4, 1, True), (5, 1, False)],
)
def test_stamp_beside_the_window_was_somebody_else(seconds: int, lag: float, is_ours: bool):
    """Prevents: a publish right before or after our job is stored as ours for ever."""
    found = replace(UPDATE, after=after(seconds)).unexplained(Habits(lag=lag))
    assert (found is None) is is_ours
    if found:
        assert "our change took effect from 12:00:00 to 12:00:03" in found


def test_stamp_that_was_seen_meanwhile_counts():
    """Prevents: our own later stamp covers the one that somebody else left while we waited."""
    assert replace(UPDATE, seen=[BEFORE[0], NOON + SECOND]).unexplained(Habits()) is None
    found = replace(UPDATE, seen=[BEFORE[0], NOON - 30 * SECOND]).unexplained(Habits())
    assert found
    assert "11:59:30" in found


@pytest.mark.parametrize(
    ("before", "now", "allowed", "is_ours"),
    [
        (4, 4, 0, True),
        (4, 5, 0, False),
        (4, 5, 1, True),
        (4, 6, 1, False),
        (4, 4, 1, False),
        (None, 5, 0, True),
        (4, None, 0, True),
        (None, None, 1, True),
    ],
)
def test_revisions_tell_what_the_stamp_hides(
    before: int | None, now: int | None, allowed: int, is_ours: bool
):
    """Prevents: a publish in the very second of our job is missed where revisions are kept."""
    change = Change(WINDOW, (BEFORE[0], before), after(2, now), revisions=(allowed,))
    found = change.unexplained(Habits())
    assert (found is None) is is_ours
    if found and before and now:
        assert f"{now - before} new revisions" in found


def test_created_with_its_first_revision():
    """Prevents: what was created and overwritten in one second passes for what we created."""
    created = Change(WINDOW, None, after(2, 1), revisions=(1,))
    assert created.unexplained(Habits()) is None
    assert replace(created, after=after(2, 2)).unexplained(Habits())
    assert replace(created, after=after(9, 1)).unexplained(Habits())


@pytest.mark.parametrize(
    ("made", "expected"), [(None, (0,)), (0, (0,)), (1, (1,))], ids=["unknown", "none", "one"]
)
def test_revisions_that_a_change_may_make(made: int | None, expected: tuple[int, ...]):
    """Prevents: a publish without a revision of its own, or an update with one nobody has seen."""
    habits = Habits(update_revisions=made)
    assert revisions_of(habits, is_update=True) == expected
    assert revisions_of(habits, is_update=False) == (1,)


def test_what_an_update_teaches():
    """Prevents: a site is asked for ever for what it has shown never to do."""
    learnt = UPDATE.learnt(Habits(), is_update=True)
    assert learnt == Habits(moves_timestamp=True, update_revisions=0, lag=0)
    still = replace(UPDATE, after=(BEFORE[0], 5)).learnt(Habits(lag=2), is_update=True)
    assert still == Habits(moves_timestamp=False, update_revisions=1, lag=2)


def test_site_with_late_stamps():
    """Prevents: each refresh of a site with late stamps costs a whole file."""
    late = replace(UPDATE, after=after(5))
    assert late.unexplained(Habits()) is not None
    habits = late.learnt(Habits(), is_update=True)
    assert late.unexplained(habits) is None
    assert replace(UPDATE, after=after(6)).unexplained(habits) is not None


def test_what_a_publish_teaches():
    """Prevents: what publishes do is taken for what updates do."""
    learnt = replace(UPDATE, after=after(5, 5)).learnt(Habits(), is_update=False)
    assert learnt == Habits(lag=1.8)


def test_what_cannot_be_counted_teaches_nothing():
    """Prevents: a site that hid its revisions once counts as one that makes none."""
    hidden = replace(UPDATE, after=after(2, None))
    known = Habits(update_revisions=1)
    assert hidden.learnt(known, is_update=True).update_revisions == 1


@pytest.mark.parametrize("known", [None, 0, 1])
def test_several_revisions_are_nobodys_habit(known: int | None):
    """Prevents: a publish beside our update, which from then on counts as one of its revisions."""
    change = replace(UPDATE, after=after(2, 6))
    habits = Habits(update_revisions=known)
    assert change.learnt(habits, is_update=True).update_revisions == known


@given(seconds=st.floats(-100, 10_000), lag=st.floats(0, 30))
def test_lag_grows_to_what_was_seen_and_not_beyond_reason(seconds: float, lag: float):
    """Prevents: one late stamp after which any foreign publish passes for ours."""
    learnt = replace(UPDATE, after=after(seconds)).learnt(Habits(lag=lag), is_update=True).lag
    assert lag <= learnt <= 30
    assert learnt == max(lag, min(seconds - 3.2, 30)) or learnt == pytest.approx(seconds - 3.2)
