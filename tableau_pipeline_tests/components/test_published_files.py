"""Files that the command `publish` has published: in notifications, audits and Dagster."""

import logging
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster._core.test_utils import create_run_for_test

from tableau_pipeline.components.command_publishes import publishes_sensor
from tableau_pipeline.components.journal import journal_of
from tableau_pipeline.components.lineage import Lineage, lineage_definitions
from tableau_pipeline.components.notifications import incidents
from tableau_pipeline.components.publish_file import FILES_TAG, publish_file
from tableau_pipeline.components.status import past_refresh, statuses_of_files
from tableau_pipeline.core.hold import Hold, end_hold, hold_of, put_hold
from tableau_pipeline.core.journal_store import StoredJournal
from tableau_pipeline.dagster_internals import USER_TAG
from tableau_pipeline.errors import RefreshError, RefusedError
from tableau_pipeline.ingest.publication import FilePublication
from tableau_pipeline.objects.storage import LocalStorage
from tableau_pipeline.outcome import Accept, Status
from tableau_pipeline.refresh.decide import Options
from tableau_pipeline.scripting.files import publish_files
from tableau_pipeline_tests.components.support.location import Location, forget, record_files
from tableau_pipeline_tests.components.test_notifications import BUSY, Web, telling
from tableau_pipeline_tests.refresh.support.models import flights

LOG = logging.getLogger(__name__)
Publish = Callable[..., bool]


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "sales.csv")


@pytest.fixture
def publish(location: Location, path: str, monkeypatch: pytest.MonkeyPatch) -> Publish:
    """A function that publishes rows as the command does, and returns whether that succeeded."""
    monkeypatch.setenv("TABLEAU_SERVER_URL", location.sandbox.url)
    monkeypatch.setenv("TABLEAU_TOKEN_NAME", location.sandbox.token_name)
    monkeypatch.setenv("TABLEAU_TOKEN_VALUE", location.sandbox.token_secret)

    def publish(rows: int, *accept: Accept, name: str = "Sales") -> bool:
        Path(path).write_text("id\n" + "".join(f"{row}\n" for row in range(rows)), "utf-8")
        options = Options(accept=frozenset(accept))
        with suppress(RefreshError):
            publish_files(FilePublication(paths=(path,), name=name), options=options, log=LOG)
            return True
        return False

    return publish


def key_of(name: str = "Sales") -> str:
    return FilePublication(paths=("any.csv",), name=name).declaration().key


def run_job(location: Location, path: str, **config: Any) -> dg.ExecuteInProcessResult:
    """Publish the file by the job, as the user Ann does in the launchpad."""
    definitions = dg.Definitions(jobs=[publish_file], resources=location.resources())
    return definitions.resolve_job_def("publish_file").execute_in_process(
        instance=location.instance,
        raise_on_error=False,
        tags={USER_TAG: "ann"},
        run_config={
            "ops": {"publish_files": {"config": {"path": path, "name": "Sales", **config}}}
        },
    )


def materializations(location: Location, name: str = "Sales") -> list[dg.EventLogEntry]:
    """The materializations of a data source, the oldest first."""
    found = location.instance.fetch_materializations(
        dg.AssetKey(key_of(name).split("/")), limit=100
    )
    return [record.event_log_entry for record in found.records][::-1]


def tick(location: Location) -> str:
    """Evaluate the sensor as the daemon does, and return the message of the tick."""
    with dg.build_sensor_context(location.instance) as context:
        return str(publishes_sensor().evaluate_tick(context).skip_message)


@pytest.mark.slow
def test_a_refused_publish_is_reported_once(location: Location, publish: Publish):
    """Prevents: no message reports a refused publish, or a message repeats every minute."""
    with telling(location, Web) as (tell, web):
        # No message is sent: the data source has no readers yet, and its publisher saw the refusal.
        assert not publish(0)
        tell()
        assert publish(4)
        tell()
        assert web.got == []
        for _ in range(2):
            assert not publish(1)
            tell()
            tell()
        (first,) = web.got
        assert first["message"].startswith('"Sales" was refused: Table "Sales"')
        assert "publish the file again, with accept: [shrink]" in first["message"]
        assert publish(1, Accept.SHRINK)
        tell()
        location.sandbox.stop()
        assert not publish(2)
        location.sandbox.start()
        tell()
        assert len(web.got) == 2
        assert web.got[1]["message"].startswith('"Sales" has failed: ')


