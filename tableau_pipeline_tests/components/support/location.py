"""Data sources that Dagster refreshes from snapshots; tests write the snapshots without Spark."""

import shutil
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest
from dagster._core.test_utils import create_run_for_test

from tableau_pipeline.components.asset_names import asset_keys, step_name
from tableau_pipeline.components.audit import audit_job
from tableau_pipeline.components.journal import journal_of
from tableau_pipeline.components.location import in_location
from tableau_pipeline.components.published_datasource import PublishedDatasource, refresh_assets
from tableau_pipeline.core.checkpoint import Checkpoint
from tableau_pipeline.core.declaration import Declaration, Table
from tableau_pipeline.core.deployment import folder_of
from tableau_pipeline.core.drift import Job, Timeouts
from tableau_pipeline.core.journal import Claim, History, Owner, Record, read_record
from tableau_pipeline.core.journal_store import StoredJournal
from tableau_pipeline.core.snapshot import Snapshot
from tableau_pipeline.hyper.process import hyper_process
from tableau_pipeline.resources import (
    HyperResource,
    SnapshotIOManager,
    SparkResource,
    TableauServerResource,
)
from tableau_pipeline.snapshots.version_store import SnapshotStore
from tableau_pipeline_tests.differences import differences
from tableau_pipeline_tests.refresh.support.models import flights, snapshot
from tableau_pipeline_tests.refresh.support.pipeline import TIMEOUTS, published_rows, session
from tableau_pipeline_tests.snapshots.support import age
from tableau_sandbox.testing import Sandbox

MODEL = "raw/flights"
NOTHING: Mapping[str, Any] = MappingProxyType({})
_LONG_AGO = datetime(2000, 1, 1, tzinfo=UTC)


class ImpatientServer(TableauServerResource):
    """A server with the short timeouts of tests.

    Attributes:
        claim: how many seconds a refresh waits for another refresh to end.
    """

    claim: float = TIMEOUTS.claim

    @property
    def timeouts(self) -> Timeouts:
        """The timeouts of tests."""
        return replace(TIMEOUTS, claim=self.claim)


