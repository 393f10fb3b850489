from pathlib import Path

import pytest
import tableauserverclient as tsc

from tableau_sandbox.testing import Sandbox
from tableau_sandbox_tests.conftest import ALICE
from tableau_sandbox_tests.samples import (
    call,
    code_of,
    publish,
    rows_on_server,
    signed_in,
)


def test_update(sandbox: Sandbox, server: tsc.Server, one_row: Path):
    # Prevents: a rename or a move makes a new data source, or loses what it does not name.
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
    # Prevents: a deleted data source is still there, or its file is.
    item = publish(server, one_row)
    server.datasources.delete(item.id)
    assert list((tmp_path / "sandbox" / "content").iterdir()) == []
    for action in (
        server.datasources.get_by_id,
        server.datasources.delete,
        server.datasources.download,
    ):
        with pytest.raises(tsc.ServerResponseError, match="404004"):
            action(item.id)


def test_others_may_read_but_not_change(sandbox: Sandbox, server: tsc.Server, one_row: Path):
    # Prevents: missing rights go unnoticed until production.
    item = publish(server, one_row)
    alice = signed_in(sandbox, tsc.TableauAuth(ALICE.name, ALICE.password))
    with pytest.raises(tsc.ServerResponseError, match="403004"):
        rows_on_server(alice, item.id)
    seen = alice.datasources.get_by_id(item.id)
    with pytest.raises(tsc.ServerResponseError, match="403032"):
        alice.datasources.update(seen)
    with pytest.raises(tsc.ServerResponseError, match="403004"):
        alice.datasources.delete(item.id)
    with pytest.raises(tsc.ServerResponseError, match="403004"):
        alice.datasources.add_tags(item, "mine")


def test_no_tags(sandbox: Sandbox, server: tsc.Server, one_row: Path):
    """Prevents: a client that adds no tags fails here, although servers take it."""
    item = publish(server, one_row)
    server.datasources.add_tags(item, "kept")
    path = f"sites/{{site}}/datasources/{item.id}/tags"
    answer = call(sandbox, "PUT", path, server=server, data="<tsRequest><tags/></tsRequest>")
    assert (answer.status_code, 'label="kept"' in answer.text) == (200, True)
    blank = '<tsRequest><tags><tag label=" "/></tags></tsRequest>'
    assert code_of(call(sandbox, "PUT", path, server=server, data=blank)) == "400075"


def test_tags(server: tsc.Server, one_row: Path):
    # Prevents: labels with spaces, commas or slashes fall apart or cannot be removed.
    item = publish(server, one_row)
    labels = {"plain", "with space", "a,b", "tableau-pipeline:a/b", "ä/b%2F", "q?x=1#y"}
    assert server.datasources.add_tags(item, labels) == labels
    assert server.datasources.get_by_id(item.id).tags == labels
    for label in labels - {"plain"}:
        server.datasources.delete_tags(item, label)
    assert server.datasources.get_by_id(item.id).tags == {"plain"}
    assert [found.id for found in server.datasources.filter(tags="plain")] == [item.id]
    with pytest.raises(tsc.ServerResponseError, match="404007"):
        server.datasources.delete_tags(item, "a,b")


def test_unquoted_labels_are_split(sandbox: Sandbox, server: tsc.Server, one_row: Path):
    # Prevents: a client that does not quote sees one tag here and several in production.
    item = publish(server, one_row)
    body = '<tsRequest><tags><tag label="one two,three"/></tags></tsRequest>'
    path = f"sites/{{site}}/datasources/{item.id}/tags"
    assert call(sandbox, "PUT", path, server=server, data=body).status_code == 200
    assert server.datasources.get_by_id(item.id).tags == {"one", "two", "three"}
    empty = '<tsRequest><tags><tag label=""/></tags></tsRequest>'
    assert code_of(call(sandbox, "PUT", path, server=server, data=empty)) == "400075"