@pytest.mark.slow
def test_who_published_last_counts(location: Location, publish: Publish, path: str):
    """Prevents: a run of last week hides a newer publish or refusal of the command."""

    def state() -> tuple[Status, str | None]:
        """The status of the data source, and the ID of the run that failed."""
        (status,) = statuses_of_files(location.instance).values()
        _, incident = incidents(location.instance, ())
        assert (incident.status or Status.FRESH) == status.state
        return status.state, status.run_id

    fresh, refused = (Status.FRESH, None), (Status.REFUSED, None)

    assert publish(4)
    Path(path).write_text("id\n1\n", "utf-8")
    run = run_job(location, path)
    assert state() == (Status.REFUSED, run.run_id)
    assert publish(4)
    assert state() == fresh
    tick(location)
    assert state() == fresh
    Path(path).write_text("id\n1\n", "utf-8")
    assert run_job(location, path, accept=["shrink"]).success
    assert state() == fresh
    assert not publish(0)
    assert state() == refused
    # The process of this run ended before it could write a record.
    config = {"ops": {"publish_files": {"config": {"path": path, "name": "Sales"}}}}
    run = create_run_for_test(
        location.instance, status=dg.DagsterRunStatus.FAILURE, run_config=config, tags=FILES_TAG
    )
    assert state() == (Status.FAILED, run.run_id)
    assert publish(1)
    journal = journal_of(location.instance, key_of())
    put_hold(journal.place, journal.key, Hold(by="eve"))
    assert not publish(1)
    assert state() == (Status.HELD, None)
    end_hold(journal.place, journal.key)
    assert state() == fresh
    # A hold does not settle an earlier refusal.
    assert not publish(0)
    put_hold(journal.place, journal.key, Hold(by="eve"))
    assert not publish(1)
    assert state() == (Status.HELD, None)
    end_hold(journal.place, journal.key)
    assert state() == refused
    assert publish(1)
    assert state() == fresh


def test_who_has_rolled_it_back(location: Location, path: str):
    """Prevents: users do not know who has rolled a data source back."""
    for content in ("id\n1\n", "id\n1\n2\n"):
        Path(path).write_text(content, "utf-8")
        assert run_job(location, path).success
    assert run_job(location, path, rollback=1).success
    journal = journal_of(location.instance, key_of())
    hold = hold_of(journal.place, journal.key)
    assert hold
    assert (hold.by, hold.version) == ("ann", 1)


@pytest.mark.slow
def test_a_look_costs_the_same_however_much_is_declared(
    location: Location, publish: Publish, monkeypatch: pytest.MonkeyPatch
):
    """Prevents: each minute, a sensor lists the records of all data sources in the store."""
    location.publish("busy")
    assert publish(4)
    listed, read = list[str](), list[str]()
    seen, newest = LocalStorage.list, StoredJournal.newest_record

    def listing(storage: LocalStorage, prefix: str) -> Any:
        listed.append(prefix)
        return seen(storage, prefix)

    def reading(journal: StoredJournal) -> Any:
        read.append(journal.key)
        return newest(journal)

    monkeypatch.setattr(LocalStorage, "list", listing)
    monkeypatch.setattr(StoredJournal, "newest_record", reading)
    assert [each.subject for each in incidents(location.instance, ())][1:] == [key_of()]
    assert read == [key_of()]
    assert not [prefix for prefix in listed if "busy" in prefix or prefix.count("/") < 2]