@dataclass
class Location:
    """Code locations of one data source each, which share an instance and a data folder.

    Attributes:
        partitions: the partitions of each partitioned model, by the key of the model.
        checks: checks of models; a refresh runs none of them.
        by_app: whether to sign in as a connected app.
        takeover: whether to take over data sources of other deployments.
    """

    sandbox: Sandbox
    root: Path
    instance: dg.DagsterInstance
    partitions: dict[str, dg.PartitionsDefinition] = field(default_factory=dict)
    checks: list[dg.AssetChecksDefinition] = field(default_factory=list)
    by_app: bool = False
    takeover: bool = False

    @property
    def store(self) -> SnapshotStore:
        return SnapshotStore(self.root)

    def model(self, rows: pa.Table | None = None, *, asset_key: str = MODEL) -> Snapshot:
        """Write a new snapshot of a model."""
        delay = len(self.store.numbers(asset_key))
        return snapshot(
            self.root, flights(8, delay=delay) if rows is None else rows, asset_key=asset_key
        )

    def days_pass(self, days: float = 20) -> None:
        """Make all files in the snapshot store older by `days`."""
        age(self.root, days)

    def grow_old(self, key: str) -> None:
        """Make the last refresh of a data source older by two days."""
        last = self.instance.get_latest_materialization_event(dg.AssetKey(key))
        assert last
        self.instance.store_event(last._replace(timestamp=last.timestamp - 2 * 86_400))

    def grow_old_model(self, model: str = MODEL, *, days: float) -> None:
        """Make the newest version of a model older by `days`."""
        newest = self.store.newest(model)
        assert newest
        older = newest.model_copy(update={"created_at": newest.created_at - timedelta(days=days)})
        manifest = self.root / self.store.manifest(model, newest.number)
        manifest.write_text(older.manifest(), "utf-8")

    def stored(self, asset_key: str = MODEL) -> list[int]:
        """The numbers of the stored versions of a model."""
        return self.store.numbers(asset_key)

    def declaration(self, key: str, declared: Mapping[str, Any] = NOTHING) -> Declaration:
        """Declare a data source of one table; `declared` replaces attributes."""
        # A test's file is so small that any update would exceed the default growth limit.
        usual = {
            "name": key,
            "project": "Default",
            "republish": {"growth": 1000},
            "reconcile": None,
        }
        tables = (Table("flights", MODEL),)
        # Only a component can declare `freshness`.
        kind = PublishedDatasource if "freshness" in declared else Declaration
        return kind(**{"key": key, "tables": tables, **usual, **declared})

    def refresh(
        self,
        key: str,
        *,
        keep_days: float = 14,
        claim: float = TIMEOUTS.claim,
        retries: int = 0,
        declared: Mapping[str, Any] = NOTHING,
        **config: Any,
    ) -> dg.ExecuteInProcessResult:
        """Run the step that refreshes a data source."""
        models: Sequence[dg.AssetSpec] = [
            dg.AssetSpec(dg.AssetKey.from_user_string(model), partitions_def=partitions)
            for model, partitions in self.partitions.items()
        ]
        again = dg.define_asset_job("again", op_retry_policy=dg.RetryPolicy(max_retries=retries))
        declaration = self.declaration(key, declared)
        deadline = getattr(declaration, "freshness", None)
        definitions = dg.Definitions(
            assets=[refresh_assets(declaration, None, deadline), *models],
            asset_checks=self.checks,
            jobs=[again] if retries else [],
            resources=self.resources(keep_days=keep_days, claim=claim),
            executor=dg.in_process_executor,
        )
        job = (
            definitions.resolve_job_def("again")
            if retries
            else definitions.resolve_implicit_global_asset_job_def()
        )
        with in_location(definitions):
            return job.execute_in_process(
                instance=self.instance,
                asset_selection=[*asset_keys(key)] if self.checks else None,
                raise_on_error=False,
                run_config={"ops": {step_name(key): {"config": config}}},
            )

    def publish(self, key: str, **more: Any) -> None:
        """Write a new snapshot of the model, and refresh the data source."""
        self.model()
        assert self.refresh(key, **more).success

    def resources(
        self, *, keep_days: float = 14, claim: float = TIMEOUTS.claim
    ) -> dict[str, dg.ConfigurableResource]:
        """The resources of the refresh step."""
        credentials = {"password": self.sandbox.password}
        if self.by_app:
            app = self.sandbox.connected_app
            credentials = {
                "connected_app_client_id": app.client_id,
                "connected_app_secret_id": app.secret_id,
                "connected_app_secret_value": app.secret_value,
            }
        tableau = ImpatientServer(
            server_url=self.sandbox.url,
            username=self.sandbox.user,
            claim=claim,
            takeover=self.takeover,
            **credentials,
        )
        snapshots = SnapshotIOManager(
            root=str(self.root), spark=SparkResource(), keep_days=keep_days
        )
        return {"hyper": HyperResource(), "tableau": tableau, "snapshots": snapshots}

    def audit(self, *keys: str, declared: Mapping[str, Any] = NOTHING) -> dg.ExecuteInProcessResult:
        """Run the audit of a location that declares data sources with these keys."""
        job = audit_job([self.declaration(key, declared) for key in keys])
        return job.execute_in_process(
            instance=self.instance, raise_on_error=False, resources=self.resources()
        )

    def history(self, key: str) -> History:
        """The history of a data source, from its journal."""
        return journal_of(self.instance, key).history()

    def checkpoint(self, key: str) -> Checkpoint:
        """The current checkpoint of a data source."""
        found = self.history(key).checkpoint
        assert found
        return found

    def jobs(self, name: str) -> Sequence[Job]:
        """All jobs that the server ever started for a data source."""
        with session(self.sandbox) as site:
            found = site.jobs(name=name, since=_LONG_AGO)
        assert found is not None
        return found

    def wrong(self, key: str, declared: Mapping[str, Any] = NOTHING) -> list[str]:
        """The differences between a published data source and its models' newest snapshots."""
        declaration = self.declaration(key, declared)
        snapshots = SnapshotIOManager(root=str(self.root), spark=SparkResource())
        models = {
            model: found
            for model in declaration.models
            if (found := snapshots.snapshot(model, self.partitions.get(model)))
        }
        return wrong(self.sandbox, declaration, models)

    def log(self, result: dg.ExecuteInProcessResult) -> str:
        """All log messages of a run."""
        entries = self.instance.all_logs(result.run_id)
        return "\n".join(entry.user_message for entry in entries)


