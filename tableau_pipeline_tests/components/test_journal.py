"""What Dagster keeps of refreshes, how that keeps them apart, and which snapshots they leave."""

import os
from dataclasses import replace
from datetime import UTC, datetime
from multiprocessing import get_context
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest
import yaml
from dagster._core.test_utils import create_run_for_test
from filelock import FileLock
from sqlalchemy import text

from tableau_pipeline.components.journal import JOURNAL, journal_event, records_of
from tableau_pipeline.components.published_datasource import refresh_assets
from tableau_pipeline.core.checkpoint import Outcome
from tableau_pipeline.core.journal import (
    Claim,
    ClaimRelease,
    Intent,
    Owner,
    Record,
    Recovered,
    read_history,
)
from tableau_pipeline.errors import RefreshError
from tableau_pipeline.outcome import Doubt
from tableau_pipeline.publishing.site import TableauSite
from tableau_pipeline.snapshots.version_store import LocalStorage
from tableau_pipeline_tests.components.support.location import (
    KEY,
    MODEL,
    Location,
    decision,
    failure,
    look,
    store,
    withheld,
)
from tableau_pipeline_tests.conftest import ROOT
from tableau_pipeline_tests.dagster_servers import until
from tableau_pipeline_tests.postgresql import running_postgresql
from tableau_pipeline_tests.refresh.support.models import flights


@pytest.mark.slow
@pytest.mark.parametrize("others", [0, pytest.param(60, marks=pytest.mark.slow)])
def test_a_checkpoint_that_is_stored_late_is_none_of_the_newest(
    location: Location, monkeypatch: pytest.MonkeyPatch, others: int
):
    """Prevents: an older run, whose record comes last, brings back what was published before."""
    location.model()
    with withheld(ClaimRelease, monkeypatch=monkeypatch) as late:
        assert location.refresh("busy").success
    location.model(flights(9))
    assert location.refresh("busy").success
    newest = location.checkpoint("busy")
    look(location, others)
    (closing,) = late
    assert closing.refresh < newest.refresh
    store(location, closing)
    assert location.checkpoint("busy") == newest
    assert decision(location.refresh("busy")).startswith("no change")
    assert location.wrong("busy") == []


@pytest.mark.slow
def test_a_lost_checkpoint_leaves_the_guards_on(location: Location):
    """Prevents: 1,000 rows that become one, unasked, because no record of the 1,000 is left."""
    location.publish("busy")
    checkpoint = location.checkpoint("busy")
    location.instance.wipe_assets([JOURNAL])
    location.model(flights(1))
    assert "1 rows where 8 are published" in failure(location.refresh("busy"))
    location.model(flights(7))
    assert "no record shows what it holds" in decision(location.refresh("busy"))
    assert location.wrong("busy") == []
    assert location.checkpoint("busy").luid == checkpoint.luid
    assert decision(location.refresh("busy")).startswith("no change")


@pytest.mark.slow
def test_deleted_runs_take_no_records_along(location: Location):
    """Prevents: everything is published again after somebody tidied up the list of runs."""
    location.model()
    result = location.refresh("busy")
    assert result.success
    location.instance.delete_run(result.run_id)
    assert decision(location.refresh("busy")).startswith("no change")


OTHER_TYPE = flights(8).set_column(2, "delay", pa.array(["late"] * 8))


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of the pages that anybody reads of Dagster's observations."""
    pages: list[int] = []
    fetch = dg.DagsterInstance.fetch_observations

    def counted(instance: dg.DagsterInstance, *args: Any, **more: Any) -> Any:
        pages.append(more["limit"])
        return fetch(instance, *args, **more)

    monkeypatch.setattr(dg.DagsterInstance, "fetch_observations", counted)
    return pages


def refused(location: Location, times: int) -> None:
    """Add the records of refreshes that were refused, as an automation leaves every half hour."""
    first = location.history("busy").number + 1
    for number in range(first, first + times):
        claim = Claim(refresh=number, owner=Owner(run_id="gone"))
        store(location, claim)
        store(location, ClaimRelease(refresh=number, claim=claim.id, run_id="gone"))


def multiply(location: Location, asset_key: dg.AssetKey, times: int) -> None:
    """Add copies of all events of an asset to Dagster's database: by the thousands in no time."""
    columns = "run_id, event, dagster_event_type, timestamp, step_key, asset_key, partition"
    key = asset_key.to_string()
    storage: Any = location.instance.event_log_storage
    copies = f"INSERT INTO event_logs ({columns}) SELECT {columns} FROM event_logs"
    with storage.index_connection() as connection:
        for _ in range(times.bit_length() - 1):
            connection.execute(text(f"{copies} WHERE asset_key = :key"), {"key": key})


