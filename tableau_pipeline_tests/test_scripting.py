"""Refreshes from scripts, and the public names that scripts may use."""

import logging
import os
import runpy
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import dagster as dg
import pytest
from pyspark.sql import SparkSession

from tableau_pipeline import components, hyper, scripting
from tableau_pipeline.actions import batch
from tableau_pipeline.core.checkpoint import Checkpoint
from tableau_pipeline.core.declaration import Declaration, Table
from tableau_pipeline.core.journal import Claim
from tableau_pipeline.core.journal_store import StoredJournal, owner_here, script_journal
from tableau_pipeline.errors import RefreshError, RefusedError
from tableau_pipeline.publishing.session import Password, signed_in
from tableau_pipeline.refresh import claim
from tableau_pipeline.refresh.decide import NoChange, Publish
from tableau_pipeline.scripting import refresh, spark
from tableau_pipeline.snapshots.version_store import SnapshotStore
from tableau_pipeline_tests.components.support.location import Location, decision, failure
from tableau_pipeline_tests.components.support.location import wrong as differences_on
from tableau_pipeline_tests.conftest import ROOT
from tableau_pipeline_tests.dagster_servers import until
from tableau_pipeline_tests.refresh.support.models import flights, snapshot
from tableau_pipeline_tests.refresh.support.pipeline import TIMEOUTS
from tableau_pipeline_tests.refresh.support.proxies import At
from tableau_sandbox.testing import Sandbox

EXAMPLE = ROOT / "examples" / "refresh_from_a_script.py"
AT_ONCE = replace(TIMEOUTS, claim=0)


class Script:
    """A script that refreshes one data source."""

    def __init__(self, sandbox: Sandbox, data: Path):
        self.sandbox, self.data = sandbox, data
        self.declaration = Declaration(
            key="sales/flights",
            name="Flights",
            project="Default",
            tables=(Table("flights", model="raw/flights"),),
            reconcile=None,
        )

    @property
    def journal(self) -> StoredJournal:
        """The journal of the data source, as a script reads it."""
        return script_journal(self.data / "journal", self.declaration.key)

    def newest_record(self) -> Path:
        """Return the file of the newest record."""
        return max((self.data / "journal").rglob("[0-9]*.json"))

    def model(self, rows: int = 8) -> None:
        snapshot(self.data / "snapshots", flights(rows), asset_key="raw/flights")

    def checkpoint(self) -> Checkpoint | None:
        return self.journal.history().checkpoint

    def session(self) -> Any:
        credentials = Password(self.sandbox.user, self.sandbox.password)
        return signed_in(self.sandbox.url, credentials=credentials)

    def run(self, use: Callable[..., Any] = refresh, **changes: Any) -> Any:
        usual = {
            "declaration": self.declaration,
            "server": self.session,
            "snapshots": self.data / "snapshots",
            "journal": self.data / "journal",
            "folder": self.data,
        }
        return use(**usual | changes)


@pytest.fixture
def script(tableau_sandbox: Sandbox, tmp_path: Path) -> Script:
    """Return a script whose model has rows."""
    made = Script(tableau_sandbox, tmp_path)
    made.model()
    return made


def wrong(sandbox: Sandbox, declaration: Declaration, snapshots: Path) -> list[str]:
    """Return the differences between the published data source and its models."""
    store = SnapshotStore(snapshots)
    models = {model: found for model in declaration.models if (found := store.newest(model))}
    return differences_on(sandbox, declaration, models)


@pytest.mark.slow
def test_the_example(spark: SparkSession, tableau_sandbox: Sandbox, tmp_path: Path):
    # Prevents: an example does not run, or publishes other rows than the rows of its file.
    example = runpy.run_path(str(EXAMPLE))
    csv, data = tmp_path / "orders.csv", tmp_path / "data"
    decisions = []
    for rows in (["1,9.99", "2,0.01"], ["2,0.01", "1,9.99"], ["1,9.99", "2,0.02", "3,5"]):
        csv.write_text("\n".join(["id,amount", *rows]), encoding="utf-8")
        decisions.append(type(example["main"](csv, data).plan))
        stored = SnapshotStore(data / "snapshots").newest("orders")
        assert stored
        assert stored.fingerprint.rows == len(rows)
        assert wrong(tableau_sandbox, example["ORDERS"], data / "snapshots") == []
    assert decisions[0] is Publish
    assert decisions[1] is NoChange
    assert decisions[2] is not NoChange


