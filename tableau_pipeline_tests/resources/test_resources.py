"""Settings of the resources, and the failures that Dagster shows."""

import logging
import os
import subprocess
import sys
from pathlib import Path

import dagster as dg
import pytest

from tableau_pipeline.core.drift import Timeouts
from tableau_pipeline.errors import RefreshError, RefusedError
from tableau_pipeline.outcome import Accept, Check, Code, Refusal, accepts_of
from tableau_pipeline.resources import resources_from_env
from tableau_pipeline.resources.services import CODE, REFUSALS, RUN_CONFIG, as_failure
from tableau_pipeline_tests.conftest import ROOT


@pytest.mark.slow
def test_without_java(tmp_path: Path) -> None:
    """Prevents: on a machine without Java, a run shows a stack trace of py4j."""
    code = """if True:
        import dagster as dg
        from tableau_pipeline.resources import SparkResource
        try:
            SparkResource().spark_session
        except dg.Failure as error:
            assert error.__cause__ is None
            print(error.description)
    """
    child = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "JAVA_HOME": str(tmp_path / "nowhere"), "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "could not start its Java process" in child.stdout, child.stderr


SHRUNK = "1 rows where 8 are published. If that is right, run again with accept: [shrink]"


def failed(error: Exception, *, step: str | None = None) -> dg.Failure:
    """Return the failure that Dagster gets for an error."""
    with pytest.raises(dg.Failure) as raised, as_failure(logging.getLogger(), step=step):
        raise error
    return raised.value


def test_the_message_is_that_of_the_error():
    """Prevents: a long stack trace of our own code hides the cause of a failure."""
    failure = failed(RefusedError("The key must identify every row"), step="shop_orders")
    assert failure.description == "The key must identify every row"
    assert failure.__cause__ is None
    assert failure.__suppress_context__


def test_where_accept_is_written():
    """Prevents: a remedy does not say where users write `accept`."""
    refusal = Refusal(SHRUNK, Code.ROWS_LOST, Accept.SHRINK, table="orders")
    failure = failed(RefusedError(refusal), step="shop__orders")
    assert failure.description == SHRUNK
    config = failure.metadata[RUN_CONFIG].value
    assert config == "ops: {shop__orders: {config: {accept: [shrink]}}}"
    assert RUN_CONFIG not in failed(RefusedError(refusal)).metadata


def test_a_refusal_is_recorded_as_a_value():
    """Prevents: a recorded refusal cannot be read again, or the web UI hides its code."""
    refusals = (
        Refusal("a", Code.ROWS_LOST, Accept.SHRINK, Check.GUARD, "orders", details={"rows": 3}),
        Refusal("b", Code.SCHEMA_CHANGED, Accept.SCHEMA, Check.SCHEMA, column="id", remedy="Cast"),
    )
    failure = failed(RefusedError(*refusals), step="shop__orders")
    assert failure.description == "a\nb. Cast"
    recorded = failure.metadata[REFUSALS].value
    assert [Refusal.of_json(each) for each in recorded] == [*refusals]
    assert failure.metadata[CODE].value == "rows lost, schema changed"
    assert accepts_of(refusals) == ["shrink", "schema"]
    assert "accept: [shrink, schema]" in str(failure.metadata[RUN_CONFIG].value)


def test_no_run_accepts_what_none_may():
    """Prevents: a failure suggests `accept` although no run can accept one of its refusals."""
    refusals = (
        Refusal("a", Code.ROWS_LOST, Accept.SHRINK, Check.GUARD, "orders"),
        Refusal("c", Code.SETTING),
    )
    assert accepts_of(refusals) == []
    assert RUN_CONFIG not in failed(RefusedError(*refusals), step="shop__orders").metadata


def test_the_traceback_is_for_developers(caplog: pytest.LogCaptureFixture):
    """Prevents: the log of a run shows a hundred lines for each refusal."""
    caplog.set_level(logging.DEBUG)
    failed(RefusedError(SHRUNK))
    (record,) = caplog.records
    assert record.levelno == logging.DEBUG
    assert record.getMessage().startswith("Traceback")


def test_only_what_may_pass_is_tried_again():
    """Prevents: Dagster tries a refused refresh again."""
    assert not failed(RefusedError("no")).allow_retries
    assert failed(RefreshError("not now")).allow_retries


def test_what_the_environment_says(monkeypatch: pytest.MonkeyPatch):
    # Prevents: a setting in the environment has no effect.
    tableau = resources_from_env()["tableau"]
    assert (tableau.timeouts, tableau.takeover) == (Timeouts(), False)
    monkeypatch.setenv("TABLEAU_JOB_TIMEOUT", "60")
    monkeypatch.setenv("TABLEAU_QUEUE_TIMEOUT", "70")
    monkeypatch.setenv("TABLEAU_ARRIVAL_TIMEOUT", "80")
    monkeypatch.setenv("TABLEAU_TAKEOVER", "true")
    tableau = resources_from_env()["tableau"]
    assert tableau.timeouts == Timeouts(job=60, queue=70, arrival=80)
    assert tableau.takeover is True


def test_empty_settings_are_none(monkeypatch: pytest.MonkeyPatch):
    # Prevents: an empty line in .env keeps the location from loading.
    for name in ("TABLEAU_JOB_TIMEOUT", "TABLEAU_ARRIVAL_TIMEOUT", "TABLEAU_TAKEOVER"):
        monkeypatch.setenv(name, "")
    tableau = resources_from_env()["tableau"]
    assert (tableau.timeouts, tableau.takeover) == (Timeouts(), False)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("TABLEAU_JOB_TIMEOUT", "2h"),
        ("TABLEAU_JOB_TIMEOUT", "0"),
        ("TABLEAU_QUEUE_TIMEOUT", "-1"),
        ("TABLEAU_TAKEOVER", "maybe"),
        ("PIPELINE_CACHE_GB", "10 GB"),
        ("PIPELINE_CACHE_GB", "-1"),
    ],
)
def test_bad_values(monkeypatch: pytest.MonkeyPatch, name: str, value: str):
    # Prevents: a mistyped setting counts as the default, or the error does not name the setting.
    monkeypatch.setenv(name, value)
    with pytest.raises(RefusedError, match=f"{name} is '{value}'"):
        resources_from_env()


@pytest.mark.parametrize("refused", [True, False], ids=["refused", "failed"])
def test_a_refusal_is_no_crash(*, refused: bool):
    """Prevents: Dagster retries a refusal or shows its stack, or does not retry a failure."""

    @dg.asset(retry_policy=dg.RetryPolicy(max_retries=1))
    def refreshed(context: dg.AssetExecutionContext) -> None:
        with as_failure(context.log):
            raise (RefusedError if refused else RefreshError)("Table t has no rows")

    result = dg.materialize([refreshed], raise_on_error=False)
    (failed,) = result.get_step_failure_events()
    data = failed.step_failure_data
    (ended,) = [e for e in result.all_events if e.event_type is dg.DagsterEventType.RUN_FAILURE]
    cause = ended.job_failure_data.first_step_failure_event.event_specific_data
    tried = [e for e in result.all_events if e.event_type is dg.DagsterEventType.STEP_RESTARTED]
    assert len(tried) == (0 if refused else 1)
    if refused:
        assert data.user_failure_data.description == "Table t has no rows"
        for error in (data.error, cause.error):
            assert (error.message, error.stack) == ("Refused: Table t has no rows\n", [])
            assert (error.cause, error.context) == (None, None)
