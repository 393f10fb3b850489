"""What the records of a data source add up to, whatever the order in which they were stored."""

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tableau_pipeline.core.checkpoint import (
    Checkpoint,
    Claim,
    Closing,
    Intent,
    Outcome,
    Owner,
    PublishMode,
    Record,
    Recovered,
)
from tableau_pipeline.core.journal import History, read_history
from tableau_pipeline_tests.refresh.support.states import NOON, checkpoint, table

MAY_HAVE_LANDED = (None, Outcome.DONE, Outcome.LOST)


def left(refresh: int, **versions: int) -> Checkpoint:
    """What a refresh left, with these versions of models."""
    tables = {model: table(model=model, version=number) for model, number in versions.items()}
    return checkpoint(refresh=refresh, tables=tables or {"orders": table(version=refresh)})


def claim(refresh: int) -> Claim:
    return Claim(refresh=refresh, id=f"claim {refresh}", owner=Owner(run_id=f"run {refresh}"))


def intent(refresh: int, step: int = 1, **more: object) -> Intent:
    usual = {
        "refresh": refresh,
        "step": step,
        "request_id": f"{refresh}.{step}",
        "recorded_at": NOON,
        "run_id": f"run {refresh}",
        "mode": PublishMode.REPLACE,
        "name": "Sales",
        "project_id": "project-1",
        "luid": "luid-1",
        "target": left(refresh),
    }
    return Intent.model_validate(usual | more)


@dataclass
class Chapter:
    """What one refresh recorded: its sendings with all that was known of each, and its end."""

    claim: Claim
    sendings: list[list[Intent]] = field(default_factory=list)
    closing: Closing | None = None

    @property
    def records(self) -> list[Record]:
        intents = [record for sending in self.sendings for record in sending]
        return [self.claim, *intents, *([self.closing] if self.closing else [])]

    @property
    def checkpoint(self) -> Checkpoint | None:
        return self.closing.checkpoint if self.closing else None


@st.composite
def chapters(draw: st.DrawFn) -> list[Chapter]:
    """Refreshes one after another, of which each may have been cut off anywhere."""
    past = []
    for refresh in range(1, draw(st.integers(0, 5)) + 1):
        chapter = Chapter(claim(refresh))
        end = draw(st.sampled_from(["cut off", "withdrawn", "failed", "done"]))
        if end != "withdrawn":
            for step in range(1, draw(st.integers(0, 3)) + 1):
                known = intent(refresh, step)
                with_job = known.model_copy(update={"job_id": f"job {refresh}.{step}"})
                outcome = draw(st.sampled_from(Outcome))
                ended = with_job.model_copy(update={"outcome": outcome})
                chapter.sendings.append([known, with_job, ended][: draw(st.integers(1, 3))])
        if end != "cut off":
            chapter.closing = Closing(
                refresh=refresh,
                claim=chapter.claim.id,
                withdrawn=end == "withdrawn",
                checkpoint=left(refresh) if end == "done" else None,
            )
        past.append(chapter)
    return past


@given(past=chapters(), data=st.data())
def test_order_of_records_does_not_matter(past: list[Chapter], data: st.DataObject):
    """Prevents: a record that was stored late undoes what a later refresh recorded."""
    stored = [record for chapter in past for record in chapter.records]
    history = read_history(data.draw(st.permutations(stored)))
    done = [chapter for chapter in past if chapter.checkpoint]
    since = past[past.index(done[-1]) + 1 :] if done else past
    assert history.number == len(past)
    assert history.checkpoint == (done[-1].checkpoint if done else None)
    assert list(history.intents) == [sending[-1] for each in since for sending in each.sendings]
    # A refresh that was completed claimed when no earlier one was alive.
    cut_off = {chapter.claim.id for chapter in since if chapter.closing is None}
    assert {each.id for each in history.open_claims} == cut_off


def test_records_of_nothing():
    """Prevents: a data source of which nothing was ever recorded cannot be refreshed."""
    history = read_history([])
    assert history == History(0, (), frozenset(), Recovered(), ())
    assert (history.published_version("orders"), history.versions) == (None, set())


def test_claim_is_closed_by_its_own_end_alone():
    """Prevents: two refreshes of one number, and the end of one sets the other aside."""
    one, other = claim(1), Claim(refresh=1, owner=Owner(run_id="other"))
    history = read_history([Closing(refresh=1, claim=other.id, withdrawn=True), other, one])
    assert history.claims == (one,)
    assert history.open_claims == [one]
    closed = read_history([one, Closing(refresh=1, claim=one.id)])
    # It was there, which the fence of an overtaken refresh has to see.
    assert (closed.claims, closed.open_claims) == ((one,), [])


def test_job_counts_for_more_than_its_absence():
    """Prevents: a sending that was given up as lost although its job tells what became of it."""
    lost = intent(1, outcome=Outcome.LOST)
    done = intent(1, outcome=Outcome.DONE, job_id="job 1")
    for records in ([lost, done], [done, lost]):
        assert read_history(records).intents == (done,)


@pytest.mark.parametrize("outcome", [None, *Outcome], ids=str)
def test_versions_that_may_be_published(outcome: Outcome | None):
    """Prevents: a version is collected that the server may hold, and no update builds on it."""
    base = Closing(refresh=1, claim="1", checkpoint=left(1, orders=1, items=1))
    sending = intent(2, outcome=outcome, target=left(2, orders=2))
    history = read_history([base, sending])
    landed = outcome in MAY_HAVE_LANDED
    assert history.versions == {("orders", 1), ("items", 1)} | (
        {("orders", 2)} if landed else set()
    )
    assert history.published_version("orders") == (2 if landed else 1)
    assert history.published_version("items") == 1
    assert history.published_version("notes") is None


def test_newest_of_several_versions():
    """Prevents: files are added to an older version than the one that was sent last."""
    sendings = [
        intent(3, target=left(3, orders=7)),
        intent(2, target=left(2, orders=9), outcome=Outcome.LOST),
        intent(4, target=None),
    ]
    assert read_history(sendings).published_version("orders") == 7