@pytest.mark.slow
def test_the_example_says_what_is_wrong(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    # Prevents: cron's mail shows a stack trace, or a failed script exits with status 0.
    monkeypatch.setenv("TABLEAU_SERVER_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("TABLEAU_TOKEN_NAME", "pipeline")
    monkeypatch.setenv("TABLEAU_TOKEN_VALUE", "secret")
    (tmp_path / "orders.csv").write_text("id,amount\n1,2\n", encoding="utf-8")
    monkeypatch.setattr(sys, "argv", ["", str(tmp_path / "orders.csv"), str(tmp_path / "data")])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(EXAMPLE), run_name="__main__")
    assert "http://127.0.0.1:9" in str(ended.value.code)
    monkeypatch.setattr(sys, "argv", ["script"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(EXAMPLE), run_name="__main__")
    assert str(ended.value.code).endswith("refresh_from_a_script.py FILE.csv FOLDER")


@pytest.mark.slow
def test_neither_dagster_nor_spark_is_needed():
    # Prevents: a refresh from a script needs Dagster or Spark, or takes seconds to load them.
    program = (
        "import sys, tableau_pipeline.scripting, tableau_pipeline.publishing.site\n"
        "print({'dagster', 'pyspark'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("set()\n", "")


def test_what_was_published_is_remembered(script: Script, monkeypatch: pytest.MonkeyPatch):
    # Prevents: a script that runs in another folder does not find its own records.
    monkeypatch.chdir(script.data)
    here = Path()
    first = script.run(snapshots=here / "snapshots", journal=here / "journal", folder=here)
    assert isinstance(first.plan, Publish)
    assert first.extract
    assert first.extract.path.is_absolute()
    assert first.checkpoint
    assert script.checkpoint() == first.checkpoint
    monkeypatch.chdir("/")
    assert isinstance(script.run().plan, NoChange)
    assert wrong(script.sandbox, script.declaration, script.data / "snapshots") == []


@pytest.mark.parametrize("use", [scripting.plan, scripting.build])
def test_what_was_not_published_is_not_remembered(script: Script, use: Callable[..., Any]):
    # Prevents: a plan or a build is recorded, and the refresh finds nothing to do.
    script.run(use=use)
    assert not (script.data / "journal").exists()
    assert isinstance(script.run().plan, Publish)


def refresh_until_killed(script: Script) -> None:
    """Refresh, and kill this process before the refresh asks for the job."""

    @contextmanager
    def server() -> Generator[At]:
        with script.session() as site:
            yield At(site, "job", lambda: os.kill(os.getpid(), signal.SIGKILL))

    script.run(server=server)


@pytest.mark.slow
def test_a_killed_script_holds_off_no_other(script: Script):
    """Prevents: rows of a killed script are sent twice, or its claim blocks all other scripts."""
    sandbox: Any = script.sandbox
    sandbox = SimpleNamespace(url=sandbox.url, user=sandbox.user, password=sandbox.password)
    doomed = Script(sandbox, script.data)
    process = get_context("spawn").Process(target=refresh_until_killed, args=(doomed,))
    process.start()
    process.join(60)
    assert process.exitcode == -signal.SIGKILL
    assert script.journal.history().claim
    script.run(timeouts=AT_ONCE)
    assert script.journal.history().claim is None
    assert wrong(script.sandbox, script.declaration, script.data / "snapshots") == []


@pytest.mark.slow
def test_damaged_records_are_refused(script: Script):
    """Prevents: a damaged journal passes for an empty one, or a refusal gives useless advice."""
    script.run()
    newest = script.newest_record()
    for content in (b"", b"{}", b"null", b'{"format": 5, "record": {', b"\xff\x00"):
        newest.write_bytes(content)
        with pytest.raises(RefusedError, match="is damaged") as refused:
            script.run()
        assert str(newest) in str(refused.value)
        assert "move its records away" in str(refused.value)
        assert newest.read_bytes() == content
    shutil.rmtree(newest.parent)
    assert isinstance(script.run().plan, Publish)
    assert wrong(script.sandbox, script.declaration, script.data / "snapshots") == []


@pytest.mark.parametrize("use", [refresh, scripting.plan, scripting.build])
def test_the_file_of_an_earlier_release_is_refused(script: Script, use: Callable[..., Any]):
    """Prevents: after an upgrade, a script shows a stack trace or overwrites a user's file."""
    former = script.data / "flights.json"
    former.write_text('{"format": 4}', "utf-8")
    with pytest.raises(RefusedError, match=r"flights\.json is a file, .* accept: \[takeover\]"):
        script.run(use, journal=former)
    assert former.read_text("utf-8") == '{"format": 4}'


def test_scripts_wait_for_each_other(
    script: Script, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    """Prevents: two scripts send at once, or a script waits for ever without a message."""
    caplog.set_level(logging.INFO, "tableau_pipeline")
    monkeypatch.setattr(claim, "_PAUSE", (0.01, 0.1))
    me = f"process {os.getpid()} on "
    with ThreadPoolExecutor() as threads:
        with script.sandbox.held_jobs():
            first = threads.submit(script.run, timeouts=TIMEOUTS)
            until(lambda: script.journal.history().claim, seconds=30, what="it does not begin")
            with pytest.raises(
                RefreshError, match=f"refreshed by {me}.* If that refresh hangs, end it"
            ):
                script.run(timeouts=AT_ONCE)
            caplog.clear()
            second = threads.submit(script.run, timeouts=TIMEOUTS)
            until(lambda: f"Waiting for {me}" in caplog.text, seconds=30, what="it does not wait")
        assert isinstance(first.result().plan, Publish)
        assert isinstance(second.result().plan, NoChange)


def test_other_data_sources_do_not_wait(script: Script):
    """Prevents: a refresh of `sales/eu` waits for a refresh of `sales`, or reads its records."""
    running = Claim(refresh=1, owner=script.journal.owner)
    script.journal.append(lambda _: running, after=script.journal.history())
    other = replace(script.declaration, key=f"{script.declaration.key}/eu", name="Flights EU")
    script.run(declaration=other, timeouts=AT_ONCE)
    assert wrong(script.sandbox, other, script.data / "snapshots") == []
    assert script.journal.history().claim == running


@pytest.fixture
def in_dagster(script: Script, monkeypatch: pytest.MonkeyPatch) -> Generator[Location]:
    """Yield the Dagster project whose data folder the script uses."""
    monkeypatch.setenv("PIPELINE_DATA_DIR", str(script.data))
    with dg.instance_for_test() as instance:
        yield Location(script.sandbox, script.data / "snapshots", instance)


@pytest.mark.slow
def test_a_script_and_a_project_have_one_history(script: Script, in_dagster: Location):
    """Prevents: a script and a project refuse or repeat what the other one has published."""
    key, named = script.declaration.key, {"name": script.declaration.name}
    by_dagster = partial(in_dagster.refresh, key, declared=named)
    assert decision(by_dagster()).startswith("publish (create)")
    assert isinstance(script.run().plan, NoChange)
    script.model(9)
    assert not isinstance(script.run().plan, NoChange)
    assert decision(by_dagster()).startswith("no change")
    assert script.journal.history() == in_dagster.history(key)
    assert wrong(script.sandbox, script.declaration, script.data / "snapshots") == []


@pytest.mark.slow
def test_a_script_and_a_project_wait_for_each_other(script: Script, in_dagster: Location):
    """Prevents: a script and a run of Dagster refresh one data source at the same time."""
    key, by_script = script.declaration.key, script.journal.owner
    by_run = owner_here("run-1", step="flights", label="run run-1")
    for owner in (by_script, by_run):
        running = Claim(refresh=script.journal.history().refresh + 1, owner=owner)
        script.journal.append(lambda _, it=running: it, after=script.journal.history())
        held = f"{key} has been refreshed by {owner.label} for more than 0 s"
        assert held in failure(in_dagster.refresh(key, claim=0))
        with pytest.raises(RefreshError, match=held):
            script.run(timeouts=AT_ONCE)


PUBLIC: dict[ModuleType, str] = {
    batch: "Action Batch BatchError Delete Insert Replace Upsert all_of source target",
    components: "FileDrop PublishedDatasource TableauPipeline send_batch",
    hyper: "HyperFile HyperFileError TableInfo open_hyper",
    scripting: "Accept Append Built Calculation ConnectedApp Declaration Diff Feed FieldMetadata "
    "Guard InCatalog LakeTable Members MetadataPolicy Options Partitions Password "
    "PersonalAccessToken Planned Reconcile RefreshError Refreshed RefusedError Relationship "
    "ReplaceAll Republish Retain Table Timeouts build plan refresh signed_in",
    spark: "SnapshotStore read_files spark_session write_snapshot",
}


@pytest.mark.parametrize("module", PUBLIC, ids=lambda module: module.__name__)
def test_public_names(module: ModuleType):
    """Prevents: a public name appears or disappears unnoticed."""
    assert module.__all__ == PUBLIC[module].split()
    assert set(module.__all__) <= set(dir(module))
