"""What others do on the server while a refresh is at work."""

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import pytest

from tableau_pipeline.core.declaration import Reconcile
from tableau_pipeline.errors import RefusedError
from tableau_pipeline.refresh.plan import NoChange, Publish, Update
from tableau_pipeline.refresh.report import Report
from tableau_pipeline_tests.refresh.recover.test_crash import changed_rows, new_file
from tableau_pipeline_tests.refresh.support import other_users
from tableau_pipeline_tests.refresh.support.models import flights
from tableau_pipeline_tests.refresh.support.other_users import ADMIN
from tableau_pipeline_tests.refresh.support.pipeline import Pipeline
from tableau_pipeline_tests.refresh.support.proxies import Proxy
from tableau_pipeline_tests.refresh.support.server_jobs import jobs

KINDS: dict[str, dict[str, Any]] = {
    "usual": {},
    "same second": {"stamps_within_second": "shared"},
    "no revisions": {"revisions": False},
}


class Meddled(Proxy):
    """A server on which somebody publishes at a moment of a sending, `times` times.

    Moments: "uploaded", "sent" (the job is queued, or runs), "ended" (it was seen to have ended).
    """

    def __init__(self, behind: Any, moment: str, happens: Callable[[], object], times: int) -> None:
        super().__init__(behind)
        self._moment, self._happens, self._left = moment, happens, times

    def after(self, name: str, answer: Any) -> None:
        moment = {"upload": "uploaded", "update": "sent", "publish": "sent"}.get(name)
        if name == "job" and answer and answer.outcome:
            moment = "ended"
        if moment == self._moment and self._left:
            self._left -= 1
            self._happens()


def publishes(pipeline: Pipeline) -> Callable[[], object]:
    """Somebody publishes other rows."""
    return lambda: other_users.publishes(pipeline, flights(3), user=ADMIN)


def describes(pipeline: Pipeline) -> Callable[[], object]:
    """Somebody touches the data source, and changes nothing of its rows."""
    return lambda: other_users.describes(pipeline)


def meddled(
    pipeline: Pipeline, moment: str, happens: Callable[[], object], *, times: int = 1
) -> Report:
    """Refresh while something happens on the server, as often as said."""
    return pipeline.run(
        around={"around_server": lambda server: Meddled(server, moment, happens, times)}
    )


@pytest.mark.few_variants(2)
@pytest.mark.parametrize("reconcile", [None, Reconcile()], ids=["", "reconciled"])
@pytest.mark.parametrize(
    "on",
    [
        pytest.param(on, id=kind, marks=() if kind == "usual" else pytest.mark.slow)
        for kind, on in KINDS.items()
    ],
)
@pytest.mark.parametrize("moment", ["uploaded", "sent", "ended"])
@pytest.mark.parametrize("before", [changed_rows, new_file])
def test_somebody_publishes_meanwhile(
    new_pipeline: Callable[..., Pipeline],
    before: Callable[[Pipeline], None],
    moment: str,
    on: dict[str, Any],
    reconcile: Reconcile | None,
):
    """Prevents: their time stamp passes for ours, and later runs see no change over their rows."""
    pipeline = new_pipeline(on=on, reconcile=reconcile)
    before(pipeline)
    report = meddled(pipeline, moment, publishes(pipeline))
    if moment != "sent":
        assert isinstance(report.plan, Publish)
    pipeline.run()
    assert pipeline.wrong() == []
    assert isinstance(pipeline.run().plan, NoChange)


@pytest.mark.slow
def test_what_was_seen_meanwhile_is_remembered(new_pipeline: Callable[..., Pipeline]):
    """Prevents: rows of somebody else below an update of ours, whose time stamp hides theirs, pass
    for ours once the publish in full that was to replace them has failed."""
    pipeline = new_pipeline(on={"revisions": False})
    changed_rows(pipeline)
    held = ExitStack()
    looks: list[str] = []

    class Server(Proxy):
        """Holds our job until somebody's publish is over, and takes no whole file after it."""

        def job(self, luid: str) -> Any:
            if not looks:
                publishes(pipeline)()
            if len(looks) == 1:
                # The time stamp counts seconds, and may be moved on by one.
                pipeline.sandbox.advance(3)
                held.close()
            looks.append(luid)
            return self.behind.job(luid)

        def publish(self, *_: Any, **__: Any) -> Any:
            raise RefusedError("no whole files today")

    with held:
        held.enter_context(pipeline.sandbox.held_jobs())
        with pytest.raises(RefusedError, match="no whole files today"):
            pipeline.run(around={"around_server": Server})
    report = pipeline.run()
    assert isinstance(report.plan, Publish)
    assert "the server says that it was updated at" in report.plan.reason
    assert pipeline.wrong() == []
    assert isinstance(pipeline.run().plan, NoChange)


@pytest.mark.slow
def test_somebody_publishes_again_and_again(pipeline: Pipeline):
    """Prevents: two who publish in turns keep a refresh busy without end, or pass for one."""
    changed_rows(pipeline)
    began = len(jobs(pipeline))
    report = meddled(pipeline, "ended", publishes(pipeline), times=99)
    assert len(jobs(pipeline)) == began + 2
    assert report.warnings
    assert report.checkpoint
    assert report.checkpoint.distrust
    assert isinstance(pipeline.run().plan, Publish)
    assert pipeline.wrong() == []
    assert isinstance(pipeline.run().plan, NoChange)


@pytest.mark.parametrize("moment", ["sent", "ended"])
@pytest.mark.slow
def test_somebody_touches_it_meanwhile(new_pipeline: Callable[..., Pipeline], moment: str):
    """Prevents: a description that somebody writes costs a whole file each time."""
    pipeline = new_pipeline(reconcile=Reconcile())
    changed_rows(pipeline)
    report = meddled(pipeline, moment, describes(pipeline))
    assert isinstance(report.plan, Update)
    assert pipeline.wrong() == []
    report = pipeline.run()
    assert isinstance(report.plan, NoChange)
    assert report.warnings == ()


@pytest.mark.slow
def test_somebody_takes_the_name_meanwhile(pipeline: Pipeline):
    """Prevents: a first publish replaces what came to its name while the file was built."""
    with pytest.raises(RefusedError, match="adopt: true"):
        meddled(pipeline, "uploaded", publishes(pipeline))
    assert pipeline.wrong() == ["flights: 8 rows became 3"]
