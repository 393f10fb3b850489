"""Several data sources that two hosts refresh at the same time."""

from collections.abc import Mapping
from pathlib import Path
from uuid import uuid4

import pyarrow as pa
import pytest

from tableau_pipeline_tests.deployment.hosts.machines import Deployment, deployed, why_no_hosts
from tableau_pipeline_tests.deployment.hosts.process import declaration, refresh
from tableau_pipeline_tests.deployment.stores.object_server import ObjectServer
from tableau_pipeline_tests.refresh.support.pipeline import published_rows, session
from tableau_sandbox.testing import Sandbox, running_sandbox

MODELS = tuple(f"orders_{number}" for number in range(5))
ROWS = 20_000


def rows(model: str, version: int) -> pa.Table:
    """Of each model other ones; one in ten differs from version to version, and some are new."""
    ids = range(ROWS + version * 10)
    amounts = [version if number % 10 == version % 10 else 0 for number in ids]
    columns = {"id": pa.array(ids, pa.int64()), "amount": pa.array(amounts, pa.int32())}
    return pa.table({**columns, "model": pa.array([f"{model} é"] * len(ids))})


def refresh_at_once(deployment: Deployment) -> None:
    """Let both hosts refresh every data source, all of them at the same time."""
    hosts = (deployment.first, deployment.second)
    runs = [(host, host.begin(model)) for model in MODELS for host in hosts]
    assert [host.ended(run) for host, run in runs] == [0] * len(runs)


def published(sandbox: Sandbox) -> Mapping[str, pa.Table]:
    """The rows of each data source, as hyperd reads them."""
    found = {}
    with session(sandbox) as site:
        for model in MODELS:
            (item,) = site.tsc.datasources.filter(name=declaration(model).name)
            found[model] = published_rows(site, str(item.id)).sort_by("id")
    return found


@pytest.mark.long
def test_five_data_sources_at_once(server: ObjectServer, tmp_path: Path):
    """Prevents: refreshes of two hosts that disturb each other, or publish other rows than one host
    would."""
    if reason := why_no_hosts():
        pytest.skip(reason)
    with deployed(tmp_path, server) as deployment:
        for version in (1, 2, 3):
            for model in MODELS:
                deployment.write(model, rows(model, version))
            refresh_at_once(deployment)
        assert [deployment.wrong(model) for model in MODELS] == [[]] * len(MODELS)
        from_two = published(deployment.sandbox)
        with running_sandbox(tmp_path / "one") as sandbox, pytest.MonkeyPatch.context() as patch:
            (tmp_path / "home").mkdir()
            patch.setenv("DAGSTER_HOME", str(tmp_path / "home"))
            patch.setenv("PIPELINE_DATA_DIR", str(deployment.local))
            patch.setenv("TABLEAU_SERVER_URL", sandbox.url)
            assert all(refresh(model, str(uuid4())) for model in MODELS)
            from_one = published(sandbox)
    assert {model: each.num_rows for model, each in from_two.items()} == dict.fromkeys(
        MODELS, ROWS + 30
    )
    assert from_two == from_one
