"""Refreshes from scripts, and the names that these may rely on."""

import runpy
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tableau_pipeline import components, hyper, scripting
from tableau_pipeline.actions import batch
from tableau_pipeline.core.checkpoint import Checkpoint
from tableau_pipeline.core.declaration import Declaration, Table
from tableau_pipeline.core.journal import read_history
from tableau_pipeline.publishing.session import Password, signed_in
from tableau_pipeline.refresh.decide import NoChange, Publish
from tableau_pipeline.scripting import refresh, spark
from tableau_pipeline.scripting.file_journal import FileJournal
from tableau_pipeline.snapshots.version_store import SnapshotStore
from tableau_pipeline_tests.components.support.location import wrong as differences_on
from tableau_pipeline_tests.conftest import ROOT
from tableau_pipeline_tests.refresh.support.models import flights, snapshot
from tableau_sandbox.testing import Sandbox

EXAMPLE = ROOT / "examples" / "refresh_from_a_script.py"


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
        self.journal = FileJournal(data / "flights.json")

    def model(self, rows: int = 8) -> None:
        snapshot(self.data / "snapshots", flights(rows), asset_key="raw/flights")

    def checkpoint(self) -> Checkpoint | None:
        return read_history(self.journal.records()).checkpoint

    def session(self) -> Any:
        credentials = Password(self.sandbox.user, self.sandbox.password)
        return signed_in(self.sandbox.url, credentials=credentials)

    def run(self, use: Callable[..., Any] = refresh, **changes: Any) -> Any:
        usual = {
            "declaration": self.declaration,
            "server": self.session,
            "snapshots": self.data / "snapshots",
            "journal": self.data / "flights.json",
            "folder": self.data,
        }
        return use(**usual | changes)


@pytest.fixture
def script(tableau_sandbox: Sandbox, tmp_path: Path) -> Script:
    """A script whose model has content."""
    made = Script(tableau_sandbox, tmp_path)
    made.model()
    return made


def wrong(sandbox: Sandbox, declaration: Declaration, snapshots: Path) -> list[str]:
    """In what the published data source differs from its models."""
    store = SnapshotStore(snapshots)
    models = {model: found for model in declaration.models if (found := store.newest(model))}
    return differences_on(sandbox, declaration, models)


@pytest.mark.slow
def test_the_example(spark: SparkSession, tableau_sandbox: Sandbox, tmp_path: Path):
    # Prevents: an example that does not run, or that publishes other rows than those of its file.
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
    # Prevents: a stack trace in cron's mail where a sentence would do; an error that passes for 0.
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


def test_neither_dagster_nor_spark_is_needed():
    # Prevents: seconds for libraries that a refresh has no use for, or their absence ending it.
    program = (
        "import sys, tableau_pipeline.scripting, tableau_pipeline.publishing.site\n"
        "print({'dagster', 'pyspark'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("set()\n", "")


def test_what_was_published_is_remembered(script: Script, monkeypatch: pytest.MonkeyPatch):
    # Prevents: a script in another folder that knows nothing of what it published before.
    monkeypatch.chdir(script.data)
    here = Path()
    first = script.run(snapshots=here / "snapshots", journal=here / "flights.json", folder=here)
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
    # Prevents: a plan after which the refresh finds nothing to do.
    script.run(use=use)
    assert not script.journal.path.exists()
    assert isinstance(script.run().plan, Publish)


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
    """Prevents: a name that somebody's code imports and that goes unnoticed; one that comes so."""
    assert module.__all__ == PUBLIC[module].split()
    assert set(module.__all__) <= set(dir(module))
