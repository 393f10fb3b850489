"""How Dagster keeps refreshes of one data source apart, and which snapshots they leave."""

from collections.abc import Sequence
from multiprocessing import get_context
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import dagster as dg
import pytest
from dagster._core.test_utils import create_run_for_test
from filelock import FileLock

from tableau_pipeline.components.journal import records_of
from tableau_pipeline.components.published_datasource import refresh_assets
from tableau_pipeline.core.journal import Claim, ClaimRelease, Owner
from tableau_pipeline.errors import RefreshError
from tableau_pipeline.publishing.site import TableauSite
from tableau_pipeline.resources import SnapshotIOManager, SparkResource
from tableau_pipeline.snapshots.store import LocalStorage, SnapshotStore
from tableau_pipeline_tests.components.support.location import (
    MODEL,
    Location,
    failure,
    store,
    withheld,
)
from tableau_pipeline_tests.refresh.support.proxies import Proxy
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


KEEP_NOTHING = 1e-9


@pytest.mark.slow
def test_what_another_data_source_holds_stays(location: Location):
    """Prevents: a full refresh of each data source that is refreshed less often than another."""
    location.model()
    assert location.refresh("monthly").success
    location.model()
    assert location.refresh("weekly").success
    location.model()
    location.days_pass()
    result = location.refresh("weekly")
    assert location.stored() == [1, 3]
    assert "Removed 1 old snapshots" in location.log(result)
    assert location.refresh("monthly").success
    assert location.stored() == [3]


@pytest.mark.parametrize(
    "published", [pytest.param(False, marks=pytest.mark.slow), True], ids=["first publish", "later"]
)
def test_what_an_open_intent_is_about_stays(
    location: Location, monkeypatch: pytest.MonkeyPatch, published: bool
):
    """Prevents: no way to tell what an interrupted refresh left, once another one went on."""
    location.model()
    if published:
        assert location.refresh("torn").success
    location.model()

    def no_answer(*_: Any, **__: Any) -> None:
        raise RefreshError("the line went dead")

    with monkeypatch.context() as patch:
        patch.setattr(TableauSite, "publish", no_answer)
        assert not location.refresh("torn", keep_days=KEEP_NOTHING, full=True).success
    location.model()
    location.model()
    assert location.refresh("sibling", keep_days=KEEP_NOTHING).success
    assert location.stored() == ([1] if published else []) + [2, 4]
    assert location.refresh("torn", keep_days=KEEP_NOTHING).success
    assert location.stored() == [4]


class Listed(SnapshotIOManager):
    """Notes what is listed of the snapshots."""

    prefixes: ClassVar[list[str]] = []

    @property
    def store(self) -> SnapshotStore:
        """The same store."""
        return SnapshotStore(Listing(LocalStorage(Path(self.root).resolve()), self.prefixes))


class Listing(Proxy):
    def __init__(self, behind: LocalStorage, prefixes: list[str]) -> None:
        super().__init__(behind)
        self._prefixes = prefixes

    def before(self, name: str, args: Sequence[Any]) -> None:
        if name == "list":
            self._prefixes.append(args[0])


def test_a_run_of_many_data_sources_collects_once(location: Location):
    """Prevents: each data source of a run lists every model, in a store of many of both."""
    keys = ["north", "south", "west"]
    location.model()
    location.model()
    location.days_pass()
    snapshots = Listed(root=str(location.root), spark=SparkResource())
    job = dg.Definitions(
        assets=[refresh_assets(location.declaration(key), None) for key in keys],
        resources={**location.resources(), "snapshots": snapshots},
        executor=dg.in_process_executor,
    ).resolve_implicit_global_asset_job_def()
    for runs in (1, 2):
        result = job.execute_in_process(instance=location.instance)
        assert Listed.prefixes.count("") == runs
        assert location.log(result).count("Removed 1 old snapshots") == 2 - runs
    assert location.stored() == [2]


@pytest.mark.slow
def test_only_a_refresh_that_succeeded_collects(location: Location):
    """Prevents: a rehearsal that removes what it was rehearsing with."""
    location.model()
    location.model()
    location.days_pass()
    assert location.refresh("weekly", dry_run=True).success
    assert location.refresh("weekly", build_only=True).success
    location.sandbox.stop()
    assert not location.refresh("weekly").success
    assert location.stored() == [1, 2]


@pytest.mark.slow
def test_a_failure_is_a_warning(location: Location, monkeypatch: pytest.MonkeyPatch):
    """Prevents: a refresh that failed for a file that nobody needs, after it has published."""
    location.model()
    location.model()
    location.days_pass()
    unlink = Path.unlink

    def no_permission(path: Path, **more: Any) -> None:
        if path.is_relative_to(location.store.folder(MODEL).path):
            raise PermissionError(f"not allowed: {path}")
        unlink(path, **more)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", no_permission)
        result = location.refresh("weekly")
    assert result.success
    assert "Old snapshots were not removed: not allowed" in location.log(result)
    published = location.instance.get_latest_materialization_event(dg.AssetKey("weekly"))
    assert published
    assert published.run_id == result.run_id


@pytest.mark.slow
def test_keep_days_is_for_the_user_to_set(location: Location):
    """Prevents: a setting that does nothing."""
    location.model()
    location.model()
    location.days_pass(80)
    assert location.refresh("weekly", keep_days=85).success
    assert location.stored() == [1, 2]
    assert location.refresh("weekly", keep_days=75).success
    assert location.stored() == [2]
