"""The journal, which records refreshes: its claims (locks), and the snapshots that it keeps."""

import json
import os
import time
from dataclasses import replace
from datetime import UTC, datetime
from multiprocessing import get_context
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest

from tableau_pipeline.components.journal import (
    FORMER_JOURNAL,
    FORMER_RECORDS,
    histories,
    journal_of,
)
from tableau_pipeline.components.lineage import Lineage, lineage_definitions
from tableau_pipeline.components.notifications import Notify, notification_sensor
from tableau_pipeline.components.published_datasource import PublishedDatasource, refresh_assets
from tableau_pipeline.components.quality_warnings import warning_definitions
from tableau_pipeline.core.checkpoint import Outcome
from tableau_pipeline.core.journal import (
    Claim,
    ClaimRelease,
    History,
    Intent,
    Owner,
    Record,
    Recovered,
)
from tableau_pipeline.core.journal_store import SILENCE, StoredJournal, owner_here
from tableau_pipeline.errors import RefreshError
from tableau_pipeline.objects.storage import LocalStorage
from tableau_pipeline.outcome import Doubt
from tableau_pipeline.publishing.site import TableauSite
from tableau_pipeline_tests.components.support.location import (
    ELSEWHERE,
    KEY,
    Location,
    claim_of,
    decision,
    failure,
    forget,
    record_files,
    records_of,
    store,
    withheld,
)
from tableau_pipeline_tests.dagster_servers import until
from tableau_pipeline_tests.refresh.support.models import flights


@pytest.mark.slow
def test_sensors_read_no_records(location: Location, tmp_path: Path):
    """Prevents: each sensor reads the records of each data source once a minute."""
    declared = {"freshness": {"within": "24h"}, "quality_warning": True}
    busy = location.declaration("busy", declared)
    assert isinstance(busy, PublishedDatasource)
    events = {"transport": {"type": "file", "log_file_path": f"{tmp_path}/events"}}
    lineage = Lineage(openlineage=events, datasource="luid")
    sensors = [
        notification_sensor(Notify(urls=("json://127.0.0.1:9",)), [busy]),
        *(warning_definitions([busy]).sensors or ()),
        *(lineage_definitions(lineage, [busy]).sensors or ()),
    ]
    location.publish("busy", declared=declared)
    for file in record_files(location.instance, "busy"):
        file.write_text("damaged")
    results = []
    for sensor in sensors:
        with dg.build_sensor_context(location.instance) as context:
            results.append(sensor.evaluate_tick(context))
    assert [result.skip_message for result in results] == [
        "Nothing new to report",
        None,
        "Sent 1 refreshes",
    ]
    (warnings,) = results[1].run_requests or ()
    assert [*warnings.run_config["ops"].values()] == [{"config": {"texts": {"busy": ""}}}]


@pytest.mark.slow
def test_a_lost_checkpoint_leaves_the_guards_on(location: Location):
    """Prevents: lost records switch the guards off, so that 1 row replaces 1,000 unasked."""
    location.publish("busy")
    checkpoint = location.checkpoint("busy")
    forget(location.instance, "busy")
    location.model(flights(1))
    assert "1 rows where 8 are published" in failure(location.refresh("busy"))
    location.model(flights(7))
    assert "no record shows what it holds" in decision(location.refresh("busy"))
    assert location.wrong("busy") == []
    assert location.checkpoint("busy").luid == checkpoint.luid
    assert decision(location.refresh("busy")).startswith("no change")


@pytest.mark.slow
def test_a_lost_instance_takes_no_records_along(location: Location):
    """Prevents: after a loss of Dagster's data, refreshes publish everything or are refused."""
    location.model()
    result = location.refresh("busy")
    assert result.success
    location.instance.delete_run(result.run_id)
    location.instance.wipe_assets([KEY])
    assert decision(location.refresh("busy")).startswith("no change")
    with dg.instance_for_test() as instance:
        elsewhere = replace(location, instance=instance)
        assert decision(elsewhere.refresh("busy")).startswith("no change")
        location.model(flights(9))
        assert decision(elsewhere.refresh("busy")).startswith("update")
    assert decision(location.refresh("busy")).startswith("no change")
    assert location.wrong("busy") == []


@pytest.mark.slow
def test_records_of_an_earlier_release_are_named(location: Location):
    """Prevents: after an upgrade, no message says that old records stayed in the event log."""
    location.model()
    former = dg.AssetObservation(FORMER_JOURNAL, partition="claims:busy")
    location.instance.report_runless_asset_event(former)
    first = location.refresh("busy")
    assert first.success
    assert FORMER_RECORDS in location.log(first)
    assert FORMER_RECORDS not in location.log(location.refresh("busy"))