def check_never_forgotten(
    location: Location, reads: list[int], *, others: int, own: int, factor: int = 1
) -> None:
    """A checkpoint, and a type change that was refused for long, are still known."""
    location.publish("busy")
    location.model(OTHER_TYPE)
    assert "schema changed" in failure(location.refresh("busy"))
    published = location.history("busy").checkpoint
    look(location, others)
    multiply(location, KEY, factor)
    refused(location, own)
    reads.clear()
    assert location.history("busy").checkpoint == published
    assert len(reads) == 2
    reads.clear()
    assert "schema changed" in failure(location.refresh("busy"))
    assert len(reads) <= 7, "two for each look at the records; Dagster itself takes one"
    assert sum(reads) <= 350
    # Its snapshot stays, too.
    location.days_pass()
    location.model(asset_key="raw/other")
    assert location.refresh("other", keep_days=1e-9).success
    assert 1 in location.stored(MODEL)
    # The name in the declaration changes: it is still the same data source.
    luid = location.checkpoint("busy").luid
    location.model(flights(8))
    assert location.refresh("busy", declared={"name": "busier"}).success
    assert location.checkpoint("busy").luid == luid
    assert location.wrong("busy", {"name": "busier"}) == []


@pytest.mark.slow
def test_checkpoint_is_found_after_60_refusals(location: Location, reads: list[int]):
    """Prevents: a type change that was refused for days is published by itself; twins."""
    check_never_forgotten(location, reads, others=30, own=60)


@pytest.mark.slow
def test_checkpoint_is_found_after_10_000_observations(location: Location, reads: list[int]):
    """Prevents: the same after a year of refusals, dry runs and other people's sensors."""
    check_never_forgotten(location, reads, others=40, own=300, factor=256)


@pytest.mark.slow
def test_checkpoint_is_found_in_postgresql(
    location: Location, reads: list[int], monkeypatch: pytest.MonkeyPatch
):
    """Prevents: the same in the database of a deployment."""
    settings = yaml.safe_load((ROOT / "deploy" / "dagster.yaml").read_text("utf-8"))
    with running_postgresql() as postgresql:
        for name, value in postgresql.settings.items():
            monkeypatch.setenv(name, value)
        with dg.instance_for_test(overrides={"storage": settings["storage"]}) as instance:
            deployed = replace(location, instance=instance)
            check_never_forgotten(deployed, reads, others=40, own=300, factor=256)


def interrupted(location: Location, times: int) -> None:
    """Add the records of refreshes that were killed while they sent, one after another."""
    base, known = location.checkpoint("busy"), records_of(location.instance, "busy")
    for _ in range(times):
        history = read_history(known)
        number = history.number + 1
        recovered = history.recovered
        for each in history.intents:
            recovered = recovered.after(each.model_copy(update={"outcome": Outcome.LOST}))
        intent = Intent(
            refresh=number,
            recorded_at=datetime.now(UTC),
            run_id="gone",
            mode=None,
            name="busy",
            project_id="",
            luid=base.luid,
            target=base.model_copy(update={"refresh": number}),
        )
        records: list[Record] = [Claim(refresh=number, owner=Owner(run_id="gone"))]
        records += [recovered.recorded_by(number)] if history.intents else []
        known += (*records, intent)
        for record in (*records, intent):
            store(location, record)


@pytest.mark.slow
def test_checkpoint_is_found_after_60_kills(location: Location, reads: list[int]):
    """Prevents: a refresh that is killed every night for months costs more and more reads."""
    location.publish("busy")
    luid = location.checkpoint("busy").luid
    interrupted(location, 60)
    reads.clear()
    history = location.history("busy")
    assert len(reads) <= 2
    assert history.checkpoint
    assert history.checkpoint.luid == luid
    assert len(history.intents) == 1, "the last one; the others are accounted for"
    assert "interrupted" in decision(location.refresh("busy"))
    assert location.wrong("busy") == []


@pytest.mark.slow
def test_a_refused_refresh_of_a_lost_request_keeps_what_it_found_out(location: Location):
    """Prevents: the job of an interrupted request is asked for again and again, until it is
    forgotten."""
    location.publish("busy")
    interrupted(location, 1)
    location.model(OTHER_TYPE)
    assert not location.refresh("busy").success
    history = location.history("busy")
    assert history.intents == ()
    assert history.recovered.distrust
    assert history.recovered.distrust.code is Doubt.OUTCOME


