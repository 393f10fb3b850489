"""Dashboards below our data sources, where dagster-tableau is in a location of its own."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from dagster_tableau import DagsterTableauTranslator
from dagster_tableau.translator import (
    TableauContentData,
    TableauContentType,
    TableauTranslatorData,
    TableauWorkspaceData,
)
from hypothesis import given
from hypothesis import strategies as st

from tableau_pipeline.core.declaration import asset_key_of
from tableau_pipeline_tests.conftest import ROOT
from tableau_pipeline_tests.dagster_servers import WebServer, served

OURS, THEIRS = "tableau_pipeline", "dashboards"
NODES = """
query($keys: [AssetKeyInput!]) {
  assetNodes(assetKeys: $keys) {
    assetKey { path } dependencyKeys { path } dependedByKeys { path } isExecutable
    repository { location { name } } } }"""
OF_LOCATION = """
query($selector: RepositorySelector!) {
  repositoryOrError(repositorySelector: $selector) {
    ... on Repository { assetNodes { assetKey { path } isExecutable } } } }"""


@given(st.text(min_size=1, max_size=40))
def test_keys_are_those_of_dagster_tableau(name: str):
    """Prevents: a data source beside the one that dagster-tableau's sheets are downstream of."""
    content = TableauContentData(
        content_type=TableauContentType.DATA_SOURCE,
        properties={"luid": "l", "name": name, "hasExtracts": True, "isPublished": True},
    )
    site = TableauWorkspaceData.from_content_data("", [content])
    theirs = DagsterTableauTranslator().get_asset_spec(
        TableauTranslatorData(content_data=content, workspace_data=site)
    )
    assert theirs.key.path == [asset_key_of(name)]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[WebServer]:
    """Dagster's web server over our location and one of dagster-tableau."""
    modules = {
        OURS: "tableau_pipeline.definitions",
        THEIRS: "tableau_pipeline_tests.lineage.dashboards",
    }
    workspace = {
        "load_from": [
            {
                "python_module": {
                    "module_name": module,
                    "location_name": location,
                    "working_directory": str(ROOT),
                }
            }
            for location, module in modules.items()
        ]
    }
    (tmp_path / "workspace.yaml").write_text(yaml.safe_dump(workspace))
    shutil.copy(ROOT / "dagster_home" / "dagster.yaml", tmp_path)
    environment = {**os.environ, "DAGSTER_HOME": str(tmp_path)}
    log = tmp_path / "webserver.log"
    with served("dagster-webserver", folder=tmp_path, environment=environment, log=log) as server:
        yield server


@pytest.mark.slow
def test_sheets_and_dashboards_hang_below_and_never_refresh_ours(server: WebServer):
    """Prevents: a lineage that ends at Tableau's door; two owners of one data source."""
    keys = ["nyc_flights", "delays/sheet/by_carrier", "delays/dashboard/overview"]
    asked = server.ask(NODES, keys=[{"path": key.split("/")} for key in keys])["assetNodes"]
    nodes = {"/".join(node["assetKey"]["path"]): node for node in asked}
    ours, sheet, dashboard = (nodes[key] for key in keys)
    assert sheet["dependencyKeys"] == [ours["assetKey"]]
    assert dashboard["dependencyKeys"] == [sheet["assetKey"]]
    assert ours["dependedByKeys"] == [sheet["assetKey"]]
    assert ours["repository"]["location"]["name"] == OURS
    assert ours["dependencyKeys"] == [{"path": ["nyc_flights_extract"]}]
    assert executable(server, OURS) >= {"nyc_flights", "nyc_flights_extract"}
    assert executable(server, THEIRS) == set()


def executable(server: WebServer, location: str) -> set[str]:
    """The assets that this location can materialize."""
    selector = {"repositoryLocationName": location, "repositoryName": "__repository__"}
    found = server.ask(OF_LOCATION, selector=selector)["repositoryOrError"]
    return {"/".join(n["assetKey"]["path"]) for n in found["assetNodes"] if n["isExecutable"]}