def test_records_are_read_by_few_requests(location: Location, monkeypatch: pytest.MonkeyPatch):
    """Prevents: `status` of many data sources in an object store takes minutes."""
    keys = [f"busy_{number}" for number in range(3)]
    for key in keys:
        journal = journal_of(location.instance, key)
        journal.append(lambda _: CLAIM, after=journal.history())
    asked: list[str] = []
    for name in ("read", "list", "put", "replace"):
        usual = getattr(LocalStorage, name)

        def counted(
            storage: LocalStorage, key: str, *more: Any, name: str = name, usual: Any = usual
        ) -> Any:
            asked.append(name)
            return usual(storage, key, *more)

        monkeypatch.setattr(LocalStorage, name, counted)
    found = histories(location.instance, keys).values()
    assert all(isinstance(history, History) and history.number for history in found)
    # One read is for the deployment, which all data sources share.
    assert sorted(asked) == [*["list"] * len(keys), *["read"] * (len(keys) + 1)]


OTHER_TYPE = flights(8).set_column(2, "delay", pa.array(["late"] * 8))


def interrupted(location: Location, times: int) -> None:
    """Record refreshes that were killed while they sent a request, one after another."""
    base = location.checkpoint("busy")
    for _ in range(times):
        history = location.history("busy")
        number = history.refresh + 1
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
        gone = owner_here("gone").model_copy(update={"pid": 2**22 + 1})
        records: list[Record] = [Claim(refresh=number, owner=gone)]
        records += [recovered.recorded_by(number)] if history.intents else []
        for record in (*records, intent):
            store(location, record)


@pytest.mark.slow
def test_a_refused_refresh_of_a_lost_request_keeps_what_it_found_out(location: Location):
    """Prevents: each refresh asks again for the job of an interrupted request."""
    location.publish("busy")
    interrupted(location, 1)
    location.model(OTHER_TYPE)
    assert not location.refresh("busy").success
    history = location.history("busy")
    assert history.intents == ()
    assert history.recovered.distrust
    assert history.recovered.distrust.code is Doubt.OUTCOME


CLAIM = Claim(refresh=7, owner=Owner(run_id="newer"))


def upgraded(location: Location, record: Record) -> None:
    """Store a record in the format of a later release."""
    store(location, record)
    file = record_files(location.instance, "busy")[-1]
    newer = {"format": 99, "release": "9.8.7", "tenant": "north"}
    file.write_text(json.dumps(json.loads(file.read_text("utf-8")) | newer), "utf-8")


@pytest.mark.slow
@pytest.mark.parametrize("record", [CLAIM, Recovered(refresh=7)], ids=["claim", "requests"])
def test_a_record_of_a_later_release_stops_a_refresh(location: Location, record: Record):
    """Prevents: in a rolling upgrade, the old release sends despite the new release's claim."""
    location.publish("busy")
    location.model(flights(7))
    jobs = len(location.jobs("busy"))
    upgraded(location, record)
    (*_, file) = record_files(location.instance, "busy")
    for config in ({}, {"dry_run": True}, {"full": True}):
        message = failure(location.refresh("busy", **config))
        assert "release 9.8.7 of tableau_pipeline wrote it" in message
        assert str(file) in message
        assert "Upgrade this deployment" in message
    assert len(location.jobs("busy")) == jobs


@pytest.mark.slow
def test_a_record_of_a_later_release_keeps_all_snapshots(location: Location):
    """Prevents: an old release removes snapshots that only newer records mention."""
    for _ in range(3):
        location.model()
    location.days_pass()
    upgraded(location, Recovered(refresh=7))
    result = location.refresh("sibling", keep_days=1e-9)
    assert result.success
    assert "Old snapshots were not removed" in location.log(result)
    assert "release 9.8.7" in location.log(result)
    assert location.stored() == [1, 2, 3]


@pytest.mark.slow
def test_events_of_a_data_source_are_those_that_people_look_for(location: Location):
    """Prevents: internal records disturb the plots and events of a published asset."""
    location.publish("busy")
    location.publish("busy", full=True)
    assert location.instance.fetch_observations(KEY, limit=10).records == []
    assert len(location.instance.fetch_materializations(KEY, limit=10).records) == 2
    assert records_of(location.instance, "busy")


@pytest.mark.parametrize(
    "status",
    [
        dg.DagsterRunStatus.FAILURE,
        pytest.param(dg.DagsterRunStatus.CANCELED, marks=pytest.mark.slow),
        pytest.param(dg.DagsterRunStatus.SUCCESS, marks=pytest.mark.slow),
    ],
)
def test_a_claim_of_a_run_that_has_ended_is_void(location: Location, status: dg.DagsterRunStatus):
    """Prevents: after a crash, no refresh of the data source can begin."""
    location.model()
    claim_of(location, status)
    assert location.refresh("busy", claim=0).success