@pytest.mark.slow
def test_the_web_ui_shows_each_publish_once(location: Location, publish: Publish, path: str):
    """Prevents: the web UI does not show a publish, or shows events without a publish."""
    assert "Nothing new" in tick(location)
    assert publish(4)
    assert tick(location) == "Shown: Sales"
    assert "Nothing new" in tick(location)
    (event,) = materializations(location)
    shown = past_refresh(event)
    assert shown
    assert (shown.decision, shown.rows, shown.run_id) == ("publish", 4, "")
    assert shown.taken_at == location.checkpoint(key_of()).taken_at
    metadata = event.asset_materialization.metadata  # ty: ignore
    assert [column.name for column in metadata["dagster/column_schema"].value.columns] == ["id"]
    assert not publish(1)
    assert "Nothing new" in tick(location)
    assert publish(4)
    # The next tick shows the publish, although a refusal followed it.
    assert not publish(1)
    assert tick(location) == "Shown: Sales"
    assert "Nothing new" in tick(location)
    assert publish(4)
    assert tick(location) == "Shown: Sales"
    assert [past_refresh(each).decision for each in materializations(location)] == [  # ty: ignore
        "publish",
        "no change",
        "no change",
    ]
    (status,) = statuses_of_files(location.instance).values()
    assert (status.state, status.last) == (
        Status.FRESH,
        past_refresh(materializations(location)[-1]),
    )
    # A run reports its own materialization, so the sensor has nothing to add.
    assert run_job(location, path).success
    assert "Nothing new" in tick(location)
    assert len(materializations(location)) == 4


@pytest.mark.slow
def test_the_audit_compares_it(location: Location, publish: Publish):
    """Prevents: the audit skips a data source that only the command has published."""
    assert publish(4)
    result = location.audit()
    assert result.success
    assert f"{key_of()}: equal, " in location.log(result)


@pytest.mark.slow
def test_a_damaged_record_is_reported(location: Location, publish: Publish):
    """Prevents: one damaged record stops all messages, or a second damage goes unreported."""
    assert publish(4)
    *_, newest = record_files(location.instance, key_of())
    intact = newest.read_text("utf-8")
    with telling(location, Web) as (tell, web):
        newest.write_text("{", "utf-8")
        location.model(flights(1))
        location.refresh("busy")
        tell()
        tell()
        (message,) = web.got
        assert f"{newest.name} cannot be read" in message["message"]
        assert '"Busy" was refused' in message["message"]
        # The same damage after a restored backup is another incident.
        newest.write_text(intact, "utf-8")
        tell()
        newest.write_text("{", "utf-8")
        tell()
        assert len(web.got) == 2


@pytest.mark.slow
def test_a_damaged_record_hides_no_other(location: Location, publish: Publish):
    """Prevents: one damaged record hides the states of all other published files."""
    assert publish(4)
    assert publish(4, name="Costs")
    *_, newest = record_files(location.instance, key_of())
    newest.write_text("{", "utf-8")
    for shown in ("Shown: Costs", "Nothing new to show"):
        with pytest.raises(RefusedError, match=f"{newest.name} cannot be read.*\n{shown}"):
            tick(location)
    assert len(materializations(location, "Costs")) == 1
    found = statuses_of_files(location.instance)
    assert found[key_of("Costs")].state is Status.FRESH
    assert found[key_of()].state is Status.UNKNOWN
    assert f"{newest.name} cannot be read" in found[key_of()].why
    log = location.log(location.audit())
    assert f"{key_of('Costs')}: equal, " in log
    assert f"{key_of()}: unknown: " in log


@pytest.mark.slow
def test_a_damaged_record_stops_no_lineage(location: Location, publish: Publish, tmp_path: Path):
    """Prevents: one damaged record stops the reports of all refreshes to a catalogue."""
    assert publish(4)
    *_, newest = record_files(location.instance, key_of())
    newest.write_text("{", "utf-8")
    location.publish("busy")
    events = tmp_path / "events"
    transport = {"type": "file", "log_file_path": str(events), "append": True}
    lineage = Lineage(openlineage={"transport": transport}, datasource="luid")
    (sensor,) = lineage_definitions(lineage, [BUSY]).sensors or ()
    with dg.build_sensor_context(location.instance) as context:
        result = sensor.evaluate_tick(context)
    assert result.skip_message.startswith("Sent 1 refreshes")
    assert f"{newest.name} cannot be read" in result.skip_message
    assert len(events.read_text("utf-8").splitlines()) == 2


def test_records_that_are_gone(location: Location, publish: Publish):
    """Prevents: an empty folder of records stops all notifications."""
    assert publish(4)
    forget(location.instance, key_of())
    (of_journals,) = incidents(location.instance, ())
    assert of_journals.status is None
    assert "Nothing new" in tick(location)
