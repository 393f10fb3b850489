"""Lineage: a sensor that reports each refresh to a catalogue, through OpenLineage's own client."""

import copy
import json
import logging
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlsplit

import dagster as dg
from pydantic import Field, field_validator

from tableau_pipeline.components.publish_file import STEP
from tableau_pipeline.components.published_datasource import POOL, PublishedDatasource
from tableau_pipeline.components.published_files import published_files
from tableau_pipeline.components.reporting import details_in, run_tag
from tableau_pipeline.core.declaration import Declaration, Table, in_environment
from tableau_pipeline.core.identity import key_below
from tableau_pipeline.errors import RefusedError
from tableau_pipeline.ingest.publication import KEY_PREFIX
from tableau_pipeline.outcome import STOPPED
from tableau_pipeline.publishing.metadata_api import metadata_ids
from tableau_pipeline.resources import TableauServerResource, tableau_project_root
from tableau_pipeline.resources.services import as_failure
from tableau_pipeline.yaml_keys import keyed

if TYPE_CHECKING:
    from openlineage.client import OpenLineageClient

    from tableau_pipeline.components.lineage_events import Dataset, EndedRefresh

# The job that asks Tableau's Metadata API for the ids of data sources.
_IDS_JOB = "lineage_ids"
# A run of this job stores each id as a tag of the run. The tag's name is this prefix and the LUID.
_ID_TAG = "tableau-id/"
# Seconds between two requests for an id in the first hour; the most seconds that the sensor waits
# for an id before it leaves out the refresh.
_RETRY, _PATIENCE = 300, 24 * 3600
# Seconds after which a tick sends no further refresh. Dagster ends a tick after 60 seconds, and the
# client may wait 40 seconds for a sink, the service that receives the events.
_TICK_SECONDS = 15
# Seconds in which a transport with its own queue may still send events at the end of a tick.
_CLOSE_SECONDS = 10
# HTTP statuses by which a sink refuses an event for good. Another attempt cannot help.
_REFUSED = (400, 413, 422)
# A tick reads at most this many refreshes of a data source, and this many failed runs.
_MOST = 50
# A tick reads at most this many of the newest runs of the job `lineage_ids`, of all locations.
_MOST_LOOKS = 10


@keyed
class Lineage:
    """Where to send the lineage of refreshes, and how to name data sources and models."""

    openlineage: dict[str, Any] = Field(
        # The configuration may contain secrets.
        repr=False,
        description="Configuration of OpenLineage's client: {transport: {type: http, url: ...}}. "
        'Take secrets from the environment: "{{ env.CATALOGUE_KEY }}".',
    )
    datasource: Literal["metadata_id", "luid"] = Field(
        default="metadata_id",
        description="The name of a data source in events. metadata_id: its id in Tableau's "
        "Metadata API, which catalogues use. luid: its LUID, for a site without this API.",
    )
    namespace: str = Field(
        default="dagster", min_length=1, description="Namespace of jobs and models."
    )
    separator: Literal["/", "."] = Field(
        default="/", description="Separator of the parts of an asset key in the name of a model."
    )

    @field_validator("openlineage")
    @classmethod
    def _check_installed(cls, openlineage: dict[str, Any]) -> dict[str, Any]:
        # Do not import the client here: importing takes 0.3 s, and no process of a step needs the
        # client.
        with suppress(ModuleNotFoundError):
            if find_spec("openlineage.client"):
                return openlineage
        raise ValueError("this needs pip install 'tableau_pipeline[lineage]'")

    def client(self) -> "OpenLineageClient":
        """Return OpenLineage's client.

        Raises:
            ValueError: the client does not accept the configuration.
        """
        from openlineage.client import OpenLineageClient

        try:
            # Pass a copy, because the client changes its configuration.
            return OpenLineageClient(config=copy.deepcopy(self.openlineage))
        except Exception as error:  # noqa: BLE001 - transports raise any error
            # Leave out the message of the error, which may quote a secret.
            raise ValueError(
                f"OpenLineage's client does not accept `lineage: openlineage` ({_kind(error)}): "
                "compare it with the client's documentation, and see whether each environment "
                "variable is set"
            ) from None


def _kind(error: Exception) -> str:
    """Describe an error without its message, which may quote a secret."""
    status = _status(error)
    return type(error).__name__ + (f", status {status}" if status else "")


def _status(error: Exception) -> int | None:
    return getattr(getattr(error, "response", None), "status_code", None)


