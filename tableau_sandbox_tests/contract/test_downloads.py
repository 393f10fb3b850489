"""Downloads, and revisions of what was published."""

import zipfile
from io import BytesIO

from tableau_sandbox_tests.contract.answer import attribute
from tableau_sandbox_tests.contract.files import packaged_hyper, rows_file, rows_of
from tableau_sandbox_tests.contract.sources import LIVE_MESSAGES, NOBODY, REFERENCE, TSC, fact
from tableau_sandbox_tests.contract.workspace import ROWS, Workspace

_CONTENT = "GET sites/{site}/datasources/{datasource}/content"
_REVISIONS = "GET sites/{site}/datasources/{datasource}/revisions"


@fact(_CONTENT, TSC)
def test_downloaded_package(workspace: Workspace):
    """A published .hyper file is downloaded as a .tdsx, named in Content-Disposition."""
    answer = workspace.ask("GET", f"{workspace.shared.path}/content").succeeds(200)
    named = answer.headers.get("Content-Disposition", "")
    assert 'name="tableau_datasource"' in named, named
    assert f'filename="{workspace.shared.name}.tdsx"' in named, named
    assert answer.headers.get("Content-Type", "").split(";")[0] == "application/octet-stream"


@fact(_CONTENT, TSC)
def test_downloaded_rows(workspace: Workspace):
    """The package has the published rows, in a .hyper file below Data/."""
    content = workspace.ask("GET", f"{workspace.shared.path}/content").succeeds(200).content
    path, _ = packaged_hyper(content)
    assert path.startswith("Data/"), path
    assert workspace.rows(workspace.shared) == [*ROWS]


@fact(_CONTENT, LIVE_MESSAGES)
def test_generated_model(workspace: Workspace):
    """The server makes a .tds for a published .hyper file."""
    content = workspace.ask("GET", f"{workspace.shared.path}/content").succeeds(200).content
    with zipfile.ZipFile(BytesIO(content)) as package:
        models = [name for name in package.namelist() if name.endswith(".tds")]
    assert len(models) == 1


@fact(_CONTENT, NOBODY)
def test_download_without_the_extract(workspace: Workspace):
    """A download without the extract is a .tds."""
    path = f"{workspace.shared.path}/content?includeExtract=False"
    answer = workspace.ask("GET", path).succeeds(200)
    named = answer.headers.get("Content-Disposition", "")
    assert named.endswith('.tds"'), named


@fact(_REVISIONS, REFERENCE)
def test_revision_of_each_publish(workspace: Workspace):
    """Each publish makes a revision, and the last one is the current one."""
    target = workspace.published()
    workspace.publish(target.name, query="overwrite=true").succeeds(201)
    answer = workspace.ask("GET", f"{target.path}/revisions").succeeds(200)
    found = answer.elements("revisions/revision")
    assert sorted(attribute(item, "revisionNumber") for item in found) == ["1", "2"]
    current = [item.get("revisionNumber") for item in found if item.get("current") == "true"]
    assert current == ["2"]
    answer.element("revisions/revision/publisher")


@fact("GET sites/{site}/datasources/{datasource}/revisions/{revision}/content", REFERENCE)
def test_unknown_revision(workspace: Workspace):
    """A revision that does not exist is refused with 404024."""
    path = f"{workspace.shared.path}/revisions/999/content"
    workspace.ask("GET", path).is_refused("404024")


@fact("DELETE sites/{site}/datasources/{datasource}/revisions/{revision}", REFERENCE)
def test_deleted_current_revision(workspace: Workspace):
    """The current revision cannot be deleted: 403055."""
    workspace.ask("DELETE", f"{workspace.shared.path}/revisions/1").is_refused("403055")


@fact("DELETE sites/{site}/datasources/{datasource}/revisions/{revision}", REFERENCE)
def test_deleted_earlier_revision(workspace: Workspace):
    """An earlier revision is deleted with 204."""
    target = workspace.published()
    workspace.publish(target.name, query="overwrite=true").succeeds(201)
    workspace.ask("DELETE", f"{target.path}/revisions/1").succeeds(204)


@fact("GET sites/{site}/datasources/{datasource}/revisions/{revision}/content", REFERENCE)
def test_earlier_revision(workspace: Workspace):
    """An earlier revision is downloaded with the rows that it had."""
    target = workspace.published()
    workspace.publish(target.name, rows_file((3, "three")), query="overwrite=true").succeeds(201)
    content = workspace.ask("GET", f"{target.path}/revisions/1/content").succeeds(200).content
    assert rows_of(packaged_hyper(content)[1]) == [*ROWS]