def wrong(sandbox: Sandbox, declaration: Declaration, models: Mapping[str, Snapshot]) -> list[str]:
    """The differences between a published data source and these snapshots; [] if both are equal."""
    with session(sandbox) as site, TemporaryDirectory() as folder:
        (item,) = site.tsc.datasources.filter(name=declaration.name)
        tdsx = site.download(str(item.id), Path(folder))
        return differences(hyper_process(), tdsx, declaration, models)


def rows_on(sandbox: Sandbox, name: str) -> pa.Table:
    """The published rows of a data source of one table, sorted by their first column."""
    with session(sandbox) as site:
        (item,) = site.tsc.datasources.filter(name=name)
        rows = published_rows(site, str(item.id))
    return rows.sort_by(rows.column_names[0])


def failure(result: dg.ExecuteInProcessResult) -> str:
    """The description of the failure in a failed run."""
    assert not result.success
    (event,) = result.get_step_failure_events()
    return str(event.step_failure_data.user_failure_data.description)


def metadata_of(result: dg.ExecuteInProcessResult) -> dict[str, Any]:
    """The metadata of the data source that a run refreshed."""
    assert result.success
    *_, event = result.get_asset_materialization_events()
    return {name: value.value for name, value in event.materialization.metadata.items()}


def decision(result: dg.ExecuteInProcessResult) -> str:
    """The decision of a run, and the reason for the decision."""
    found = metadata_of(result)
    return f"{found['decision']}: {found['reason']}"


KEY = dg.AssetKey("busy")


def store(location: Location, record: Record) -> None:
    """Append a record to the journal of "busy", as another process would."""
    journal = journal_of(location.instance, "busy")
    journal.append(lambda _: record, after=journal.history())


ELSEWHERE = {"boot": "another machine", "namespace": "pid:[1]", "pid": 1}


def claim_of(location: Location, status: dg.DagsterRunStatus, **owner: Any) -> str:
    """Record the claim of a refresh in another run, and return the ID of the run."""
    run = create_run_for_test(location.instance, status=status)
    owner = {"run_id": run.run_id, "step": "busy", **ELSEWHERE, **owner}
    number = location.history("busy").refresh + 1
    store(location, Claim(refresh=number, owner=Owner(**owner)))
    return run.run_id


def look(location: Location, times: int) -> None:
    """Add observations of the asset "busy", as other tools and dry runs do."""
    for _ in range(times):
        location.instance.report_runless_asset_event(dg.AssetObservation(KEY))


def record_files(instance: dg.DagsterInstance, key: str) -> list[Path]:
    """The files with the records of a data source, in order."""
    journal = journal_of(instance, key)
    deployment = journal.place.deployment()
    if deployment is None:
        return []
    folder = Path(journal.place.where) / folder_of(deployment, journal.key)
    return sorted(folder.glob("*.json"))


def records_of(instance: dg.DagsterInstance, key: str) -> list[Record]:
    """The stored records of a data source, in order."""
    files = record_files(instance, key)
    return [read_record(file.read_bytes(), repair="").record for file in files]


def forget(instance: dg.DagsterInstance, key: str) -> None:
    """Delete the records of a data source."""
    first, *_ = record_files(instance, key)
    shutil.rmtree(first.parent)


@contextmanager
def withheld(*kinds: type, monkeypatch: pytest.MonkeyPatch) -> Generator[list[Record]]:
    """Keep records of these kinds out of the journal, as if their process was killed.

    The block gets a list of the withheld records.
    """
    kept: list[Record] = []
    create = StoredJournal.create

    def created(journal: StoredJournal, record: Record, *, after: History) -> History | None:
        if isinstance(record, kinds):
            kept.append(record)
            return after.after(record)
        return create(journal, record, after=after)

    with monkeypatch.context() as patch:
        patch.setattr(StoredJournal, "create", created)
        yield kept