@pytest.mark.slow
def test_a_claim_of_an_unknown_run_holds_until_its_heartbeat_stops(location: Location):
    """Prevents: an unknown run counts as ended while it sends, or blocks refreshes for ever."""
    location.model()
    run = claim_of(location, dg.DagsterRunStatus.STARTED)
    location.instance.delete_run(run)
    message = failure(location.refresh("busy", claim=0))
    assert f"refreshed by run {run}" in message
    assert "tableau-pipeline unlock busy" in message
    (file,) = record_files(location.instance, "busy")
    silent_since = time.time() - SILENCE.total_seconds() - 1
    for written in file.parent.iterdir():
        os.utime(written, (silent_since, silent_since))
    assert location.refresh("busy", claim=0).success


@pytest.mark.slow
def test_a_claim_of_a_process_that_is_gone_is_void(
    location: Location, monkeypatch: pytest.MonkeyPatch
):
    """Prevents: a refresh waits an hour for a killed worker, until Dagster notices."""
    location.model()
    with withheld(ClaimRelease, monkeypatch=monkeypatch):
        assert location.refresh("busy").success
    mine = location.history("busy").claim
    assert mine
    started = dg.DagsterRunStatus.STARTED
    here = {"boot": mine.owner.boot, "namespace": mine.owner.namespace}
    claim_of(location, started, **here, pid=2**22 + 1)
    assert location.refresh("busy", claim=0).success
    claim_of(location, started, **here, pid=mine.owner.pid)
    assert "terminate a run in Dagster" in failure(location.refresh("busy", claim=0))


@pytest.mark.slow
def test_a_claim_of_an_earlier_attempt_is_void(location: Location, monkeypatch: pytest.MonkeyPatch):
    """Prevents: a retry waits for the claim of its own first attempt."""
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


def test_which_attempt_of_which_step_has_ended(location: Location):
    """Prevents: a claim ends as soon as another attempt or another step of its run ends."""
    seen: list[list[bool]] = []

    def look(instance: dg.DagsterInstance, run_id: str) -> None:
        owners = [("done", 0), ("busy", 0), ("busy", 1)]
        claims = [
            Claim(refresh=1, owner=Owner(run_id=run_id, step=step, attempt=attempt, **ELSEWHERE))
            for step, attempt in owners
        ]
        seen.append([journal_of(instance, "busy").has_ended(claim) for claim in claims])

    @dg.op
    def done() -> None:
        pass

    @dg.op(retry_policy=dg.RetryPolicy(max_retries=1), ins={"after": dg.In(dg.Nothing)})
    def busy(context: dg.OpExecutionContext) -> None:
        look(context.instance, context.run_id)
        if not context.retry_number:
            raise RefreshError("the line went dead")

    @dg.job
    def retried() -> None:
        busy(after=done())

    result = retried.execute_in_process(instance=location.instance)
    assert result.success
    look(location.instance, result.run_id)
    assert seen == [[True, False, False], [True, True, False], [True, True, True]]


def test_environments_and_deployments_have_journals_of_their_own(
    location: Location, monkeypatch: pytest.MonkeyPatch
):
    """Prevents: a pull request waits for production, or continues production's history."""

    def journals() -> list[StoredJournal]:
        ours = journal_of(location.instance, "busy")
        with monkeypatch.context() as patch:
            patch.setenv("TABLEAU_PROJECT_ROOT", "Staging")
            staging = journal_of(location.instance, "busy")
            patch.setenv("PIPELINE_DEPLOYMENT", "second")
            return [ours, staging, journal_of(location.instance, "busy")]

    for number, journal in enumerate(journals(), 1):
        assert journal.history().number == 0
        claim = Claim(refresh=number, owner=Owner(run_id="theirs"))
        journal.append(lambda _, claim=claim: claim, after=journal.history())
    assert [journal.history().refresh for journal in journals()] == [1, 2, 3]
    ours, staging, second = (journal.instance for journal in journals())
    assert staging == f"{ours}@Staging"
    assert second.endswith("@Staging")
    assert not second.startswith(ours)
    by_root = journal_of(location.instance, "busy", root="Staging")
    assert by_root.history().refresh == 2


def _refresh(sandbox: SimpleNamespace, root: Path) -> None:
    """Refresh in another process, which finds its instance by environment variables."""
    nobody: Any = sandbox
    with dg.DagsterInstance.get() as instance:
        Location(nobody, root, instance).refresh("busy")


