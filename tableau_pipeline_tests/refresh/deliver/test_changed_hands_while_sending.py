"""What another user does on the server while a refresh is at work."""

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import pytest

from tableau_pipeline.core.declaration import Reconcile
from tableau_pipeline.errors import RefusedError
from tableau_pipeline.refresh.plan import NoChange, Publish, UpdateTables
from tableau_pipeline.refresh.report import Report
from tableau_pipeline_tests.refresh.recover.test_recovery import changed_rows, new_file
from tableau_pipeline_tests.refresh.support import other_users
from tableau_pipeline_tests.refresh.support.models import flights
from tableau_pipeline_tests.refresh.support.other_users import ADMIN
from tableau_pipeline_tests.refresh.support.pipeline import Pipeline
from tableau_pipeline_tests.refresh.support.proxies import Proxy
from tableau_pipeline_tests.refresh.support.server_jobs import jobs


def meddled(
    pipeline: Pipeline, moment: str, happens: Callable[[], object], *, times: int = 1
) -> Report:
    """Refresh; this happens once the file is "uploaded", or the job was seen to have "ended"."""

    class Meddled(Proxy):
        left = times

        def after(self, name: str, answer: object) -> None:
            is_ended = name == "job" and getattr(answer, "outcome", None)
            if self.left and moment == ("ended" if is_ended else f"{name}ed"):
                self.left -= 1
                happens()

    return pipeline.run(around={"around_server": Meddled})


def publishes(pipeline: Pipeline) -> Callable[[], object]:
    """Another user publishes other rows."""
    return lambda: other_users.publishes(pipeline, flights(3), user=ADMIN)


@pytest.mark.parametrize(
    ("before", "moment", "on"),
    [
        (changed_rows, "uploaded", {}),
        (new_file, "ended", {}),
        # Only the revisions tell.
        (changed_rows, "ended", {"stamps_within_second": "shared"}),
    ],
    ids=["before", "after", "same second"],
)
def test_another_user_publishes_meanwhile(
    new_pipeline: Callable[..., Pipeline],
    before: Callable[[Pipeline], None],
    moment: str,
    on: dict[str, Any],
):
    """Prevents: their time stamp passes for ours, and later runs see no change over their rows."""
    pipeline = new_pipeline(on=on, reconcile=None)
    before(pipeline)
    assert isinstance(meddled(pipeline, moment, publishes(pipeline)).plan, Publish)
    pipeline.run()
    assert pipeline.wrong() == []
    assert isinstance(pipeline.run().plan, NoChange)


@pytest.mark.slow
def test_another_user_publishes_again_and_again(pipeline: Pipeline):
    """Prevents: two who publish in turns keep a refresh busy without end, or pass for one."""
    changed_rows(pipeline)
    began = len(jobs(pipeline))
    report = meddled(pipeline, "ended", publishes(pipeline), times=99)
    assert len(jobs(pipeline)) == began + 2
    assert report.warnings
    assert "to be compared by the next refresh" in report.summary
    # Whom to ask.
    assert 'was published by "admin" at 20' in report.summary
    assert isinstance(pipeline.run().plan, Publish)
    assert pipeline.wrong() == []
    assert isinstance(pipeline.run().plan, NoChange)


@pytest.mark.slow
def test_another_user_describes_it_meanwhile(new_pipeline: Callable[..., Pipeline]):
    """Prevents: a description that an analyst writes costs a whole file each time."""
    pipeline = new_pipeline(reconcile=Reconcile())
    changed_rows(pipeline)
    report = meddled(pipeline, "ended", lambda: other_users.describes(pipeline))
    assert isinstance(report.plan, UpdateTables)
    assert pipeline.wrong() == []
    report = pipeline.run()
    assert isinstance(report.plan, NoChange)
    assert report.warnings == ()


@pytest.mark.slow
def test_what_was_seen_meanwhile_is_remembered(new_pipeline: Callable[..., Pipeline]):
    """Prevents: rows of another user below an update of ours, whose time stamp hides theirs, pass
    for ours once the publish in full that was to replace them has failed."""
    pipeline = new_pipeline(on={"revisions": False})
    changed_rows(pipeline)
    held = ExitStack()
    looks: list[str] = []

    class Server(Proxy):
        """Holds our job until their publish is over, and takes no whole file after it."""

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
