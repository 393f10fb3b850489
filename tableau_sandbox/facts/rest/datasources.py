"""What can be changed of a published data source: its record, tags, connection and end."""

from uuid import uuid4

from tableau_sandbox.facts.answer import Answer, NotShown, attribute, expect, expect_that
from tableau_sandbox.facts.fact import writes
from tableau_sandbox.facts.playground import Playground, Published
from tableau_sandbox.facts.sources import (
    LIVE_MESSAGES,
    NOBODY,
    REFERENCE,
    TSC,
)

_UPDATE = "PUT sites/{site}/datasources/{datasource}"
_TAG = "PUT sites/{site}/datasources/{datasource}/tags"
_UNTAG = "DELETE sites/{site}/datasources/{datasource}/tags/{label}"
_CONNECTIONS = "GET sites/{site}/datasources/{datasource}/connections"


def _change(play: Playground, target: Published, change: str) -> Answer:
    return play.ask("PUT", target.path, f"<tsRequest>{change}</tsRequest>")


@writes(_UPDATE, REFERENCE)
def described_datasource(play: Playground) -> None:
    """A data source is described, and keeps its name."""
    target = play.published()
    answer = _change(play, target, '<datasource description="Seen"/>').succeeds(200)
    record = answer.element("datasource")
    expect(("Seen", target.name), (record.get("description"), record.get("name")))


@writes(_UPDATE, REFERENCE)
def renamed_datasource(play: Playground) -> None:
    """A renamed data source keeps its LUID and its content URL."""
    target, name = play.published(), play.new_name()
    before = play.ask("GET", target.path).succeeds(200).element("datasource")
    _change(play, target, f'<datasource name="{name}"/>').succeeds(200)
    after = play.ask("GET", target.path).succeeds(200).element("datasource")
    expect((name, before.get("contentUrl")), (after.get("name"), after.get("contentUrl")))


@writes(_UPDATE, REFERENCE)
def renamed_to_a_taken_name(play: Playground) -> None:
    """A name that another data source of the project has is refused with 409015, in any case."""
    change = f'<datasource name="{play.shared.name.upper()}"/>'
    _change(play, play.published(), change).is_refused("409015")


@writes(_UPDATE, REFERENCE)
def moved_to_an_unknown_project(play: Playground) -> None:
    """A project that does not exist is refused with 404005."""
    change = f'<datasource><project id="{uuid4()}"/></datasource>'
    _change(play, play.shared, change).is_refused("404005")


@writes(_UPDATE, REFERENCE)
def given_to_an_unknown_user(play: Playground) -> None:
    """An owner who does not exist is refused with 404002."""
    change = f'<datasource><owner id="{uuid4()}"/></datasource>'
    _change(play, play.shared, change).is_refused("404002")


@writes("DELETE sites/{site}/datasources/{datasource}", REFERENCE)
def deleted_datasource(play: Playground) -> None:
    """A deletion is answered 204, and then the data source is unknown."""
    target = play.published()
    play.ask("DELETE", target.path).succeeds(204)
    play.ask("GET", target.path).is_refused("404004")


def _add_tag(play: Playground, target: Published, label: str) -> set[str | None]:
    body = f'<tsRequest><tags><tag label="{label}"/></tags></tsRequest>'
    answer = play.ask("PUT", f"{target.path}/tags", body).succeeds(200)
    return {tag.get("label") for tag in answer.elements("tags/tag")}


@writes(_TAG, REFERENCE)
def added_tags(play: Playground) -> None:
    """Tags are added to those that a data source has."""
    target = play.published()
    _add_tag(play, target, "first")
    _add_tag(play, target, "second")
    record = play.ask("GET", target.path).succeeds(200)
    expect(
        {"first", "second"}, {tag.get("label") for tag in record.elements("datasource/tags/tag")}
    )


@writes(_TAG, REFERENCE)
def no_tags(play: Playground) -> None:
    """An empty list of tags adds nothing, and is no error."""
    play.ask("PUT", f"{play.shared.path}/tags", "<tsRequest><tags/></tsRequest>").succeeds(200)


@writes(_TAG, TSC)
def tag_in_quotes(play: Playground) -> None:
    """A tag with a space is sent in double quotes, which do not belong to it."""
    expect({"two words"}, _add_tag(play, play.published(), "&quot;two words&quot;"))


