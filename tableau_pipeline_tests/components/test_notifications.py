"""Messages about incidents, by web and by mail."""

import json
import re
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from socketserver import StreamRequestHandler, TCPServer
from threading import Thread
from typing import Any

import dagster as dg
import pytest
from apprise import Apprise
from dagster._core.remote_origin import InProcessCodeLocationOrigin
from dagster._core.test_utils import create_run_for_test
from dagster._core.types.loadable_target_origin import LoadableTargetOrigin

from tableau_pipeline.components.audit import AUDIT
from tableau_pipeline.components.journal import journal_of
from tableau_pipeline.components.notifications import (
    Notify,
    _audit_incidents,
    notification_sensor,
)
from tableau_pipeline.components.published_datasource import PublishedDatasource
from tableau_pipeline.components.status import failure_of
from tableau_pipeline.core.hold import Hold, end_hold, put_hold
from tableau_pipeline.dagster_internals import REPOSITORY_TAG
from tableau_pipeline.rendering import command
from tableau_pipeline_tests.components.conftest import NewInstance
from tableau_pipeline_tests.components.support.location import Location
from tableau_pipeline_tests.refresh.support.models import flights


class Web(BaseHTTPRequestHandler):
    """A handler of web requests; tests set the status of its answers."""

    got: list[dict[str, Any]]
    status = 200

    def do_POST(self) -> None:
        """Answer a message, and keep it if the status is 200."""
        body = self.rfile.read(int(self.headers["Content-Length"]))
        type(self).got += [json.loads(body)] * (self.status == 200)
        self.send_response(self.status)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Stay silent."""


class Mail(StreamRequestHandler):
    """The part of SMTP that a client needs to send one mail."""

    got: list[str]

    def handle(self) -> None:
        """Receive one mail."""
        self.wfile.write(b"220 here\r\n")
        while line := self.rfile.readline().decode().strip().upper():
            if line == "DATA":
                self.wfile.write(b"354 go on\r\n")
                lines = iter(lambda: self.rfile.readline().decode().rstrip("\r\n"), ".")
                type(self).got.append("\n".join(lines))
            self.wfile.write(b"221 bye\r\n" if line == "QUIT" else b"250 ok\r\n")


BUSY = PublishedDatasource.from_attributes_dict(
    attributes={
        "name": "Busy",
        "key": "busy",
        "project": "Default",
        "tables": {"flights": {"model": "raw/flights"}},
        "freshness": {"within": "24h"},
    }
)
URLS = {
    Web: "json://127.0.0.1:{}/hook",
    Mail: "mailto://127.0.0.1:{}?from=us@example.com&to=team@example.com&mode=insecure",
}


@contextmanager
def serving(handler: type[Web] | type[Mail]) -> Generator[tuple[Any, int]]:
    """Run a new server; the block gets its class of request handlers, and its port."""
    mine: Any = type("Mine", (handler,), {"got": []})
    server: Any = (HTTPServer if issubclass(handler, Web) else TCPServer)(("127.0.0.1", 0), mine)
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield mine, server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()


@contextmanager
def telling(
    location: Location, *handlers: type[Web] | type[Mail], **more: Any
) -> Generator[tuple[Any, ...]]:
    """Run a new server for each handler, and publish new rows of "busy".

    The block gets a function that evaluates the sensor and keeps its cursor, as the daemon does,
    and the handler class of each server.
    """
    with ExitStack() as stack:
        servers = [stack.enter_context(serving(each)) for each in handlers]
        urls = [URLS[each].format(port) for each, (_, port) in zip(handlers, servers, strict=True)]
        sensor = notification_sensor(Notify(urls=tuple(urls), **more), [BUSY])
        cursor = None

        def tick() -> None:
            nonlocal cursor
            with dg.build_sensor_context(location.instance, cursor=cursor) as context:
                cursor = sensor.evaluate_tick(context).cursor

        location.publish("busy")
        yield tick, *(server for server, _ in servers)


@pytest.mark.slow
def test_each_incident_is_told_once(location: Location, monkeypatch: pytest.MonkeyPatch):
    """Prevents: a team gets no message about a refusal, or a message every minute."""
    monkeypatch.setenv("PIPELINE_WEB_URL", "https://dagster.example/")
    with telling(location, Web, Mail) as (tick, web, mail):
        tick()
        assert (web.got, mail.got) == ([], [])
        location.model(flights(1))
        refused = location.refresh("busy")
        for _ in range(3):
            tick()
        # A retry that is refused again is the same incident.
        location.refresh("busy")
        tick()
        (posted,) = web.got
        assert posted["message"].startswith('"Busy" was refused: Table "flights"')
        assert "Remedy: tableau-pipeline refresh busy --accept shrink" in posted["message"]
        assert f"https://dagster.example/runs/{refused.run_id}" in posted["message"]
        assert len(mail.got) == 1
        assert "Subject: Tableau" in mail.got[0]
        assert location.refresh("busy", accept=["shrink"]).success
        tick()
        location.model(flights(0))
        location.refresh("busy")
        tick()
        assert len(web.got) == len(mail.got) == 2


@pytest.mark.slow
def test_refused_and_failed_in_turns(location: Location):
    """Prevents: a data source that fails for changing reasons sends message after message."""
    with telling(location, Web) as (tick, web):
        location.model(flights(1))
        for _ in range(2):
            location.refresh("busy")
            tick()
            location.sandbox.stop()
            location.refresh("busy")
            tick()
            location.sandbox.start()
        (posted,) = web.got
        assert posted["message"].startswith('"Busy" was refused')
        assert location.refresh("busy", accept=["shrink"]).success
        tick()
        location.sandbox.stop()
        location.refresh("busy", full=True)
        tick()
        location.sandbox.start()
        assert '"Busy" has failed' in web.got[1]["message"]


@pytest.mark.slow
def test_a_hold_is_reported_once(location: Location):
    """Prevents: no message reports a hold, or the end of a hold repeats an old refusal."""
    journal = journal_of(location.instance, "busy")
    with telling(location, Web) as (tick, web):
        location.model(flights(1))
        location.refresh("busy")
        tick()
        put_hold(journal.place, journal.key, Hold(by="eve", why="audit"))
        for _ in range(3):
            tick()
        _, posted = web.got
        assert re.match(r'"Busy" is held since .* by eve.*: audit', posted["message"])
        assert "To go on: tableau-pipeline release busy" in posted["message"]
        end_hold(journal.place, journal.key)
        tick()
        assert len(web.got) == 2
        put_hold(journal.place, journal.key, Hold(by="bob"))
        tick()
        assert "by bob" in web.got[2]["message"]


@pytest.mark.slow
def test_who_does_not_answer_is_asked_again(location: Location):
    """Prevents: a message is lost if its receiver fails, or all other receivers get it twice."""
    with telling(location, Web, Web) as (tick, good, bad):
        location.model(flights(1))
        location.refresh("busy")
        bad.status = 500
        tick()
        bad.status = 200
        tick()
        assert len(good.got) == len(bad.got) == 1


@pytest.mark.slow
def test_a_service_that_raises(location: Location, monkeypatch: pytest.MonkeyPatch):
    """Prevents: one URL with an invalid password repeats each message to all other receivers."""
    send = Apprise.instantiate

    class Raises:
        def notify(self, **_: object) -> bool:
            raise UnicodeEncodeError("ascii", "secret", 0, 1, "ordinal not in range(128)")

    def instantiate(url: str, **given: Any) -> Any:
        return Raises() if url.startswith("mailto:") else send(url, **given)

    monkeypatch.setattr(Apprise, "instantiate", instantiate)
    with telling(location, Mail, Web) as (tick, _, web):
        location.model(flights(1))
        location.refresh("busy")
        tick()
        tick()
        assert len(web.got) == 1


def test_the_audit_of_another_location(new_instance: NewInstance):
    """Prevents: a team gets the messages of another team's audit, but none of its own audit."""

    def run(location: str, status: dg.DagsterRunStatus) -> str:
        tags = {REPOSITORY_TAG: f"__repository__@{location}"}
        return create_run_for_test(
            instance, job_name=AUDIT, status=status, tags=tags if location else None
        ).run_id

    with new_instance() as instance:
        origin = InProcessCodeLocationOrigin(LoadableTargetOrigin(), location_name="ours")
        context = dg.SensorEvaluationContext(
            instance_ref=None,
            last_tick_completion_time=None,
            last_run_key=None,
            cursor=None,
            log_key=None,
            instance=instance,
            repository_name="__repository__",
            code_location_origin=origin,
        )
        failed = run("ours", dg.DagsterRunStatus.FAILURE)
        for _ in range(12):
            run("theirs", dg.DagsterRunStatus.SUCCESS)
        (incident,) = _audit_incidents(context)
        assert incident.run_id == failed
        assert incident.text == "The audit: its run has ended without a result"
        run("ours", dg.DagsterRunStatus.SUCCESS)
        run("theirs", dg.DagsterRunStatus.FAILURE)
        (incident,) = _audit_incidents(context)
        assert incident.status is None
        # A run of `dagster job execute` has no tag with its location, and counts as ours.
        failed = run("", dg.DagsterRunStatus.FAILURE)
        (incident,) = _audit_incidents(context)
        assert incident.run_id == failed


