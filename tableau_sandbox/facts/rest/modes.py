"""Modes of publishing: create, overwrite, append and replace."""

from tableau_sandbox.facts.answer import attribute, expect, expect_that
from tableau_sandbox.facts.fact import writes
from tableau_sandbox.facts.files import hyper_file, rows_file
from tableau_sandbox.facts.playground import ROWS, Playground
from tableau_sandbox.facts.sources import (
    LIVE_MESSAGES,
    NOBODY,
    PUBLISH_GUIDE,
    REFERENCE,
    TABCMD,
    TSC,
)

_PUBLISH = "POST sites/{site}/datasources"
_THREE = (3, "three")


@writes(_PUBLISH, LIVE_MESSAGES)
def name_is_taken(play: Playground) -> None:
    """Without a mode, a name that exists in the project is refused with 403007."""
    play.publish(play.shared.name).is_refused("403007")


@writes(_PUBLISH, NOBODY)
def name_is_taken_in_capitals(play: Playground) -> None:
    """Names of data sources differ in more than the case of letters."""
    play.publish(play.shared.name.upper()).is_refused("403007")


@writes(_PUBLISH, TSC)
def create_new_is_no_parameter(play: Playground) -> None:
    """The mode to create is the default: clients name it, and servers ignore it."""
    play.publish(play.new_name(), query="createnew=true").succeeds(201)


@writes(_PUBLISH, REFERENCE)
def overwrite_creates(play: Playground) -> None:
    """Overwriting creates what does not exist."""
    play.publish(play.new_name(), query="overwrite=true").succeeds(201)


@writes(_PUBLISH, LIVE_MESSAGES)
def overwrite_keeps_the_luid(play: Playground) -> None:
    """Overwriting keeps the LUID and the content URL, and replaces the rows."""
    target = play.published()
    before = play.ask("GET", target.path).succeeds(200).element("datasource")
    after = play.publish(target.name, rows_file(_THREE), query="overwrite=true").succeeds(201)
    for name in ("id", "contentUrl"):
        expect(before.get(name), after.element("datasource").get(name))
    expect([_THREE], play.rows(target))


@writes(_PUBLISH, REFERENCE)
def append_adds_rows(play: Playground) -> None:
    """Appending adds the rows of the file to those of the data source."""
    target = play.published()
    answer = play.publish(target.name, rows_file(_THREE), query="append=true").succeeds(201)
    expect(target.luid, attribute(answer.element("datasource"), "id"))
    expect([*ROWS, _THREE], play.rows(target))


@writes(_PUBLISH, REFERENCE)
def append_to_nothing(play: Playground) -> None:
    """Appending to a name that does not exist is refused with 404004."""
    play.publish(play.new_name(), query="append=true").is_refused("404004")


@writes(_PUBLISH, NOBODY)
def append_of_other_columns(play: Playground) -> None:
    """Appending rows with other columns is refused with 400011."""
    file = rows_file(columns="id INTEGER, other TEXT")
    play.publish(play.shared.name, file, query="append=true").is_refused("400011")


@writes(_PUBLISH, REFERENCE)
def overwrite_and_append(play: Playground) -> None:
    """Overwriting and appending at once is refused with 400055."""
    query = "overwrite=true&append=true"
    play.publish(play.shared.name, query=query).is_refused("400055")


@writes(_PUBLISH, REFERENCE)
def overwrite_perhaps(play: Playground) -> None:
    """A mode that is neither true nor false is refused with 400008."""
    play.publish(play.new_name(), query="overwrite=perhaps").is_refused("400008")


@writes(_PUBLISH, TABCMD)
def replace_keeps_the_luid(play: Playground) -> None:
    """Replacing replaces the rows of a data source, which keeps its LUID."""
    target = play.published()
    answer = play.publish(target.name, rows_file(_THREE), query="replace=true").succeeds(201)
    expect(target.luid, attribute(answer.element("datasource"), "id"))
    expect([_THREE], play.rows(target))


@writes(_PUBLISH, NOBODY)
def replace_of_nothing(play: Playground) -> None:
    """Replacing a name that does not exist is refused with 404004."""
    play.publish(play.new_name(), query="replace=true").is_refused("404004")


@writes(_PUBLISH, NOBODY)
def overwrite_keeps_tags(play: Playground) -> None:
    """Overwriting keeps the tags."""
    target = play.published()
    tags = '<tsRequest><tags><tag label="kept"/></tags></tsRequest>'
    play.ask("PUT", f"{target.path}/tags", tags).succeeds(200)
    answer = play.publish(target.name, query="overwrite=true").succeeds(201)
    expect(["kept"], [tag.get("label") for tag in answer.elements("datasource/tags/tag")])


@writes(_PUBLISH, PUBLISH_GUIDE)
def append_to_several_tables(play: Playground) -> None:
    """Nothing is appended to a data source with several tables: 400011."""
    file = hyper_file(
        'CREATE TABLE "Extract"."One" (id INTEGER NOT NULL, ASSUMED PRIMARY KEY (id))',
        'CREATE TABLE "Extract"."Two" (id INTEGER)',
        'ALTER TABLE "Extract"."Two" ADD ASSUMED FOREIGN KEY (id) REFERENCES "Extract"."One" (id)',
    )
    target = play.published(file)
    play.publish(target.name, file, query="append=true").is_refused("400011")


@writes(_PUBLISH, REFERENCE)
def content_url_of_a_namesake(play: Playground) -> None:
    """A data source of the same name in another project has a content URL of its own."""
    target, project = play.published(), play.new_project()
    parts = (
        ("request_payload", "", play.request(target.name, project=project)),
        ("tableau_datasource", "file.hyper", rows_file(*ROWS)),
    )
    second = play.send_parts("POST", "datasources", *parts).succeeds(201).element("datasource")
    first = play.ask("GET", target.path).succeeds(200).element("datasource")
    expect_that(
        attribute(first, "contentUrl") != attribute(second, "contentUrl"),
        "another contentUrl",
        "the same one",
    )
