"""Lineage, as a catalogue receives it over HTTP."""

import json
import re
import sys
from collections.abc import Generator
from dataclasses import asdict, dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from threading import enumerate as enumerate_threads
from typing import Any

import dagster as dg
import pytest
from jsonschema import Draft202012Validator

from tableau_pipeline.components.lineage import Lineage, dataset_of, lineage_definitions
from tableau_pipeline.components.notifications import incidents
from tableau_pipeline.components.publish_file import publish_file
from tableau_pipeline.components.published_datasource import PublishedDatasource
from tableau_pipeline.core.declaration import Table
from tableau_pipeline.core.lake_table import LakeTable
from tableau_pipeline.publishing.metadata_api import metadata_ids
from tableau_pipeline_tests.components.support.location import KEY, Location
from tableau_pipeline_tests.refresh.support.models import flights
from tableau_pipeline_tests.refresh.support.pipeline import session
from tableau_sandbox.faults import Refuse

SECRET = "sesame-open"
BUSY = PublishedDatasource.from_attributes_dict(
    attributes={
        "name": "busy",
        "key": "busy",
        "project": "Default",
        "tables": {"flights": {"model": "raw/flights"}},
    }
)


class Sink:
    """A catalogue that receives events; after `kill`, `start` opens the same port again.

    Attributes:
        got: the events that the catalogue has accepted.
        status: the HTTP status of each answer.
    """

    def __init__(self) -> None:
        self.got: list[dict[str, Any]] = []
        self.status = 201
        self.server: ThreadingHTTPServer | None = None
        self.port = 0
        self.start()

    def start(self) -> None:
        sink = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                assert self.headers["Authorization"] == f"Bearer {SECRET}"
                sink.got += [json.loads(body)] * (sink.status == 201)
                self.send_response(sink.status)
                self.end_headers()

            def log_message(self, *_: object) -> None: ...

        self.server = ThreadingHTTPServer(("127.0.0.1", self.port), Handler)
        self.port = self.server.server_address[1]
        Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()

    def kill(self) -> None:
        assert self.server
        self.server.shutdown()
        self.server.server_close()

    def lineage(self, **more: Any) -> Lineage:
        """The declaration that sends lineage to this catalogue."""
        transport = {
            "type": "http",
            "url": f"http://127.0.0.1:{self.port}",
            "auth": {"type": "api_key", "apiKey": SECRET},
            "retry": {"total": 0},
        }
        return Lineage(openlineage={"transport": transport}, **more)


@dataclass
class Daemon:
    """A daemon that evaluates the sensor and keeps the cursor between ticks."""

    location: Location
    lineage: Lineage
    cursor: str | None = None
    requests: list[dg.RunRequest] = field(default_factory=list)

    def __post_init__(self) -> None:
        made = lineage_definitions(self.lineage, [BUSY])
        resources = dg.Definitions(resources=self.location.resources())
        self.definitions = dg.Definitions.merge(made, resources)

    def tick(self) -> str:
        """Return the reason for a skipped tick, or "" if the tick requested the job."""
        sensor = self.definitions.resolve_sensor_def("lineage")
        with dg.build_sensor_context(self.location.instance, cursor=self.cursor) as context:
            result = sensor.evaluate_tick(context)
        self.cursor, self.requests = result.cursor, [*(result.run_requests or [])]
        return result.skip_message or ""

    def look_up(self) -> bool:
        """Run the job that the last tick requested; return whether the job succeeded."""
        (request,) = self.requests
        job = self.definitions.resolve_job_def("lineage_ids")
        done = job.execute_in_process(
            request.run_config, self.location.instance, raise_on_error=False
        )
        return done.success


@pytest.fixture
def sink() -> Generator[Sink]:
    made = Sink()
    yield made
    made.kill()


def metadata_id(location: Location) -> str:
    luid = str(location.checkpoint("busy").luid)
    with session(location.sandbox) as site:
        return metadata_ids(site, [luid])[luid]


# A JSON schema of the core of the OpenLineage specification, and of the facets that the sensor
# sends. It has patterns instead of formats, because the libraries that check formats are optional.
_URI = {"type": "string", "pattern": r"^[a-z][a-z0-9+.-]*:\S+$"}
_TEXT = {"type": "string", "minLength": 1}


