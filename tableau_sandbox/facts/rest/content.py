"""Downloads, and revisions of what was published."""

import zipfile
from io import BytesIO

from tableau_sandbox.facts.answer import attribute, expect, expect_that
from tableau_sandbox.facts.fact import writes
from tableau_sandbox.facts.files import packaged_hyper, rows_file, rows_of
from tableau_sandbox.facts.playground import ROWS, Playground
from tableau_sandbox.facts.sources import LIVE_MESSAGES, NOBODY, REFERENCE, TSC

_CONTENT = "GET sites/{site}/datasources/{datasource}/content"
_REVISIONS = "GET sites/{site}/datasources/{datasource}/revisions"


@writes(_CONTENT, TSC)
def downloaded_package(play: Playground) -> None:
    """A published .hyper file is downloaded as a .tdsx, named in Content-Disposition."""
    answer = play.ask("GET", f"{play.shared.path}/content").succeeds(200)
    named = answer.headers.get("Content-Disposition", "")
    expect_that('name="tableau_datasource"' in named, 'name="tableau_datasource"', named)
    expect_that(f'filename="{play.shared.name}.tdsx"' in named, "its name and .tdsx", named)
    expect("application/octet-stream", answer.headers.get("Content-Type", "").split(";")[0])


@writes(_CONTENT, TSC)
def downloaded_rows(play: Playground) -> None:
    """The package has the published rows, in a .hyper file below Data/."""
    content = play.ask("GET", f"{play.shared.path}/content").succeeds(200).content
    path, _ = packaged_hyper(content)
    expect_that(path.startswith("Data/"), "a path below Data/", path)
    expect([*ROWS], play.rows(play.shared))


@writes(_CONTENT, LIVE_MESSAGES)
def generated_model(play: Playground) -> None:
    """The server makes a .tds for a published .hyper file."""
    content = play.ask("GET", f"{play.shared.path}/content").succeeds(200).content
    with zipfile.ZipFile(BytesIO(content)) as package:
        models = [name for name in package.namelist() if name.endswith(".tds")]
    expect(1, len(models))


@writes(_CONTENT, NOBODY)
def download_without_the_extract(play: Playground) -> None:
    """A download without the extract is a .tds."""
    path = f"{play.shared.path}/content?includeExtract=False"
    answer = play.ask("GET", path).succeeds(200)
    named = answer.headers.get("Content-Disposition", "")
    expect_that(named.endswith('.tds"'), "a name that ends with .tds", named)


@writes(_REVISIONS, REFERENCE)
def revision_of_each_publish(play: Playground) -> None:
    """Each publish makes a revision, and the last one is the current one."""
    target = play.published()
    play.publish(target.name, query="overwrite=true").succeeds(201)
    answer = play.ask("GET", f"{target.path}/revisions").succeeds(200)
    found = answer.elements("revisions/revision")
    expect(["1", "2"], sorted(attribute(item, "revisionNumber") for item in found))
    current = [item.get("revisionNumber") for item in found if item.get("current") == "true"]
    expect(["2"], current)
    answer.element("revisions/revision/publisher")


@writes("GET sites/{site}/datasources/{datasource}/revisions/{revision}/content", REFERENCE)
def unknown_revision(play: Playground) -> None:
    """A revision that does not exist is refused with 404024."""
    path = f"{play.shared.path}/revisions/999/content"
    play.ask("GET", path).is_refused("404024")


@writes("DELETE sites/{site}/datasources/{datasource}/revisions/{revision}", REFERENCE)
def deleted_current_revision(play: Playground) -> None:
    """The current revision cannot be deleted: 403055."""
    play.ask("DELETE", f"{play.shared.path}/revisions/1").is_refused("403055")


@writes("DELETE sites/{site}/datasources/{datasource}/revisions/{revision}", REFERENCE)
def deleted_earlier_revision(play: Playground) -> None:
    """An earlier revision is deleted with 204."""
    target = play.published()
    play.publish(target.name, query="overwrite=true").succeeds(201)
    play.ask("DELETE", f"{target.path}/revisions/1").succeeds(204)


@writes("GET sites/{site}/datasources/{datasource}/revisions/{revision}/content", REFERENCE)
def earlier_revision(play: Playground) -> None:
    """An earlier revision is downloaded with the rows that it had."""
    target = play.published()
    play.publish(target.name, rows_file((3, "three")), query="overwrite=true").succeeds(201)
    content = play.ask("GET", f"{target.path}/revisions/1/content").succeeds(200).content
    expect([*ROWS], rows_of(packaged_hyper(content)[1]))
