"""What Tableau leaves open: each answer, its option, and the page about them."""

import re
from dataclasses import fields, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest
import tableauserverclient as tsc

from tableau_sandbox import command_line
from tableau_sandbox.http.app import API_ROUTES
from tableau_sandbox.options import Options
from tableau_sandbox.quirks import Quirks
from tableau_sandbox.testing import Sandbox
from tableau_sandbox.vds.api import CALLS
from tableau_sandbox_tests.conftest import NewServer
from tableau_sandbox_tests.samples import call, code_of, publish
from tableau_sandbox_tests.test_updates import CLEAR, publish_job, update

DOCS = Path(__file__).parents[1] / "docs"


def rows(heading: str, *, of: str = "sandbox.md") -> list[list[str]]:
    """The rows of the table below a heading of a page, without the names of its columns."""
    text = (DOCS / of).read_text("utf-8")
    section = text.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    _, _, *found = re.findall(r"^\| (.*) \|$", section, re.MULTILINE)
    return [row.replace("`", "").split(" | ") for row in found]


def test_calls():
    """Prevents: a call that the page promises and the sandbox refuses, or one that it hides."""
    listed = rows("What is faithful")
    documented = [call for _, calls in listed for call in calls.split(", ")]
    known = [f"{route.method} {route.pattern}" for route in API_ROUTES]
    assert sorted(documented) == sorted([*known, *CALLS])


def other_values(name: str, default: Any) -> dict[str, Any]:
    """The arguments for a quirk's other values."""
    flag, hint = name.replace("_", "-"), get_type_hints(Quirks)[name]
    if hint is bool:
        return {f"--no-{flag}" if default else f"--{flag}": not default}
    values = get_args(hint) or ((0.5,) if hint is float else tuple(hint))
    return {f"--{flag}={value}": value for value in values}