def _object(needed: str, **properties: Any) -> dict[str, Any]:
    return {"type": "object", "required": needed.split(), "properties": properties}


def _list(items: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": items}


def _facets(**known: dict[str, Any]) -> dict[str, Any]:
    base = _object("_producer _schemaURL", _producer=_URI, _schemaURL=_URI)
    each = {name: {"allOf": [base, facet]} for name, facet in known.items()}
    return {"type": "object", "properties": each, "additionalProperties": base}


_COLUMN = _object("namespace name field", namespace=_TEXT, name=_TEXT, field=_TEXT)
_COLUMNS = _object("inputFields", inputFields=_list(_COLUMN))
_DATASET = _facets(
    columnLineage=_object("fields", fields={"additionalProperties": _COLUMNS}),
    dataQualityAssertions=_object(
        "assertions",
        assertions=_list(
            _object("assertion success", assertion=_TEXT, success={"type": "boolean"})
        ),
    ),
    dataQualityMetrics=_object("columnMetrics", rowCount={"type": "integer"}),
    documentation=_object("description", description=_TEXT),
    schema=_object("", fields=_list(_object("name", name=_TEXT, type=_TEXT))),
    symlinks=_object(
        "",
        identifiers=_list(_object("namespace name type", namespace=_TEXT, name=_TEXT, type=_TEXT)),
    ),
)
_STATISTICS = _object("", rowCount={"type": "integer"}, size={"type": "integer"})
_NAMED = {"namespace": _TEXT, "name": _TEXT, "facets": _DATASET}
_UUID = "^[0-9a-f]{8}-[0-9a-f]{4}-[1-8][0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$"
_RUN_FACETS = _facets(
    errorMessage=_object("message programmingLanguage", message=_TEXT, programmingLanguage=_TEXT),
    processing_engine=_object("version", version=_TEXT, name=_TEXT),
)
RUN_EVENT = _object(
    "eventTime producer schemaURL run job",
    eventType={"enum": ["START", "RUNNING", "COMPLETE", "ABORT", "FAIL", "OTHER"]},
    eventTime={"type": "string", "pattern": r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|\+00:00)$"},
    producer=_URI,
    schemaURL={"type": "string", "pattern": r"^https://.*OpenLineage\.json#/\$defs/RunEvent$"},
    run=_object("runId", runId={"type": "string", "pattern": _UUID}, facets=_RUN_FACETS),
    job=_object("namespace name", namespace=_TEXT, name=_TEXT, facets=_facets()),
    inputs=_list(_object("namespace name", **_NAMED, inputFacets=_facets())),
    outputs=_list(
        _object("namespace name", **_NAMED, outputFacets=_facets(outputStatistics=_STATISTICS))
    ),
)


def taken(sink: Sink) -> list[dict[str, Any]]:
    """Return the events that a catalogue accepted since the last call, and validate each event."""
    Draft202012Validator.check_schema(RUN_EVENT)
    events, sink.got = sink.got, []
    for event in events:
        Draft202012Validator(RUN_EVENT).validate(event)
    return events


def sent(daemon: Daemon, sink: Sink) -> list[dict[str, Any]]:
    """Return the events of one tick, and assert that the next tick has nothing to send."""
    daemon.tick()
    assert "Nothing new" in daemon.tick()
    return taken(sink)


@pytest.mark.slow
def test_a_refresh_under_the_id_of_catalogues(location: Location, sink: Sink):
    """Prevents: a catalogue cannot identify a data source, or lacks columns, rows and checks."""
    location.publish("busy")
    daemon = Daemon(location, sink.lineage())
    # The sensor sends no event until it knows the ID of the data source.
    assert (daemon.tick(), sink.got) == ("", [])
    assert daemon.look_up()
    assert daemon.tick() == "Sent 1 refreshes"
    start, complete = taken(sink)
    assert (start["eventType"], complete["eventType"]) == ("START", "COMPLETE")
    assert start["eventTime"] < complete["eventTime"]
    for event in (start, complete):
        assert event["run"]["runId"] == start["run"]["runId"]
        assert (event["job"]["namespace"], event["job"]["name"]) == ("dagster", "busy")
        assert event["run"]["facets"]["processing_engine"]["name"] == "dagster"
        ((model,), (output,)) = (event["inputs"], event["outputs"])
        assert (model["namespace"], model["name"]) == ("dagster", "raw/flights")
        assert (output["namespace"], output["name"]) == ("tableau", metadata_id(location))
    facets = output["facets"]
    fields = {each["name"]: each["type"] for each in facets["schema"]["fields"]}
    assert fields["flight_id"] == "BIGINT"
    (origin,) = facets["columnLineage"]["fields"]["flight_id"]["inputFields"]
    assert (origin["name"], origin["field"]) == ("raw/flights", "flight_id")
    (alias,) = facets["symlinks"]["identifiers"]
    assert (alias["name"], alias["type"]) == (location.checkpoint("busy").luid, "LUID")
    assert facets["documentation"]["description"].startswith('The Tableau data source "busy"')
    assert facets["dataQualityMetrics"]["rowCount"] == 8
    assert output["outputFacets"]["outputStatistics"]["rowCount"] == 8
    checks = facets["dataQualityAssertions"]["assertions"]
    assert {each["assertion"]: each["success"] for each in checks}["keys"] is True


@pytest.mark.slow
def test_the_same_refresh_is_the_same_run(location: Location, sink: Sink):
    """Prevents: a catalogue shows a refresh twice because its events were sent twice."""
    location.publish("busy")
    daemon = Daemon(location, sink.lineage(datasource="luid"))
    first = sent(daemon, sink)
    daemon.cursor = None
    assert sent(daemon, sink) == first
    location.publish("busy")
    second = sent(daemon, sink)
    assert len(first) == len(second) == 2
    assert first[0]["run"]["runId"] != second[0]["run"]["runId"]


@pytest.mark.slow
def test_a_killed_sink(location: Location, sink: Sink):
    """Prevents: an unreachable catalogue stops refreshes, or never gets their events."""
    location.publish("busy")
    daemon = Daemon(location, sink.lineage(datasource="luid"))
    sent(daemon, sink)
    cursor = daemon.cursor
    sink.kill()
    runs = [location.refresh("busy", full=True) for _ in range(2)]
    assert all(run.success for run in runs)
    for _ in range(2):
        assert daemon.tick() == "The sink of lineage did not take an event: ConnectionError"
    assert json.loads(daemon.cursor or "")["sent"] == json.loads(cursor or "")["sent"]
    sink.start()
    events = sent(daemon, sink)
    assert [each["eventType"] for each in events] == ["START", "COMPLETE"] * 2
    assert len({each["run"]["runId"] for each in events}) == 2


@pytest.mark.slow
def test_what_stopped_a_refresh_stays_here(location: Location, sink: Sink):
    """Prevents: a catalogue shows successes only, or receives values of rows."""
    location.publish("busy")
    daemon = Daemon(location, sink.lineage(datasource="luid"))
    sent(daemon, sink)
    location.model(flights(1))
    refused = location.refresh("busy")
    assert not refused.success
    start, fail = sent(daemon, sink)
    assert (start["eventType"], fail["eventType"]) == ("START", "FAIL")
    message = fail["run"]["facets"]["errorMessage"]["message"]
    assert message == f"The refresh was stopped (refused): see run {refused.run_id} in Dagster"
    (output,) = fail["outputs"]
    assert output["name"] == location.checkpoint("busy").luid
    checks = output["facets"]["dataQualityAssertions"]["assertions"]
    guard = {each["assertion"]: each for each in checks}["guard"]
    assert (guard["success"], guard["severity"]) == (False, "error")
    assert "description" not in guard


@pytest.mark.slow
def test_no_secret_is_sent(
    location: Location,
    sink: Sink,
    capfd: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
):
    """Prevents: a catalogue's key reaches a log, or a git token reaches a catalogue."""
    (tmp_path / ".git").mkdir()
    remote = f'[remote "origin"]\n\turl = https://x:{SECRET}@git.example.com/sales.git\n'
    (tmp_path / ".git" / "config").write_text(remote)
    (tmp_path / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    monkeypatch.chdir(tmp_path)
    location.publish("busy")
    daemon = Daemon(location, sink.lineage(datasource="luid"))
    sink.status = 401
    assert daemon.tick() == "The sink of lineage did not take an event: HTTPError, status 401"
    sink.status = 201
    assert SECRET not in json.dumps(sent(daemon, sink))
    wrong = {"transport": {"type": "http", "url": SECRET}}
    with pytest.raises(ValueError, match="does not accept `lineage: openlineage`") as raised:
        Lineage(openlineage=wrong).client()
    assert SECRET not in str(raised.value)
    assert raised.value.__suppress_context__
    assert SECRET not in "".join(capfd.readouterr())


@pytest.mark.slow
def test_a_site_without_the_metadata_api(location: Location, sink: Sink):
    """Prevents: a job asks each minute for an ID although the site has no Metadata API."""
    location.publish("busy")
    daemon = Daemon(location, sink.lineage())
    assert daemon.tick() == ""
    with location.sandbox.armed(Refuse(path="graphql", status=500, times=None)):
        assert not daemon.look_up()
    assert daemon.tick().endswith("1 data sources have no id in the Metadata API yet")
    assert sink.got == []
    daemon = Daemon(location, sink.lineage(datasource="luid"))
    assert {each["outputs"][0]["name"] for each in sent(daemon, sink)} == {
        location.checkpoint("busy").luid
    }


@pytest.mark.slow
def test_an_id_that_comes_late(location: Location, sink: Sink, monkeypatch: pytest.MonkeyPatch):
    """Prevents: catalogues never get a new data source whose ID Tableau knows only later."""
    location.publish("busy")
    daemon = Daemon(location, sink.lineage())
    daemon.tick()
    with monkeypatch.context() as patch:
        patch.setattr("tableau_pipeline.components.lineage.metadata_ids", lambda *_: {})
        assert daemon.look_up()
    assert daemon.tick().endswith("1 data sources have no id in the Metadata API yet")
    monkeypatch.setattr("tableau_pipeline.components.lineage._RETRY", -1)
    assert daemon.tick() == ""
    assert daemon.look_up()
    assert daemon.tick() == "Sent 1 refreshes"


@pytest.mark.slow
def test_another_code_location_asks(location: Location, sink: Sink):
    """Prevents: a request of another location for other IDs suppresses our request."""
    location.publish("busy")
    daemon = Daemon(location, sink.lineage())
    config = {"ops": {"ask_for_ids": {"config": {"luids": ["of another site"]}}}}
    job = daemon.definitions.resolve_job_def("lineage_ids")
    assert job.execute_in_process(config, location.instance).success
    daemon.tick()
    assert daemon.look_up()


@pytest.mark.slow
def test_an_id_that_never_comes(location: Location, sink: Sink, monkeypatch: pytest.MonkeyPatch):
    """Prevents: a job asks every five minutes for ever for an ID that never comes."""
    location.publish("busy")
    location.grow_old("busy")
    daemon = Daemon(location, sink.lineage())
    # Even two days after the refresh, the sensor requests a first look-up of the ID.
    assert (daemon.tick(), len(daemon.requests)) == ("", 1)
    with monkeypatch.context() as patch:
        patch.setattr("tableau_pipeline.components.lineage.metadata_ids", lambda *_: {})
        assert daemon.look_up()
        patch.setattr("tableau_pipeline.components.lineage._PATIENCE", 0)
        assert (daemon.tick(), daemon.requests) == ("Nothing new to send", [])
    monkeypatch.setattr("tableau_pipeline.components.lineage._RETRY", -1)
    location.publish("busy")
    daemon.tick()
    assert daemon.look_up()
    assert daemon.tick() == "Sent 1 refreshes"


@pytest.mark.slow
def test_events_of_others(location: Location, sink: Sink):
    """Prevents: the sensor fails for ever because a user has reported a materialization."""
    location.publish("busy")
    daemon = Daemon(location, sink.lineage(datasource="luid"))
    sent(daemon, sink)
    for metadata in ({}, {"details": {"by": "hand"}}, {"details": "by hand"}):
        event = dg.AssetMaterialization(KEY, metadata=metadata)
        location.instance.report_runless_asset_event(event)
    assert sent(daemon, sink) == []
    # Notifications and `status` read the same events, and must ignore these.
    assert [each.status for each in incidents(location.instance, [BUSY])] == [None, None]
    location.model(flights(1))
    assert not location.refresh("busy").success
    assert [each["eventType"] for each in sent(daemon, sink)] == ["START", "FAIL"]


@pytest.mark.slow
def test_a_refresh_outside_of_runs(location: Location, sink: Sink):
    """Prevents: refreshes outside of Dagster's runs appear as one run, or stop the sensor."""
    location.publish("busy")
    daemon = Daemon(location, sink.lineage(datasource="luid"))
    sent(daemon, sink)
    details = {"details": {"luid": location.checkpoint("busy").luid}, "dagster/row_count": 8}
    for _ in range(2):
        event = dg.AssetMaterialization(KEY, metadata=details)
        location.instance.report_runless_asset_event(event)
    events = sent(daemon, sink)
    assert [each["eventType"] for each in events] == ["START", "COMPLETE"] * 2
    assert len({each["run"]["runId"] for each in events}) == 2
    assert events[-1]["outputs"][0]["facets"]["dataQualityMetrics"]["rowCount"] == 8


@pytest.mark.slow
def test_an_event_that_the_sink_refuses(location: Location, sink: Sink):
    """Prevents: one event that a catalogue rejects blocks all later events."""
    location.publish("busy")
    daemon = Daemon(location, sink.lineage(datasource="luid"))
    sink.status = 422
    daemon.tick()
    sink.status = 201
    assert sent(daemon, sink) == []
    location.publish("busy")
    assert len(sent(daemon, sink)) == 2


@pytest.mark.slow
def test_a_transport_with_a_queue(location: Location, sink: Sink):
    """Prevents: each tick leaves a thread in the daemon, or a queue loses an event."""
    lineage = sink.lineage(datasource="luid")
    lineage.openlineage["transport"]["type"] = "async_http"
    location.publish("busy")
    daemon, before = Daemon(location, lineage), {*enumerate_threads()}
    daemon.tick()
    assert len(taken(sink)) == 2
    left = [
        each.name for each in {*enumerate_threads()} - before if "process_request" not in each.name
    ]
    assert left == []


@pytest.mark.slow
def test_files(location: Location, sink: Sink, tmp_path: Path):
    """Prevents: a catalogue shows no origin for the data source of a published file."""
    file = tmp_path / "sales.csv"
    file.write_text("id,price\n1,0.5\n")
    daemon = Daemon(location, sink.lineage(datasource="luid"))
    done = publish_file.execute_in_process(
        {"ops": {"publish_files": {"config": {"path": str(file), "name": "Sales"}}}},
        instance=location.instance,
        resources=location.resources(),
    )
    assert done.success
    _, complete = sent(daemon, sink)
    assert [(each["namespace"], each["name"]) for each in complete["inputs"]] == [
        ("file", str(file))
    ]
    columns = complete["outputs"][0]["facets"]["columnLineage"]["fields"]
    assert columns["price"]["inputFields"][0]["name"] == str(file)


@pytest.mark.parametrize(
    ("source", "namespace", "name"),
    [
        (None, "dagster", "raw.flights"),
        ({"delta": "/lake/orders/"}, "file", "/lake/orders"),
        ({"delta": "s3://lake/sales/orders"}, "s3://lake", "sales/orders"),
        (
            {"iceberg": "abfss://c@a.dfs.core.windows.net/t"},
            "abfss://c@a.dfs.core.windows.net",
            "t",
        ),
        ({"iceberg": {"catalog": "prod", "table": "db.orders"}}, "iceberg", "db.orders"),
    ],
)
def test_names_of_inputs(source: dict[str, Any] | None, namespace: str, name: str):
    """Prevents: lineage begins at a table name that no catalogue knows."""
    table = Table("flights", "raw/flights", source=LakeTable(**source) if source else None)
    found = dataset_of(table, Lineage(openlineage={}, separator="."))
    assert asdict(found) == {"namespace": namespace, "name": name}


def test_without_the_extra(monkeypatch: pytest.MonkeyPatch):
    """Prevents: a location loads without the extra for lineage, and never sends an event."""
    monkeypatch.setitem(sys.modules, "openlineage.client", None)
    with pytest.raises(ValueError, match=re.escape("pip install 'tableau_pipeline[lineage]'")):
        Lineage(openlineage={})
