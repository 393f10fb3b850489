"""Hosts that share nothing but an object store and Dagster's database."""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tableau_pipeline.components import PublishedDatasource
from tableau_pipeline.demo.differences import differences
from tableau_pipeline.hyper.process import hyper_process
from tableau_pipeline.resources import resources_from_env
from tableau_pipeline_tests.conftest import ROOT
from tableau_pipeline_tests.deployment.host import DATASOURCE
from tableau_pipeline_tests.deployment.stores.azure import AzureServer
from tableau_pipeline_tests.deployment.stores.gcs import GcsServer
from tableau_pipeline_tests.deployment.stores.object_server import ObjectServer
from tableau_pipeline_tests.refresh.support.pipeline import session
from tableau_sandbox.testing import Sandbox

pytestmark = pytest.mark.timeout(600)


class Host:
    """A host with a disk of its own."""

    def __init__(self, folder: Path, settings: Mapping[str, str]) -> None:
        self.disk = folder / "disk"
        self.disk.mkdir(parents=True)
        self.environment = {**os.environ, **settings, "TMPDIR": str(self.disk)}

    def refresh(self, version: int) -> str:
        """Build the model and publish it; return what was done."""
        done = subprocess.run(
            [sys.executable, "-m", "tableau_pipeline_tests.deployment.host", str(version)],
            cwd=self.disk,
            env={**self.environment, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            timeout=200,
            check=False,
        )
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-6000:]
        return done.stdout.splitlines()[-1]


# On S3, the tests of hosts that fail show the same, and more.
@pytest.mark.parametrize(
    "server",
    [
        pytest.param(GcsServer, id="GCS", marks=pytest.mark.long),
        pytest.param(AzureServer, id="Azure", marks=pytest.mark.long),
    ],
    indirect=True,
)
def test_hosts_go_on_where_others_were(
    server: ObjectServer,
    tableau_sandbox: Sandbox,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
):
    """Prevents: a refresh that needs the disk of the host that refreshed before."""
    home = tmp_path / "home"
    home.mkdir()
    settings = {
        **server.settings,
        "PIPELINE_DATA_DIR": f"{server.url}/pipeline",
        "DAGSTER_HOME": str(home),
    }
    first, second = (Host(tmp_path / name, settings) for name in ("first", "second"))
    assert "publish (create), 10,001 rows" in first.refresh(1)
    done = second.refresh(2)
    assert "update, -2,000 +2,001 rows" in done
    assert "equal by" in done
    assert "update, -2,000 +2,001 rows" in first.refresh(3)
    assert _left(second.disk) == []
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    assert _wrong(tableau_sandbox) == []


def _left(disk: Path) -> list[Path]:
    """Files on a disk, without copies and lock files, which the next refresh may use."""
    files = (path for path in disk.rglob("*") if path.is_file())
    return [path for path in files if "copies" not in path.parts and path.suffix != ".lock"]


def _wrong(sandbox: Sandbox) -> list[str]:
    """In what the published data source differs from the newest version of its model."""
    model = resources_from_env()["snapshots"].snapshot("orders")
    declaration = PublishedDatasource.from_attributes_dict(attributes=DATASOURCE).declaration
    with session(sandbox) as site, TemporaryDirectory() as folder:
        (item,) = site.tsc.datasources.filter(name=declaration.name)
        tdsx = site.download(str(item.id), Path(folder))
        return differences(hyper_process(), tdsx, declaration, {"orders": model})
