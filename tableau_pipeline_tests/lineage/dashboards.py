"""A code location of dagster-tableau's own component, over a made-up site."""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import dagster as dg
from dagster_tableau import TableauComponent
from dagster_tableau.translator import (
    TableauContentData,
    TableauContentType,
    TableauWorkspaceData,
)

from tableau_pipeline_tests.conftest import ROOT

SITE = {
    "type": "server",
    "connected_app_client_id": "client",
    "connected_app_secret_id": "id",
    "connected_app_secret_value": "value",
    "username": "admin",
    "site_name": "",
    "server_name": "tableau.example.com",
}


def of_site() -> TableauWorkspaceData:
    """A workbook with a sheet and a dashboard, over the published data source "NYC Flights"."""
    workbook = {"luid": "workbook"}
    in_project = {"projectName": "Aviation", "projectLuid": "project"}
    published = {"parentPublishedDatasources": [{"luid": "source", "name": "NYC Flights"}]}
    contents: dict[TableauContentType, dict[str, Any]] = {
        TableauContentType.WORKBOOK: {"luid": "workbook", "name": "Delays", **in_project},
        TableauContentType.SHEET: {
            "luid": "sheet", "id": "sheet", "name": "By Carrier", "workbook": workbook,
            "parentEmbeddedDatasources": [published],
        },
        TableauContentType.DASHBOARD: {
            "luid": "dashboard", "name": "Overview", "workbook": workbook,
            "sheets": [{"luid": "sheet"}],
        },
        TableauContentType.DATA_SOURCE: {
            "luid": "source", "name": "NYC Flights", "hasExtracts": True, "isPublished": True,
        },
    }  # fmt: skip
    return TableauWorkspaceData.from_content_data(
        "", [TableauContentData(content_type=kind, properties=of) for kind, of in contents.items()]
    )


@dg.definitions
def defs() -> dg.Definitions:
    """The component's definitions, as it makes them of the state that it has fetched."""
    component = TableauComponent.from_attributes_dict(attributes={"workspace": SITE})
    context = dg.ComponentTree.for_project(ROOT).load_context
    with TemporaryDirectory() as folder:
        state = Path(folder) / "state"
        state.write_text(dg.serialize_value(of_site()))
        return component.build_defs_from_state(context, state)
