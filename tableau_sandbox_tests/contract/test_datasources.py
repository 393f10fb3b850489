"""What can be changed of a published data source: its record, tags, connection and end."""

from uuid import uuid4

import pytest

from tableau_sandbox_tests.contract.answer import Answer, attribute
from tableau_sandbox_tests.contract.sources import LIVE_MESSAGES, NOBODY, REFERENCE, TSC, fact
from tableau_sandbox_tests.contract.workspace import Published, Workspace

_UPDATE = "PUT sites/{site}/datasources/{datasource}"
_TAG = "PUT sites/{site}/datasources/{datasource}/tags"
_UNTAG = "DELETE sites/{site}/datasources/{datasource}/tags/{label}"
_CONNECTIONS = "GET sites/{site}/datasources/{datasource}/connections"


def _change(workspace: Workspace, target: Published, change: str) -> Answer:
    return workspace.ask("PUT", target.path, f"<tsRequest>{change}</tsRequest>")


@fact(_UPDATE, REFERENCE)
def test_described_datasource(workspace: Workspace):
    """A data source is described, and keeps its name."""
    target = workspace.published()
    answer = _change(workspace, target, '<datasource description="Seen"/>').succeeds(200)
    record = answer.element("datasource")
    assert (record.get("description"), record.get("name")) == ("Seen", target.name)


@fact(_UPDATE, REFERENCE)
def test_renamed_datasource(workspace: Workspace):
    """A renamed data source keeps its LUID and its content URL."""
    target, name = workspace.published(), workspace.new_name()
    before = workspace.ask("GET", target.path).succeeds(200).element("datasource")
    _change(workspace, target, f'<datasource name="{name}"/>').succeeds(200)
    after = workspace.ask("GET", target.path).succeeds(200).element("datasource")
    assert (after.get("name"), after.get("contentUrl")) == (name, before.get("contentUrl"))


@fact(_UPDATE, REFERENCE)
def test_renamed_to_a_taken_name(workspace: Workspace):
    """A name that another data source of the project has is refused with 409015, in any case."""
    change = f'<datasource name="{workspace.shared.name.upper()}"/>'
    _change(workspace, workspace.published(), change).is_refused("409015")


@fact(_UPDATE, REFERENCE)
def test_moved_to_an_unknown_project(workspace: Workspace):
    """A project that does not exist is refused with 404005."""
    change = f'<datasource><project id="{uuid4()}"/></datasource>'
    _change(workspace, workspace.shared, change).is_refused("404005")


@fact(_UPDATE, REFERENCE)
def test_given_to_an_unknown_user(workspace: Workspace):
    """An owner who does not exist is refused with 404002."""
    change = f'<datasource><owner id="{uuid4()}"/></datasource>'
    _change(workspace, workspace.shared, change).is_refused("404002")


@fact("DELETE sites/{site}/datasources/{datasource}", REFERENCE)
def test_deleted_datasource(workspace: Workspace):
    """A deletion is answered 204, and then the data source is unknown."""
    target = workspace.published()
    workspace.ask("DELETE", target.path).succeeds(204)
    workspace.ask("GET", target.path).is_refused("404004")


def _add_tag(workspace: Workspace, target: Published, label: str) -> set[str | None]:
    body = f'<tsRequest><tags><tag label="{label}"/></tags></tsRequest>'
    answer = workspace.ask("PUT", f"{target.path}/tags", body).succeeds(200)
    return {tag.get("label") for tag in answer.elements("tags/tag")}


@fact(_TAG, REFERENCE)
def test_added_tags(workspace: Workspace):
    """Tags are added to those that a data source has."""
    target = workspace.published()
    _add_tag(workspace, target, "first")
    _add_tag(workspace, target, "second")
    record = workspace.ask("GET", target.path).succeeds(200)
    assert {tag.get("label") for tag in record.elements("datasource/tags/tag")} == {
        "first",
        "second",
    }


@fact(_TAG, REFERENCE)
def test_no_tags(workspace: Workspace):
    """An empty list of tags adds nothing, and is no error."""
    workspace.ask(
        "PUT", f"{workspace.shared.path}/tags", "<tsRequest><tags/></tsRequest>"
    ).succeeds(200)


@fact(_TAG, TSC)
def test_tag_in_quotes(workspace: Workspace):
    """A tag with a space is sent in double quotes, which do not belong to it."""
    assert _add_tag(workspace, workspace.published(), "&quot;two words&quot;") == {"two words"}