def newer(record: Record) -> dg.AssetObservation:
    """A record as a later release may store it."""
    event = journal_event("busy", record)
    ((name, value),) = event.metadata.items()
    assert isinstance(value, dg.JsonMetadataValue)
    assert isinstance(value.data, dict)
    data = {**value.data, "format": 99, "release": "9.8.7", "tenant": "north"}
    return dg.AssetObservation(
        event.asset_key, partition=event.partition, metadata={name: dg.MetadataValue.json(data)}
    )


CLAIM = Claim(refresh=7, owner=Owner(run_id="newer"))


@pytest.mark.slow
@pytest.mark.parametrize(
    "record", [CLAIM, Recovered(refresh=7, through=6)], ids=["claim", "requests"]
)
def test_a_record_of_a_later_release_stops_a_refresh(location: Location, record: Record):
    """Prevents: in a rolling upgrade the old release sends beside the new one, as it does not see
    the claim or the open request of that one."""
    location.publish("busy")
    location.model(flights(7))
    jobs = len(location.jobs("busy"))
    location.instance.report_runless_asset_event(newer(record))
    for config in ({}, {"dry_run": True}, {"full": True}):
        message = failure(location.refresh("busy", **config))
        assert "release 9.8.7 of tableau_pipeline wrote it" in message
        assert JOURNAL.to_user_string() in message
        assert "Upgrade this deployment" in message
    assert len(location.jobs("busy")) == jobs


@pytest.mark.slow
def test_a_record_of_a_later_release_keeps_all_snapshots(location: Location):
    """Prevents: snapshots that only the newer release knows to be published are removed."""
    for _ in range(3):
        location.model()
    location.days_pass()
    location.instance.report_runless_asset_event(newer(Recovered(refresh=7, through=6)))
    result = location.refresh("sibling", keep_days=1e-9)
    assert result.success
    assert "Old snapshots were not removed" in location.log(result)
    assert "release 9.8.7" in location.log(result)
    assert location.stored() == [1, 2, 3]


@pytest.mark.slow
def test_events_of_a_data_source_are_those_that_people_look_for(location: Location):
    """Prevents: plots and events of the published asset that are broken by records of ours."""
    location.publish("busy")
    location.publish("busy", full=True)
    assert location.instance.fetch_observations(KEY, limit=10).records == []
    assert len(location.instance.fetch_materializations(KEY, limit=10).records) == 2
    assert records_of(location.instance, "busy")


ELSEWHERE = {"boot": "another machine", "namespace": "pid:[1]", "pid": 1}


def claim_of(location: Location, status: dg.DagsterRunStatus, **owner: Any) -> str:
    """A refresh that has begun in another run; the id of the run."""
    run = create_run_for_test(location.instance, status=status)
    owner = {"run_id": run.run_id, "step": "busy", **ELSEWHERE, **owner}
    number = location.history("busy").number + 1
    store(location, Claim(refresh=number, owner=Owner(**owner)))
    return run.run_id


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


@pytest.mark.slow
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
    location.publish("sibling", keep_days=KEEP_NOTHING)
    assert location.stored() == ([1] if published else []) + [2, 4]
    assert location.refresh("torn", keep_days=KEEP_NOTHING).success
    assert location.stored() == [4]


@pytest.mark.slow
def test_a_run_of_many_data_sources_collects_once(
    location: Location, monkeypatch: pytest.MonkeyPatch
):
    """Prevents: each data source of a run lists every model, in a store of many of both."""
    listed, listing = [], LocalStorage.list
    monkeypatch.setattr(
        LocalStorage, "list", lambda self, prefix: listed.append(prefix) or listing(self, prefix)
    )
    location.model()
    location.model()
    location.days_pass()
    job = dg.Definitions(
        assets=[refresh_assets(location.declaration(key), None) for key in ("north", "south")],
        resources=location.resources(),
        executor=dg.in_process_executor,
    ).resolve_implicit_global_asset_job_def()
    for runs in (1, 2):
        result = job.execute_in_process(instance=location.instance)
        assert listed.count("") == runs
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
def test_keep_days_is_for_the_user_to_set(location: Location):
    """Prevents: a setting that does nothing."""
    location.model()
    location.model()
    location.days_pass(80)
    assert location.refresh("weekly", keep_days=85).success
    assert location.stored() == [1, 2]
    assert location.refresh("weekly", keep_days=75).success
    assert location.stored() == [2]


@pytest.mark.slow
def test_values_of_metadata_stay_while_a_record_names_them(location: Location, tmp_path: Path):
    """Prevents: files of metadata that nobody needs pile up, or one that is needed is gone."""
    location.model()
    for tag in ("first", "second", "second"):
        assert location.refresh("said", declared={"tags": (tag,)}).success
        files = [*(tmp_path / "metadata").iterdir()]
        for each in files:
            os.utime(each, (0, 0))
    assert [each.stem for each in files] == [*location.checkpoint("said").written]