@pytest.mark.slow
def test_what_the_audit_finds(location: Location):
    """Prevents: no message says that an audit has failed."""
    with telling(location, Web) as (tick, web):
        location.sandbox.stop()
        assert not location.audit("busy").success
        tick()
        location.sandbox.start()
        (posted,) = web.got
        assert posted["message"].startswith("The audit: ")
        assert location.audit("busy").success
        tick()
        tick()
        assert len(web.got) == 1


@pytest.mark.slow
def test_what_failed_and_what_is_late(location: Location):
    """Prevents: no message reports a failed or a late refresh, or unwanted messages arrive."""
    with (
        telling(location, Web) as (tick, web),
        telling(location, Web, on=("failed",)) as (only, few),
    ):
        location.grow_old("busy")
        tick()
        location.sandbox.stop()
        assert not location.refresh("busy", full=True).success
        location.sandbox.start()
        tick()
        only()
        late, failed = (each["message"] for each in web.got)
        assert late.startswith('"Busy" is late: freshness: its last refresh is older than 24 h')
        assert failed.startswith('"Busy" has failed: ')
        assert "no connection to" in failed
        assert [each["message"] for each in few.got] == [failed]


def test_a_url_that_is_none():
    """Prevents: a location loads with a wrong URL, or its error shows a secret."""
    with pytest.raises(ValueError, match="number 2 is no URL that Apprise knows") as raised:
        Notify(urls=("json://127.0.0.1", "sesame"))
    assert "sesame" not in str(raised.value)


def test_a_model_that_failed_runs_again():
    """Prevents: the remedy for a failed model publishes the old rows again."""

    @dg.asset
    def sales_rows() -> None:
        raise ValueError("no such file")

    @dg.asset(deps=[sales_rows])
    def sales() -> None: ...

    instance = dg.DagsterInstance.ephemeral()
    run = dg.materialize([sales_rows, sales], instance=instance, raise_on_error=False)
    failure = failure_of(instance, run.run_id, "sales")
    assert failure.is_before
    repeat = command("sales", failure.accepts, models=failure.is_before)
    assert repeat == "tableau-pipeline refresh sales --models"