@fact(_UNTAG, TSC)
def test_removed_tag(workspace: Workspace):
    """A tag is removed by its encoded name, also with a slash in it."""
    target = workspace.published()
    _add_tag(workspace, target, "a/b")
    workspace.ask("DELETE", f"{target.path}/tags/a%2Fb").succeeds(204)
    record = workspace.ask("GET", target.path).succeeds(200)
    assert record.elements("datasource/tags/tag") == []


@fact(_UNTAG, REFERENCE)
def test_unknown_tag(workspace: Workspace):
    """A tag that a data source does not have is refused with 404007."""
    workspace.ask("DELETE", f"{workspace.shared.path}/tags/nosuchtag").is_refused("404007")


@fact(_CONNECTIONS, TSC)
def test_connection_of_hyper_data(workspace: Workspace):
    """A published .hyper file has one connection, of the type hyper."""
    answer = workspace.ask("GET", f"{workspace.shared.path}/connections").succeeds(200)
    found = answer.elements("connections/connection")
    assert [item.get("type") for item in found] == ["hyper"]
    attribute(found[0], "id")


@fact("POST sites/{site}/datasources/{datasource}/refresh", LIVE_MESSAGES)
def test_refresh_of_hyper_data(workspace: Workspace):
    """There is no extract to refresh in a published .hyper file: 409090."""
    body = "<tsRequest><extractRefresh/></tsRequest>"
    workspace.ask("POST", f"{workspace.shared.path}/refresh", body).is_refused("409090")


@fact(_TAG, NOBODY)
def test_tags_leave_the_stamp(workspace: Workspace):
    """Adding a tag does not move updatedAt."""
    target = workspace.published()
    before = workspace.ask("GET", target.path).succeeds(200).element("datasource").get("updatedAt")
    # The next second: a stamp that moves differs then.
    workspace.pass_a_second()
    _add_tag(workspace, target, "seen")
    after = workspace.ask("GET", target.path).succeeds(200).element("datasource").get("updatedAt")
    assert before == after, f"{after} after {before}"


@fact(_TAG, TSC)
def test_tags_without_quotes(workspace: Workspace):
    """Without quotes, a space or a comma separates two tags."""
    assert _add_tag(workspace, workspace.published(), "one two,three") == {"one", "two", "three"}


@fact(_CONNECTIONS, TSC)
def test_tagged_queries(workspace: Workspace):
    """Queries of a published .hyper file are always tagged."""
    answer = workspace.ask("GET", f"{workspace.shared.path}/connections").succeeds(200)
    tagged = answer.element("connections/connection").get("queryTaggingEnabled")
    assert tagged == "true"


@fact("PUT sites/{site}/datasources/{datasource}/connections/{connection}", TSC)
def test_changed_connection(workspace: Workspace):
    """A connection is changed, and answered with its identifier."""
    target = workspace.published()
    answer = workspace.ask("GET", f"{target.path}/connections").succeeds(200)
    luid = attribute(answer.element("connections/connection"), "id")
    body = '<tsRequest><connection userName="somebody"/></tsRequest>'
    changed = workspace.ask("PUT", f"{target.path}/connections/{luid}", body).succeeds(200)
    assert attribute(changed.element("connection"), "id") == luid


@fact(_UPDATE, REFERENCE)
def test_certified_datasource(workspace: Workspace):
    """Administrators and project leaders certify a data source."""
    change = '<datasource isCertified="true" certificationNote="Seen"/>'
    answer = _change(workspace, workspace.published(), change)
    if answer.status == 403:
        pytest.skip("the user may not certify data sources")
    assert attribute(answer.succeeds(200).element("datasource"), "isCertified") == "true"


@fact(_UPDATE, REFERENCE)
def test_moved_datasource(workspace: Workspace):
    """A data source that moves to another project keeps its LUID."""
    target, project = workspace.published(), workspace.new_project()
    change = f'<datasource><project id="{project}"/></datasource>'
    answer = _change(workspace, target, change).succeeds(200)
    assert attribute(answer.element("datasource"), "id") == target.luid
    assert attribute(answer.element("datasource/project"), "id") == project


@fact("GET sites/{site}/datasources", NOBODY)
def test_case_of_filters(workspace: Workspace):
    """A filter by the name of a data source distinguishes the case of letters."""
    path = f"datasources?filter=name:eq:{workspace.shared.name.upper()}"
    found = workspace.ask("GET", path).succeeds(200).elements("datasources/datasource")
    assert found == []
