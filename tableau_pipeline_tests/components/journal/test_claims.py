"""How Dagster keeps refreshes of one data source apart."""

from multiprocessing import get_context
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dagster as dg
import pytest
from dagster._core.test_utils import create_run_for_test
from filelock import FileLock

from tableau_pipeline.components.journal import records_of
from tableau_pipeline.core.journal import Claim, ClaimRelease, Owner
from tableau_pipeline.errors import RefreshError
from tableau_pipeline.publishing.site import TableauSite
from tableau_pipeline_tests.components.support.location import Location, failure
from tableau_pipeline_tests.components.support.records import store, withheld
from tableau_pipeline_tests.waiting import until

ELSEWHERE = {"boot": "another machine", "namespace": "pid:[1]", "pid": 1}


def claim_of(location: Location, status: dg.DagsterRunStatus, **owner: Any) -> str:
    """A refresh that has begun in another run; the id of the run."""
    run = create_run_for_test(location.instance, status=status)
    owner = {"run_id": run.run_id, "step": "busy", **ELSEWHERE, **owner}
    number = location.history("busy").number + 1
    store(location, Claim(refresh=number, owner=Owner(**owner)))
    return run.run_id


@pytest.mark.slow
def test_a_claim_of_a_live_run_is_waited_for_and_named(location: Location):
    """Prevents: two refreshes that send at once, or one that waits for ever, and nobody knows."""
    location.model()
    run_id = claim_of(location, dg.DagsterRunStatus.STARTED)
    result = location.refresh("busy", claim=1)
    message = failure(result)
    for part in (run_id, "busy", "terminate that run"):
        assert part in message
    assert f"Run {run_id} refreshes busy: waiting for it" in location.log(result)
    assert location.jobs("busy") == []
    run = location.instance.get_run_by_id(run_id)
    assert run
    location.instance.report_run_canceled(run)
    assert location.refresh("busy", claim=1).success


@pytest.mark.parametrize(
    "status",
    [
        dg.DagsterRunStatus.FAILURE,
        pytest.param(dg.DagsterRunStatus.CANCELED, marks=pytest.mark.slow),
        pytest.param(dg.DagsterRunStatus.SUCCESS, marks=pytest.mark.slow),
    ],
)
def test_a_claim_of_a_run_that_has_ended_is_void(location: Location, status: dg.DagsterRunStatus):
    """Prevents: a data source that nobody can refresh any more after a crash."""
    location.model()
    claim_of(location, status)
    assert location.refresh("busy", claim=0).success
    deleted = claim_of(location, dg.DagsterRunStatus.STARTED)
    location.instance.delete_run(deleted)
    assert location.refresh("busy", claim=0).success


@pytest.mark.slow
def test_a_claim_of_a_process_that_is_gone_is_void(
    location: Location, monkeypatch: pytest.MonkeyPatch
):
    """Prevents: an hour of waiting for a worker that was killed, until Dagster notices."""
    location.model()
    with withheld(ClaimRelease, monkeypatch=monkeypatch):
        assert location.refresh("busy").success
    (mine,) = (each for each in records_of(location.instance, "busy") if isinstance(each, Claim))
    started = dg.DagsterRunStatus.STARTED
    here = {"boot": mine.owner.boot, "namespace": mine.owner.namespace}
    claim_of(location, started, **here, pid=2**22 + 1)
    assert location.refresh("busy", claim=0).success
    claim_of(location, started, **here, pid=mine.owner.pid)
    assert "terminate that run" in failure(location.refresh("busy", claim=0))


@pytest.mark.slow
def test_a_claim_of_an_earlier_attempt_is_void(location: Location, monkeypatch: pytest.MonkeyPatch):
    """Prevents: a retry that waits for itself."""
    location.model()
    attempts = iter([True, False])
    publish = TableauSite.publish

    def once(*args: Any, **more: Any) -> Any:
        if next(attempts):
            raise RefreshError("the line went dead")
        return publish(*args, **more)

    with withheld(ClaimRelease, monkeypatch=monkeypatch), monkeypatch.context() as patch:
        patch.setattr(TableauSite, "publish", once)
        result = location.refresh("busy", claim=0, retries=1)
    assert result.success
    assert location.wrong("busy") == []


def _refresh(sandbox: SimpleNamespace, root: Path) -> None:
    """What a process of its own does; the environment names its instance."""
    nobody: Any = sandbox
    with dg.DagsterInstance.get() as instance:
        Location(nobody, root, instance).refresh("busy")


@pytest.mark.slow
def test_of_runs_that_begin_at_once_one_sends(location: Location):
    """Prevents: two triggers of one moment publish side by side, and the older rows win."""
    location.model()
    server = location.sandbox
    known = SimpleNamespace(url=server.url, user=server.user, password=server.password)
    processes = [
        get_context("spawn").Process(target=_refresh, args=(known, location.root)) for _ in range(2)
    ]
    with server.held_jobs():
        for process in processes:
            process.start()
        until(lambda: location.jobs("busy"), seconds=120, what="one of them sends")
        until(lambda: waiting(location), seconds=120, what="the other one waits")
        assert len(location.jobs("busy")) == 1
    for process in processes:
        process.join(120)
    tags = [run.tags["tableau/busy"] for run in location.instance.get_runs()]
    assert sorted(tags) == ["no change", "publish (create)"]
    assert len(location.jobs("busy")) == 1
    assert location.wrong("busy") == []


def waiting(location: Location) -> bool:
    """Whether a run says that it waits for another one."""
    logs = [location.instance.all_logs(run.run_id) for run in location.instance.get_runs()]
    messages = [entry.user_message for entries in logs for entry in entries]
    return any("refreshes busy: waiting for it" in each for each in messages)


def test_instances_that_keep_nothing_have_a_lock_file(location: Location, tmp_path: Path):
    """Prevents: two commands on a laptop that send at once, as neither sees the other's records."""
    location.model()
    location.instance = dg.DagsterInstance.ephemeral()
    path = tmp_path / "locks" / "busy.lock"
    path.parent.mkdir()
    with FileLock(path):
        message = failure(location.refresh("busy", claim=0.2))
        assert str(path) in message
        assert "Look for a process that hangs" in message
        assert location.jobs("busy") == []
    assert location.refresh("busy", claim=0.2).success


@pytest.mark.slow
def test_instances_that_keep_nothing_are_one_deployment(location: Location):
    """Prevents: a laptop whose second command is refused as the one of another deployment."""
    location.model()
    location.instance = dg.DagsterInstance.ephemeral()
    assert location.refresh("busy").success
    location.model()
    location.instance = dg.DagsterInstance.ephemeral()
    # It asks the server what it holds, as it knows of no refresh before.
    assert location.refresh("busy").success
    assert location.wrong("busy") == []