def chosen(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> Options:
    """The options that the command makes of arguments."""

    class Stopped(Exception):  # noqa: N818 - it is no error
        pass

    def stop(options: Options, **_: Any) -> None:
        raise Stopped(options)

    monkeypatch.setattr(command_line, "sandbox_server", stop)
    with pytest.raises(Stopped) as stopped:
        command_line.main(["--port", "0", *arguments])
    return stopped.value.args[0]


def test_each_quirk_has_an_option(monkeypatch: pytest.MonkeyPatch):
    # Prevents: an answer can be given in a test, but not to the command, or not in all its values.
    usual = chosen(monkeypatch)
    assert usual == Options()
    for quirk in fields(Quirks):
        for argument, value in other_values(quirk.name, quirk.default).items():
            expected = replace(usual, **{quirk.name: value})
            assert chosen(monkeypatch, argument) == expected, argument


def test_options_that_may_be_repeated(monkeypatch: pytest.MonkeyPatch):
    """Prevents: of several users, sites or names, only the last one exists."""
    made = chosen(
        monkeypatch, "--user=a:b", "--user=c:d:Viewer", "--site=x", "--site=y", "--connected-app",
        f"app:key:{'s' * 32}", "--allowed-host=h",
    )  # fmt: skip
    users = [(user.name, user.site_role) for user in made.users]
    assert users == [("a", "Creator"), ("c", "Viewer")]
    assert (made.sites, made.allowed_hosts) == (("x", "y"), ("h",))
    assert [app.client_id for app in made.connected_apps] == ["app"]


def test_page_of_quirks():
    """Prevents: a quirk that the page lacks, or whose values or default it tells wrongly."""
    listed = rows("Quirks for what Tableau leaves open")
    documented = {flag: values.split(", ") for flag, values, _ in listed}
    known = {f"--{each.name.replace('_', '-')}": each for each in fields(Quirks)}
    assert documented.keys() == known.keys()
    hints = get_type_hints(Quirks)
    for flag, quirk in known.items():
        values = {bool: ("no", "yes"), float: (quirk.default,)}.get(hints[quirk.name])
        allowed = values or get_args(hints[quirk.name]) or tuple(hints[quirk.name])
        assert sorted(documented[flag]) == sorted(map(str, allowed))
        default = {True: "yes", False: "no"}.get(quirk.default, str(quirk.default))
        assert documented[flag][0] == default


START = datetime(2026, 1, 1, 12, 0, 0, 500_000, UTC)
A_SECOND = timedelta(seconds=1)


def updated_at(server: tsc.Server, item: Any) -> datetime:
    return server.datasources.get_by_id(item.id).updated_at


def completed(sandbox: Sandbox, server: tsc.Server, job: tsc.JobItem) -> tuple[datetime, ...]:
    """When a job was created, started and completed."""
    sandbox.wait_until_idle()
    found = server.jobs.get_by_id(job.id)
    assert found.finish_code == 0
    return found.created_at, found.started_at, found.completed_at


def test_changes_within_a_second_may_share_a_stamp(new_server: NewServer, one_row: Path):
    # Prevents: a pipeline takes a second change for none, and never meets one in its tests.
    sandbox, server = new_server(clock=lambda: START, stamps_within_second="shared")
    item = publish(server, one_row)
    assert publish(server, one_row, mode="Overwrite").updated_at == item.updated_at
    completed(sandbox, server, update(server, item, CLEAR))
    item.description = "described"
    assert server.datasources.update(item).updated_at == item.created_at
    sandbox.advance(1)
    moved = publish(server, one_row, mode="Overwrite").updated_at
    assert moved == item.created_at + A_SECOND
    sandbox.set_quirks(stamps_within_second="distinct")
    assert publish(server, one_row, mode="Overwrite").updated_at == moved + A_SECOND


@pytest.mark.parametrize("moves", [False, True])
def test_whether_tags_and_edits_move_the_stamp(
    new_server: NewServer, one_row: Path, *, moves: bool
):
    """Prevents: a pipeline takes its own tag or description for a change by someone else."""
    _, server = new_server(tags_move_stamp=moves, edits_move_stamp=moves)
    item = publish(server, one_row)
    other = server.projects.create(tsc.ProjectItem("Other")).id

    def edit(name: str, value: Any) -> None:
        setattr(item, name, value)
        server.datasources.update(item)

    changes = (
        lambda: server.datasources.add_tags(item, ["a", "b"]),
        lambda: server.datasources.delete_tags(item, ["a"]),
        lambda: edit("description", "described"),
        lambda: edit("name", "Renamed"),
        lambda: edit("project_id", other),
        # What changes nothing moves nothing.
        lambda: server.datasources.add_tags(item, ["b"]),
    )
    seen = [updated_at(server, item)]
    for change in changes:
        change()
        seen.append(updated_at(server, item))
    assert len(set(seen)) == (6 if moves else 1)
    assert seen[-1] == seen[-2]


def test_stamps_pushed_on_push_the_completion_on(new_server: NewServer, one_row: Path):
    # Prevents: a job that gives a stamp of its own to each change is over before its change.
    sandbox, server = new_server(clock=lambda: START)
    item = publish(server, one_row)
    begun = updated_at(server, item)
    for number in range(1, 5):
        job = update(server, item, CLEAR) if number % 2 else publish_job(server, one_row)
        *_, ended = completed(sandbox, server, job)
        assert updated_at(server, item) == ended == begun + number * A_SECOND
    (newest, *_) = server.jobs.filter()
    assert newest.ended_at == ended


def test_stamp_may_lie_after_the_job(new_server: NewServer, one_row: Path):
    # Prevents: a server whose clocks disagree makes a pipeline publish everything for ever.
    sandbox, server = new_server(clock=lambda: START, job_stamps="after", late_stamp_seconds=3)
    *_, ended = completed(sandbox, server, publish_job(server, one_row))
    (item,) = server.datasources.get()[0]
    assert item.updated_at == ended + 3 * A_SECOND
    *_, ended = completed(sandbox, server, update(server, item, CLEAR))
    assert updated_at(server, item) == ended + 3 * A_SECOND
    # A publish that is no job has no time to lie outside of.
    sandbox.advance(60)
    at_once = publish(server, one_row, mode="Overwrite")
    assert at_once.updated_at == START.replace(microsecond=0) + timedelta(seconds=60)


def test_late_stamps_come_when_they_are_due(new_server: NewServer, one_row: Path):
    """Prevents: a simulation sees a stamp come sooner or later from run to run."""
    late = {"updates_move_stamp": "late", "late_stamp_seconds": 7}
    sandbox, server = new_server(clock=lambda: START, stamps_within_second="shared", **late)
    item = publish(server, one_row)
    *_, ended = completed(sandbox, server, update(server, item, CLEAR))
    sandbox.advance(6.9)
    assert updated_at(server, item) == item.updated_at
    sandbox.advance(600)
    # Whatever the worker is at.
    assert updated_at(server, item) == ended + 7 * A_SECOND
    sandbox.set_quirks(stamps_within_second="distinct")
    for _ in range(2):
        *_, ended = completed(sandbox, server, update(server, item, CLEAR))
    sandbox.advance(600)
    assert updated_at(server, item) == ended + 8 * A_SECOND


def test_data_updates_may_make_revisions(new_server: NewServer, one_row: Path, tmp_path: Path):
    # Prevents: a pipeline takes the revision of its own update for a publish by someone else.
    sandbox, server = new_server(update_revisions=True, updates_move_stamp="never")
    item = publish(server, one_row)
    _, started, ended = completed(sandbox, server, update(server, item, CLEAR))
    server.datasources.populate_revisions(item)
    first, second = item.revisions
    assert (first.revision_number, second.revision_number, second.current) == ("1", "2", True)
    assert started <= second.created_at <= ended
    assert second.user_name == "admin"
    server.datasources.download_revision(item.id, "1", str(tmp_path / "first"))


def test_sites_may_keep_no_revisions(new_server: NewServer, one_row: Path):
    # Prevents: a pipeline relies on revisions that an administrator has switched off.
    sandbox, server = new_server(revisions=False)
    item = publish(server, one_row)
    assert not server.sites.get_by_id(server.site_id).revision_history_enabled
    for path in ("revisions", "revisions/1/content"):
        path = f"sites/{{site}}/datasources/{item.id}/{path}"
        assert code_of(call(sandbox, "GET", path, server=server)) == "403053"