@pytest.mark.slow
def test_of_runs_that_begin_at_once_one_sends(location: Location):
    """Prevents: two simultaneous runs both publish, and the older rows win."""
    location.model()
    server = location.sandbox
    known = SimpleNamespace(url=server.url, user=server.user, password=server.password)
    processes = [
        get_context("spawn").Process(target=_refresh, args=(known, location.root)) for _ in range(2)
    ]
    with server.held_jobs():
        for process in processes:
            process.start()
        until(lambda: location.jobs("busy"), seconds=120, what="no process has sent")
        until(lambda: waiting(location), seconds=120, what="no process waits")
        assert len(location.jobs("busy")) == 1
    for process in processes:
        process.join(120)
    tags = [run.tags["tableau/busy"] for run in location.instance.get_runs()]
    assert sorted(tags) == ["no change", "publish (create)"]
    assert len(location.jobs("busy")) == 1
    assert location.wrong("busy") == []


def waiting(location: Location) -> bool:
    """Whether a run has logged that it waits for another refresh."""
    logs = [location.instance.all_logs(run.run_id) for run in location.instance.get_runs()]
    messages = [entry.user_message for entries in logs for entry in entries]
    return any(", which refreshes busy" in each for each in messages)


@pytest.mark.slow
def test_instances_that_keep_nothing_are_one_deployment(location: Location):
    """Prevents: two commands on a laptop send at once, or count as two deployments."""
    location.model()
    location.instance = dg.DagsterInstance.ephemeral()
    assert location.refresh("busy").success
    location.model(flights(9))
    location.instance = dg.DagsterInstance.ephemeral()
    store(location, Claim(refresh=7, owner=Owner(run_id="of another command", **ELSEWHERE)))
    assert "has been refreshed by run of another" in failure(location.refresh("busy", claim=0))
    store(location, ClaimRelease(refresh=7, claim=location.history("busy").claim.id))
    assert decision(location.refresh("busy")).startswith("update")
    assert location.wrong("busy") == []


KEEP_NOTHING = 1e-9


@pytest.mark.slow
@pytest.mark.parametrize(
    "published", [pytest.param(False, marks=pytest.mark.slow), True], ids=["first publish", "later"]
)
def test_what_an_open_intent_is_about_stays(
    location: Location, monkeypatch: pytest.MonkeyPatch, published: bool
):
    """Prevents: a refresh lacks the old snapshots to judge an interrupted request."""
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
def test_what_another_deployment_or_environment_needs_stays(
    location: Location, monkeypatch: pytest.MonkeyPatch
):
    """Prevents: a test system removes snapshots that production needs for comparisons."""
    location.model()
    with monkeypatch.context() as patch:
        patch.setenv("PIPELINE_DEPLOYMENT", "second")
        assert location.refresh("theirs").success
    location.model()
    with monkeypatch.context() as patch:
        patch.setenv("TABLEAU_PROJECT_ROOT", "Staging")
        assert location.refresh("ours").success
    location.model()
    location.publish("ours", keep_days=KEEP_NOTHING)
    assert location.stored() == [1, 2, 4]
    with monkeypatch.context() as patch:
        patch.setenv("PIPELINE_DEPLOYMENT", "second")
        assert location.refresh("theirs", keep_days=KEEP_NOTHING).success
    assert location.stored() == [2, 4]


@pytest.mark.slow
def test_a_run_of_many_data_sources_collects_once(
    location: Location, monkeypatch: pytest.MonkeyPatch
):
    """Prevents: each data source of a run lists all models of the store again."""
    listed, listing = [], LocalStorage.list

    def counted(storage: LocalStorage, prefix: str) -> Any:
        listed.append((storage.root.name, prefix))
        return listing(storage, prefix)

    monkeypatch.setattr(LocalStorage, "list", counted)
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
        for folder in ("snapshots", "journal"):
            assert listed.count((folder, "")) == runs
        assert location.log(result).count("Removed 1 old snapshots") == 2 - runs
    assert location.stored() == [2]


@pytest.mark.slow
def test_only_a_refresh_that_succeeded_collects(location: Location):
    """Prevents: a dry run, a build or a failed refresh removes snapshots."""
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
    """Prevents: `keep_days` has no effect."""
    location.model()
    location.model()
    location.days_pass(80)
    assert location.refresh("weekly", keep_days=85).success
    assert location.stored() == [1, 2]
    assert location.refresh("weekly", keep_days=75).success
    assert location.stored() == [2]


@pytest.mark.slow
def test_values_of_metadata_stay_while_a_record_names_them(location: Location, tmp_path: Path):
    """Prevents: unused metadata files pile up, or a metadata file in use disappears."""
    location.model()
    for tag in ("first", "second", "second"):
        assert location.refresh("said", declared={"tags": (tag,)}).success
        files = [*(tmp_path / "metadata").iterdir()]
        for each in files:
            os.utime(each, (0, 0))
    assert [each.stem for each in files] == [*location.checkpoint("said").written]
