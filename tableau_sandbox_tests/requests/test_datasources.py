from pathlib import Path

import pytest
import tableauserverclient as tsc

from tableau_sandbox.testing import Sandbox
from tableau_sandbox_tests.conftest import ALICE
from tableau_sandbox_tests.samples import call, code_of, publish, rows_on_server, signed_in


def test_update(sandbox: Sandbox, server: tsc.Server, one_row: Path):
    """Prevents: a rename or a move makes a new data source, or loses what it does not name."""
    item = publish(server, one_row)
    before = server.datasources.get_by_id(item.id)
    alice = signed_in(sandbox, tsc.TableauAuth(ALICE.name, ALICE.password)).user_id
    other = server.projects.create(tsc.ProjectItem("Other"))
    before.name, before.project_id, before.owner_id = "Renamed", other.id, alice
    before.description, before.certified, before.certification_note = "About", True, "Checked"
    server.datasources.update(before)
    after = server.datasources.get_by_id(item.id)
    assert (after.name, after.project_id, after.owner_id) == ("Renamed", other.id, alice)
    assert (after.description, after.certified) == ("About", True)
    assert after.certification_note == "Checked"
    assert after.content_url == "Flights"
    assert after.updated_at > item.updated_at
    assert rows_on_server(server, item.id) == [[1, "one"]]


def test_delete(server: tsc.Server, tmp_path: Path, one_row: Path):
    """Prevents: the file of a deleted data source stays for ever."""
    item = publish(server, one_row)
    server.datasources.delete(item.id)
    assert list((tmp_path / "sandbox" / "content").iterdir()) == []


def test_tags(server: tsc.Server, one_row: Path):
    """Prevents: labels with spaces, commas or slashes fall apart or cannot be removed."""
    item = publish(server, one_row)
    labels = {"plain", "with space", "a,b", "tableau-pipeline:a/b", "ä/b%2F", "q?x=1#y"}
    assert server.datasources.add_tags(item, labels) == labels
    assert server.datasources.get_by_id(item.id).tags == labels
    for label in labels - {"plain"}:
        server.datasources.delete_tags(item, label)
    assert server.datasources.get_by_id(item.id).tags == {"plain"}
    assert [found.id for found in server.datasources.filter(tags="plain")] == [item.id]


@pytest.mark.parametrize("label", ["", " ", "x" * 201])
def test_labels_that_are_none(sandbox: Sandbox, server: tsc.Server, one_row: Path, label: str):
    """Prevents: a tag that no server keeps seems to be there."""
    path = f"sites/{{site}}/datasources/{publish(server, one_row).id}/tags"
    body = f'<tsRequest><tags><tag label="{label}"/></tags></tsRequest>'
    assert code_of(call(sandbox, "PUT", path, server=server, data=body)) == "400075"