@writes(_UNTAG, TSC)
def removed_tag(play: Playground) -> None:
    """A tag is removed by its encoded name, also with a slash in it."""
    target = play.published()
    _add_tag(play, target, "a/b")
    play.ask("DELETE", f"{target.path}/tags/a%2Fb").succeeds(204)
    record = play.ask("GET", target.path).succeeds(200)
    expect([], record.elements("datasource/tags/tag"))


@writes(_UNTAG, REFERENCE)
def unknown_tag(play: Playground) -> None:
    """A tag that a data source does not have is refused with 404007."""
    play.ask("DELETE", f"{play.shared.path}/tags/nosuchtag").is_refused("404007")


@writes(_CONNECTIONS, TSC)
def connection_of_hyper_data(play: Playground) -> None:
    """A published .hyper file has one connection, of the type hyper."""
    answer = play.ask("GET", f"{play.shared.path}/connections").succeeds(200)
    found = answer.elements("connections/connection")
    expect(["hyper"], [item.get("type") for item in found])
    attribute(found[0], "id")


@writes("POST sites/{site}/datasources/{datasource}/refresh", LIVE_MESSAGES)
def refresh_of_hyper_data(play: Playground) -> None:
    """There is no extract to refresh in a published .hyper file: 409090."""
    body = "<tsRequest><extractRefresh/></tsRequest>"
    play.ask("POST", f"{play.shared.path}/refresh", body).is_refused("409090")


@writes(_TAG, NOBODY)
def tags_leave_the_stamp(play: Playground) -> None:
    """Adding a tag does not move updatedAt."""
    target = play.published()
    before = play.ask("GET", target.path).succeeds(200).element("datasource").get("updatedAt")
    # The next second: a stamp that moves differs then.
    play.pass_a_second()
    _add_tag(play, target, "seen")
    after = play.ask("GET", target.path).succeeds(200).element("datasource").get("updatedAt")
    expect_that(before == after, "the same updatedAt", f"{after} after {before}")


@writes(_TAG, TSC)
def tags_without_quotes(play: Playground) -> None:
    """Without quotes, a space or a comma separates two tags."""
    expect({"one", "two", "three"}, _add_tag(play, play.published(), "one two,three"))


@writes(_CONNECTIONS, TSC)
def tagged_queries(play: Playground) -> None:
    """Queries of a published .hyper file are always tagged."""
    answer = play.ask("GET", f"{play.shared.path}/connections").succeeds(200)
    tagged = answer.element("connections/connection").get("queryTaggingEnabled")
    expect("true", tagged)


@writes("PUT sites/{site}/datasources/{datasource}/connections/{connection}", TSC)
def changed_connection(play: Playground) -> None:
    """A connection is changed, and answered with its identifier."""
    target = play.published()
    answer = play.ask("GET", f"{target.path}/connections").succeeds(200)
    luid = attribute(answer.element("connections/connection"), "id")
    body = '<tsRequest><connection userName="somebody"/></tsRequest>'
    changed = play.ask("PUT", f"{target.path}/connections/{luid}", body).succeeds(200)
    expect(luid, attribute(changed.element("connection"), "id"))


@writes(_UPDATE, REFERENCE)
def certified_datasource(play: Playground) -> None:
    """Administrators and project leaders certify a data source."""
    change = '<datasource isCertified="true" certificationNote="Seen"/>'
    answer = _change(play, play.published(), change)
    if answer.status == 403:
        raise NotShown("the user may not certify data sources")
    expect("true", attribute(answer.succeeds(200).element("datasource"), "isCertified"))


@writes(_UPDATE, REFERENCE)
def moved_datasource(play: Playground) -> None:
    """A data source that moves to another project keeps its LUID."""
    target, project = play.published(), play.new_project()
    change = f'<datasource><project id="{project}"/></datasource>'
    answer = _change(play, target, change).succeeds(200)
    expect(target.luid, attribute(answer.element("datasource"), "id"))
    expect(project, attribute(answer.element("datasource/project"), "id"))


@writes("GET sites/{site}/datasources", NOBODY)
def case_of_filters(play: Playground) -> None:
    """A filter by the name of a data source distinguishes the case of letters."""
    path = f"datasources?filter=name:eq:{play.shared.name.upper()}"
    found = play.ask("GET", path).succeeds(200).elements("datasources/datasource")
    expect([], found)