@dataclass
class _Cursor:
    """The cursor of the sensor: which refreshes were sent, and which ids are known or missing.

    Attributes:
        sent: maps the key of a data source to the storage id of the last materialization sent.
        failed: the time stamp of the last failed run whose refreshes were sent.
        ids: maps LUIDs to ids in the Metadata API.
        waiting: maps the LUID of a data source to the time since which its id is missing.
    """

    sent: dict[str, int] = field(default_factory=dict)
    failed: float = field(default_factory=time.time)
    ids: dict[str, str] = field(default_factory=dict)
    waiting: dict[str, float] = field(default_factory=dict)


def lineage_definitions(
    lineage: Lineage, datasources: Sequence[PublishedDatasource]
) -> dg.Definitions:
    """Return the sensor, and the job that looks up ids of data sources for the sensor."""
    jobs = [_ids_job] if lineage.datasource == "metadata_id" else []

    @dg.sensor(
        name="lineage",
        jobs=jobs or None,
        minimum_interval_seconds=60,
        # Start the sensor switched on, because a user who declares `lineage` wants lineage.
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Reports each refresh to a catalogue.",
    )
    def sensor(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        cursor = _Cursor(**json.loads(context.cursor or "{}"))
        news = _News(context.instance, lineage, cursor, context.log)
        client = lineage.client()
        try:
            done = _send(client, news.of(datasources), context.log)
        finally:
            _close(client, context.log)
        requests = []
        if news.unknown:
            done += f". {len(news.unknown)} data sources have no id in the Metadata API yet"
            requests = _ask_for(context.instance, news.unknown)
        if news.unreadable:
            done += f". Left out data sources published from files: {news.unreadable}"
        return dg.SensorResult(
            requests, skip_reason=None if requests else done, cursor=json.dumps(asdict(cursor))
        )

    return dg.Definitions(jobs=jobs, sensors=[sensor])


def _send(
    client: "OpenLineageClient", refreshes: Iterator["EndedRefresh"], log: logging.Logger
) -> str:
    """Send events until sending fails, or until the tick has lasted too long.

    If the sink refuses an event because of its content, leave out this event, and send the next
    events.

    Returns:
        A summary for users.
    """
    count, end = 0, time.monotonic() + _TICK_SECONDS
    for refresh in refreshes:
        if time.monotonic() > end:
            break
        for event in refresh.events():
            try:
                client.emit(event)
            except Exception as error:  # noqa: BLE001 - transports raise any error
                problem = f"The sink of lineage did not take an event: {_kind(error)}"
                if _status(error) not in _REFUSED:
                    log.error("%s. The next tick tries again", problem)
                    return problem
                log.error("%s. Left out: %s of run %s", problem, refresh.key, refresh.run_id)
        count += 1
    return f"Sent {count} refreshes" if count else "Nothing new to send"


def _close(client: "OpenLineageClient", log: logging.Logger) -> None:
    """Close the client of a tick, with its threads and connections."""
    try:
        is_done = client.close(_CLOSE_SECONDS)
    except Exception as error:  # noqa: BLE001 - transports raise any error
        log.error("OpenLineage's client could not be closed: %s", _kind(error))
    else:
        if not is_done:
            log.warning("Some events were not sent within %d s, and may be lost", _CLOSE_SECONDS)


class _Luids(dg.Config):
    """The LUIDs of data sources with unknown ids; the sensor sets them."""

    luids: list[str] = Field(default=[])


# Ask in a step, not in the sensor. A sign-in with a token ends another session with this token, for
# example the session of a refresh. Only a step can wait for its turn in the pool.
@dg.op(name="ask_for_ids", pool=POOL, out=dg.Out(dg.Nothing))
def _ask_for_ids(
    context: dg.OpExecutionContext, config: _Luids, tableau: TableauServerResource
) -> None:
    with as_failure(context.log), tableau.session(context.log) as site:
        found = metadata_ids(site, config.luids)
    context.log.info("The Metadata API knows %d of %d data sources", len(found), len(config.luids))
    tags = {f"{_ID_TAG}{luid}": id_ for luid, id_ in found.items()}
    context.instance.add_run_tags(context.run_id, tags)


@dg.job(name=_IDS_JOB, description="Asks the Metadata API for ids of data sources, for lineage.")
def _ids_job() -> None:
    _ask_for_ids()


def _ask_for(instance: dg.DagsterInstance, unknown: Mapping[str, float]) -> list[dg.RunRequest]:
    """Request a run of `lineage_ids`, unless a run for any of these LUIDs is active or recent.

    Args:
        unknown: maps the LUID of a data source to the time since which its id is missing.
    """
    now = time.time()
    # The longer all of these ids have been missing, the longer the pause.
    pause = _RETRY * max(1.0, (now - max(unknown.values())) / 3600)
    for record in instance.get_run_records(dg.RunsFilter(job_name=_IDS_JOB), limit=_MOST_LOOKS):
        is_recent = not record.dagster_run.is_finished or now - (record.end_time or 0) < pause
        # Compare the LUIDs, because another code location of this instance may have the same job.
        if is_recent and not unknown.keys().isdisjoint(_asked_for(record.dagster_run)):
            return []
    config = {"ops": {_ask_for_ids.name: {"config": {"luids": sorted(unknown)}}}}
    return [dg.RunRequest(run_config=config)]


def _asked_for(run: dg.DagsterRun) -> Collection[str]:
    """Return the LUIDs in the config of a run of the job."""
    config: Any = run.run_config
    # In the launchpad, a user may have entered a config of another form.
    with suppress(LookupError, TypeError):
        return [*map(str, config["ops"][_ask_for_ids.name]["config"]["luids"])]
    return ()


@dataclass(slots=True)
class _News:
    """Finds the refreshes that the sensor has not sent yet.

    Attributes:
        cursor: advances after each sent refresh.
        unknown: maps the LUID of a data source to the time since which its id is missing.
        unreadable: why publishes of files are unknown; "" if all of them are known.
    """

    instance: dg.DagsterInstance
    lineage: Lineage
    cursor: _Cursor
    log: logging.Logger
    unknown: dict[str, float] = field(default_factory=dict)
    unreadable: str = ""

    def of(self, datasources: Sequence[PublishedDatasource]) -> Iterator["EndedRefresh"]:
        """Yield refreshes of these data sources, and of data sources that are published from files.

        When the caller asks for the next refresh, the previous refresh counts as sent.
        """
        looks = dg.RunsFilter(job_name=_IDS_JOB)
        for record in self.instance.get_run_records(looks, limit=_MOST_LOOKS):
            for name, id_ in record.dagster_run.tags.items():
                if name.startswith(_ID_TAG):
                    self.cursor.ids[name.removeprefix(_ID_TAG)] = id_
        sources: list[Declaration] = [*datasources]
        try:
            files = published_files(self.instance).values()
        except RefusedError as error:
            # Unreadable records must not prevent all other refreshes from being sent.
            self.unreadable = str(error)
        else:
            sources += (file.declaration for file in files if not file.problem)
            self.unreadable = "; ".join(file.problem for file in files if file.problem)
        assets = {dg.AssetKey.from_user_string(source.key): source for source in sources}
        for record in self.instance.get_asset_records([*assets]):
            entry = record.asset_entry
            newest = entry.last_materialization_storage_id
            if newest and newest > self.cursor.sent.get(assets[entry.asset_key].key, 0):
                yield from self._refreshed(assets[entry.asset_key], newest)
        yield from self._stopped(sources)

    def _refreshed(self, source: Declaration, newest: int) -> Iterator["EndedRefresh"]:
        asset = dg.AssetKey.from_user_string(source.key)
        # If a data source is new to the sensor, yield only its last refresh.
        after = self.cursor.sent.get(source.key, newest - 1)
        found = self.instance.fetch_materializations(
            dg.AssetRecordsFilter(asset, after_storage_id=after), limit=_MOST, ascending=True
        )
        for record in found.records:
            metadata = _metadata_of(record.event_log_entry)
            details = details_in(metadata)
            # An event without a LUID comes from a user or other code, not from a refresh.
            if luid := details.luid:
                name, ended = self._name(luid), record.timestamp
                # Count the wait from the sensor's first look, because the refresh may be older than
                # the sensor.
                now = time.time()
                since = self.cursor.waiting.setdefault(luid, now) if name is None else now
                if name is None and now - since <= _PATIENCE:
                    self.unknown[luid] = since
                    return
                self.cursor.waiting.pop(luid, None)
                if name is None:
                    text = "Left out: %s of run %s, as the Metadata API knows no id of %s"
                    self.log.error(text, source.key, record.run_id, luid)
                    self.cursor.sent[source.key] = record.storage_id
                    continue
                yield self._refresh(
                    source,
                    record.run_id,
                    # Events of older releases lack some details.
                    began=ended - details.seconds.get("total", 0.0),
                    ended=ended,
                    luid=luid,
                    name=name,
                    metadata=metadata,
                )
            self.cursor.sent[source.key] = record.storage_id

    def _stopped(self, sources: Sequence[Declaration]) -> Iterator["EndedRefresh"]:
        """Yield refreshes of these data sources that failed or were refused."""
        since = datetime.fromtimestamp(self.cursor.failed, UTC)
        failed = dg.RunsFilter(statuses=[dg.DagsterRunStatus.FAILURE], updated_after=since)
        for record in self.instance.get_run_records(
            failed, _MOST, order_by="update_timestamp", ascending=True
        ):
            run = record.dagster_run
            for source in sources:
                decision = run.tags.get(run_tag(source.key))
                if decision in STOPPED:
                    asset = dg.AssetKey.from_user_string(source.key)
                    last = self.instance.get_latest_materialization_event(asset)
                    luid = details_in(_metadata_of(last)).luid
                    yield self._refresh(
                        source,
                        run.run_id,
                        began=record.start_time or record.create_timestamp.timestamp(),
                        ended=record.end_time or record.update_timestamp.timestamp(),
                        luid=luid,
                        name=self._name(luid),
                        decision=decision,
                    )
            self.cursor.failed = record.update_timestamp.timestamp()

    def _name(self, luid: str | None) -> str | None:
        by_id = self.lineage.datasource == "metadata_id"
        return self.cursor.ids.get(luid or "") if by_id else luid

    def _refresh(self, source: Declaration, run_id: str, **known: Any) -> "EndedRefresh":
        # Import this module only here, because it needs the extra `lineage`.
        from tableau_pipeline.components.lineage_events import EndedRefresh

        root = tableau_project_root()
        project = in_environment(source, root).project_path
        return EndedRefresh(
            key=key_below(source.key, root),
            namespace=self.lineage.namespace,
            run_id=run_id,
            inputs={table.model: self._input(table, run_id) for table in source.tables},
            description=f'The Tableau data source "{source.name}" in the project "{project}"',
            checks=_checks(self.instance, run_id, dg.AssetKey.from_user_string(source.key)),
            **known,
        )

    def _input(self, table: Table, run_id: str) -> "Dataset":
        """Return the dataset from which a table's rows come: a file, a model or a lake table."""
        run = self.instance.get_run_by_id(run_id) if table.model.startswith(KEY_PREFIX) else None
        config: Any = run.run_config if run else {}
        # Another job than `publish_file` may publish files with a config of another form.
        with suppress(LookupError, TypeError):
            return _dataset_at(str(Path(config["ops"][STEP]["config"]["path"]).absolute()))
        return dataset_of(table, self.lineage)


def dataset_of(table: Table, lineage: Lineage) -> "Dataset":
    """Return the dataset of a model or a lake table."""
    # Import this module only here, because it needs the extra `lineage`.
    from tableau_pipeline.components.lineage_events import Dataset

    if table.source is None:
        return Dataset(lineage.namespace, table.model.replace("/", lineage.separator))
    location = table.source.location
    is_path = isinstance(location, str)
    return _dataset_at(location) if is_path else Dataset("iceberg", location.table)


def _dataset_at(location: str) -> "Dataset":
    from tableau_pipeline.components.lineage_events import Dataset

    if "://" not in location:
        return Dataset("file", location)
    url = urlsplit(location)
    return Dataset(f"{url.scheme}://{url.netloc}", url.path.lstrip("/"))


def _metadata_of(event: dg.EventLogEntry | None) -> Mapping[str, Any]:
    materialization = event.asset_materialization if event else None
    metadata = materialization.metadata if materialization else {}
    return {name: value.value for name, value in metadata.items()}


def _checks(
    instance: dg.DagsterInstance, run_id: str, asset: dg.AssetKey
) -> list[dg.AssetCheckEvaluation]:
    """Return the check results of a run. If a check was repeated, return its last result only."""
    kind = dg.DagsterEventType.ASSET_CHECK_EVALUATION
    log = instance.get_records_for_run(run_id, of_type=kind)
    events = [record.event_log_entry.dagster_event for record in log.records]
    results = [event.asset_check_evaluation_data for event in events if event]
    return [
        *{result.check_name: result for result in results if result.asset_key == asset}.values()
    ]
