"""Quirks (behaviour that Tableau leaves open): their effects, options and documentation."""

import re
from dataclasses import fields as fields_of
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, get_args, get_type_hints
from xml.etree import ElementTree

import pytest
import tableauserverclient as tsc

from tableau_sandbox import command_line
from tableau_sandbox.http.app import API_ROUTES
from tableau_sandbox.options import Options
from tableau_sandbox.quirks import Quirks
from tableau_sandbox.testing import Sandbox
from tableau_sandbox.vds.api import CALLS
from tableau_sandbox_tests.conftest import ALICE, NewServer
from tableau_sandbox_tests.contract.conftest import ENVIRONMENT
from tableau_sandbox_tests.contract.files import hyper_file, related_file
from tableau_sandbox_tests.contract.session import Session
from tableau_sandbox_tests.contract.vds import fields
from tableau_sandbox_tests.samples import call, code_of, publish, rows_on_server, tds_of, user
from tableau_sandbox_tests.test_updates import CLEAR, publish_job, update

DOCS = Path(__file__).parents[1] / "docs"


def rows(heading: str, *, of: str = "sandbox.md") -> list[list[str]]:
    """Return the rows, without the header, of the table below a heading of the documentation."""
    text = (DOCS / of).read_text("utf-8")
    section = text.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    _, _, *found = re.findall(r"^\| (.*) \|$", section, re.MULTILINE)
    return [row.replace("`", "").split(" | ") for row in found]


def test_calls():
    """Prevents: the documentation lists a call that the sandbox refuses, or misses a call."""
    text = (DOCS / "sandbox.md").read_text("utf-8")
    documented = []
    for methods, path in re.findall(
        r"`([A-Z/]+)\s+([^`\s]+)`", text.partition("## On a network")[0]
    ):
        whole = path[1:] if path.startswith("/") else f"sites/{{site}}/{path}"
        documented += [f"{method} {whole}" for method in methods.split("/")]
    known = [f"{route.method} {route.pattern}" for route in API_ROUTES]
    assert sorted(documented) == sorted([*known, *CALLS])


def other_values(name: str, default: Any) -> dict[str, Any]:
    """Map arguments of the command to the values of a quirk that differ from its default."""
    flag, hint = name.replace("_", "-"), get_type_hints(Quirks)[name]
    if hint is bool:
        return {f"--no-{flag}" if default else f"--{flag}": not default}
    values = get_args(hint) or ((0.5,) if hint is float else tuple(hint))
    return {f"--{flag}={value}": value for value in values}


def chosen(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> Options:
    """Return the options that the command makes of its arguments."""

    class Stopped(Exception):  # noqa: N818 - it is no error
        pass

    def stop(options: Options, **_: Any) -> None:
        raise Stopped(options)

    monkeypatch.setattr(command_line, "sandbox_server", stop)
    with pytest.raises(Stopped) as stopped:
        command_line.main(["--port", "0", *arguments])
    return stopped.value.args[0]


def test_each_quirk_has_an_option(monkeypatch: pytest.MonkeyPatch):
    # Prevents: the command has no option for a quirk, or for some of its values.
    usual = chosen(monkeypatch)
    assert usual == Options()
    for quirk in fields_of(Quirks):
        for argument, value in other_values(quirk.name, quirk.default).items():
            expected = replace(usual, **{quirk.name: value})
            assert chosen(monkeypatch, argument) == expected, argument


def test_options_that_may_be_repeated(monkeypatch: pytest.MonkeyPatch):
    """Prevents: of several users, sites or names in the options, only the last one exists."""
    made = chosen(
        monkeypatch, "--user=a:b", "--user=c:d:Viewer", "--site=x", "--site=y", "--connected-app",
        f"app:key:{'s' * 32}", "--allowed-host=h",
    )  # fmt: skip
    users = [(user.name, user.site_role) for user in made.users]
    assert users == [("a", "Creator"), ("c", "Viewer")]
    assert (made.sites, made.allowed_hosts) == (("x", "y"), ("h",))
    assert [app.client_id for app in made.connected_apps] == ["app"]


def test_page_of_quirks():
    """Prevents: the documentation misses a quirk, or lists a quirk that does not exist."""
    text = (DOCS / "sandbox.md").read_text("utf-8")
    section = text.partition("## Quirks ")[2].partition("\n## ")[0]
    listed = "\n".join(line for line in section.splitlines() if line.startswith(("* ", "  ")))
    documented = re.findall(r"`(--[a-z-]+)`", listed)
    assert sorted(documented) == sorted(f"--{e.name.replace('_', '-')}" for e in fields_of(Quirks))


def test_help_of_quirks(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    """Prevents: the help does not show the values or the default of a quirk."""
    monkeypatch.setenv("COLUMNS", "1000")
    with pytest.raises(SystemExit):
        command_line.main(["--help"])
    entries = re.sub(r"\n {10,}", " ", capsys.readouterr().out).splitlines()
    hints = get_type_hints(Quirks)
    for quirk in fields_of(Quirks):
        flag = f"  --{quirk.name.replace('_', '-')}"
        (about,) = (each for each in entries if each.startswith((f"{flag} ", f"{flag}, ")))
        is_flag = hints[quirk.name] is bool
        default = ("no", "yes")[quirk.default] if is_flag else quirk.default
        values = [each for each in get_args(hints[quirk.name]) if isinstance(each, str)]
        assert about.endswith(f"{', '.join(values)} (default: {default})")


START = datetime(2026, 1, 1, 12, 0, 0, 500_000, UTC)
A_SECOND = timedelta(seconds=1)


def updated_at(server: tsc.Server, item: Any) -> datetime:
    return server.datasources.get_by_id(item.id).updated_at


def completed(sandbox: Sandbox, server: tsc.Server, job: tsc.JobItem) -> tuple[datetime, ...]:
    """Return the times at which a job was created, started and completed."""
    sandbox.wait_until_idle()
    found = server.jobs.get_by_id(job.id)
    assert found.finish_code == 0
    return found.created_at, found.started_at, found.completed_at


def test_changes_within_a_second_may_share_a_stamp(new_server: NewServer, one_row: Path):
    # Prevents: tests of a pipeline never show two changes with the same time stamp.
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
    """Prevents: a pipeline takes its own tag or description for a change by another user."""
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
        # A tag that a data source has already does not move the time stamp.
        lambda: server.datasources.add_tags(item, ["b"]),
    )
    seen = [updated_at(server, item)]
    for change in changes:
        change()
        seen.append(updated_at(server, item))
    assert len(set(seen)) == (6 if moves else 1)
    assert seen[-1] == seen[-2]


def test_stamps_pushed_on_push_the_completion_on(new_server: NewServer, one_row: Path):
    # Prevents: a job is complete before the time stamp of its own change.
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
    # Prevents: on a server whose clocks differ, a pipeline publishes everything for ever.
    sandbox, server = new_server(clock=lambda: START, job_stamps="after", late_stamp_seconds=3)
    *_, ended = completed(sandbox, server, publish_job(server, one_row))
    (item,) = server.datasources.get()[0]
    assert item.updated_at == ended + 3 * A_SECOND
    *_, ended = completed(sandbox, server, update(server, item, CLEAR))
    assert updated_at(server, item) == ended + 3 * A_SECOND
    # A publish without a job has no completion, so its time stamp is not later.
    sandbox.advance(60)
    at_once = publish(server, one_row, mode="Overwrite")
    assert at_once.updated_at == START.replace(microsecond=0) + timedelta(seconds=60)


def test_late_stamps_come_when_they_are_due(new_server: NewServer, one_row: Path):
    """Prevents: the moment of a late time stamp varies from run to run."""
    late = {"updates_move_stamp": "late", "late_stamp_seconds": 7}
    sandbox, server = new_server(clock=lambda: START, stamps_within_second="shared", **late)
    item = publish(server, one_row)
    *_, ended = completed(sandbox, server, update(server, item, CLEAR))
    sandbox.advance(6.9)
    assert updated_at(server, item) == item.updated_at
    sandbox.advance(600)
    # The time stamp does not depend on when the worker of the sandbox runs.
    assert updated_at(server, item) == ended + 7 * A_SECOND
    sandbox.set_quirks(stamps_within_second="distinct")
    for _ in range(2):
        *_, ended = completed(sandbox, server, update(server, item, CLEAR))
    sandbox.advance(600)
    assert updated_at(server, item) == ended + 8 * A_SECOND


def test_data_updates_may_make_revisions(new_server: NewServer, one_row: Path, tmp_path: Path):
    # Prevents: a pipeline takes the revision of its own update for a publish by another user.
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


def test_second_update(new_server: NewServer, one_row: Path):
    """Prevents: the sandbox queues updates that servers refuse, or refuses repeated requests."""
    sandbox, server = new_server()
    item, other = publish(server, one_row), publish(server, one_row, name="Other")
    with sandbox.held_jobs():
        first = update(server, item, CLEAR, id="first")
        with pytest.raises(tsc.ServerResponseError, match="409094"):
            update(server, item, CLEAR, id="second")
        assert update(server, item, CLEAR, id="first").id == first.id
        update(server, other, CLEAR)
        publish_job(server, one_row)
        sandbox.set_quirks(second_update="queued")
        assert update(server, item, CLEAR, id="second").id != first.id
    sandbox.wait_until_idle()
    sandbox.set_quirks(second_update="refused", repeated_request="conflict")
    with pytest.raises(tsc.ServerResponseError, match="409094"):
        update(server, item, CLEAR, id="first")
    update(server, item, CLEAR, id="third")


@pytest.mark.parametrize(
    ("access", "own", "others"),
    [
        ("administrators", "403004", "403004"),
        ("own-jobs", "", "403004"),
        ("session-lost", "401002", "401002"),
    ],
)
def test_who_may_ask_for_a_job(
    new_server: NewServer, one_row: Path, access: str, own: str, others: str
):
    """Prevents: pipelines can be tried only with servers that let their user ask for jobs."""
    sandbox, admin = new_server(users=(ALICE,), job_access=access)
    alice = user(sandbox, ALICE)
    with sandbox.held_jobs():
        hers, his = (
            publish_job(each, one_row, name=name).id for each, name in ((alice, "a"), (admin, "b"))
        )
        for luid, expected in ((hers, own), (his, others)):
            found = call(sandbox, "GET", f"sites/{{site}}/jobs/{luid}", server=alice)
            assert ("" if found.ok else code_of(found)) == expected
        assert admin.jobs.get_by_id(hers).id == hers
        cancelled = call(sandbox, "PUT", f"sites/{{site}}/jobs/{hers}", server=alice)
        assert ("" if cancelled.ok else code_of(cancelled)) == own
    # The session is still valid, even after an answer of 401002.
    assert alice.projects.get()[0]


def test_jobs_in_lists(new_server: NewServer, one_row: Path):
    """Prevents: a pipeline finds its jobs only by titles and kinds that servers may omit."""
    sandbox, server = new_server()
    item = publish(server, one_row)
    update(server, item, CLEAR)
    publish_job(server, one_row)
    sandbox.wait_until_idle()

    def listed() -> set[tuple[str | None, str | None]]:
        return {(job.type, job.title) for job in server.jobs.filter()}

    words = ("update_uploaded_file", "publish_datasource")
    assert listed() == {(word, "Flights") for word in words}
    sandbox.set_quirks(job_words="unknown")
    assert not {word for word, _ in listed()} & {*words, "refresh_extracts"}
    sandbox.set_quirks(job_titles=False)
    assert {title for _, title in listed()} == {None}
    answer = call(sandbox, "GET", "sites/{site}/jobs", server=server)
    assert "title=" not in answer.text


def test_jobs_may_be_gone(new_server: NewServer, one_row: Path):
    """Prevents: a pipeline thinks that a job never existed, because the server removed the job."""
    sandbox, server = new_server(finished_jobs="gone")
    with sandbox.held_jobs():
        job = publish_job(server, one_row)
        assert [each.id for each in server.jobs.filter()] == [job.id]
        assert server.jobs.get_by_id(job.id).id == job.id
    sandbox.wait_until_idle()
    with pytest.raises(tsc.ServerResponseError, match="404018"):
        server.jobs.get_by_id(job.id)
    assert list(server.jobs.filter()) == []


def test_failure_behind_a_finish_code(new_server: NewServer, one_row: Path):
    """Prevents: a pipeline judges a job only by its finish code, which may be wrong."""
    sandbox, server = new_server(failed_jobs="error-note")
    item = publish(server, one_row)
    jobs = [update(server, item, {**CLEAR, "target-table": "no"})]
    sandbox.wait_until_idle()
    jobs += [update(server, item, CLEAR), publish_job(server, one_row, mode="CreateNew")]
    sandbox.wait_until_idle()
    found = [server.jobs.get_by_id(job.id) for job in jobs]
    assert [job.finish_code for job in found] == [0, 0, 0]
    assert [[note["type"] for note in job.status_notes or ()] for job in found] == [
        *(["errorCode"], [], ["errorCode"])
    ]


def test_lists_may_lag(new_server: NewServer, one_row: Path):
    """Prevents: a pipeline trusts a list that does not show a new item yet."""
    sandbox, server = new_server(clock=lambda: START, index_lag_seconds=30)
    item, project = publish(server, one_row), server.projects.create(tsc.ProjectItem("New"))

    def names() -> set[str | None]:
        return {each.name for each in (*server.datasources.get()[0], *server.projects.get()[0])}

    assert names() == {"Default"}
    assert server.datasources.get_by_id(item.id).name == "Flights"
    server.projects.update(project)
    sandbox.advance(30)
    assert names() == {"Default", "Flights", "New"}
    publish(server, one_row, mode="Overwrite")
    assert "Flights" in names()


def test_who_may_update(new_server: NewServer, one_row: Path):
    """Prevents: only the sandbox lets a user update the data of another owner."""
    sandbox, admin = new_server(users=(ALICE,))
    item, alice = publish(admin, one_row), user(sandbox, ALICE)
    everyone = tsc.PermissionsRule(
        next(each for each in admin.groups.get()[0] if each.name == "All Users"),
        {"Write": "Allow"},
    )
    admin.datasources.update_permissions(item, [everyone])
    with pytest.raises(tsc.ServerResponseError, match="403004"):
        update(alice, item, CLEAR)
    assert update(alice, publish(alice, one_row, name="Hers"), CLEAR)
    with sandbox.quirks(updates_by="writers"):
        update(alice, item, CLEAR)
    sandbox.wait_until_idle()
    update(admin, alice.datasources.filter(name="Hers")[0], CLEAR)


def notes(sandbox: Sandbox, server: tsc.Server, job: tsc.JobItem) -> tuple[int, list[str]]:
    """Return the finish code of a job, and the texts of its notes."""
    sandbox.wait_until_idle()
    found = server.jobs.get_by_id(job.id)
    return found.finish_code, [note["text"] for note in found.status_notes or ()]


def test_where_a_taken_name_fails(new_server: NewServer, one_row: Path, two_rows: Path):
    """Prevents: pipelines can be tried only with servers that report a taken name in one way."""
    sandbox, server = new_server()
    item = publish(server, one_row)
    job = publish_job(server, two_rows, mode="CreateNew")
    assert notes(sandbox, server, job) == (1, [])
    with pytest.raises(tsc.ServerResponseError, match="403007"):
        publish(server, two_rows)
    sandbox.set_quirks(taken_name="at-request")
    with pytest.raises(tsc.ServerResponseError, match="403007"):
        publish_job(server, two_rows, mode="CreateNew")
    assert rows_on_server(server, item.id) == [[1, "one"]]


@pytest.mark.parametrize(
    "options", [{"replace": "fails"}, {"replace": "unknown"}, {"rest_version": "3.24"}], ids=repr
)
def test_replace_without_effect(
    new_server: NewServer, one_row: Path, two_rows: Path, options: dict[str, str]
):
    """Prevents: pipelines can be tried only with servers that know Replace or explain a refusal."""
    sandbox, server = new_server(**options)
    item = publish(server, one_row)
    job = publish_job(server, two_rows, mode="Replace")
    assert notes(sandbox, server, job) == (1, [])
    assert rows_on_server(server, item.id) == [[1, "one"]]
    publish(server, two_rows, mode="Overwrite")
    assert rows_on_server(server, item.id) == [[1, "one"], [2, "two"]]


def test_several_tables_in_a_bare_file(new_server: NewServer, tmp_path: Path):
    """Prevents: the sandbox accepts stars that some servers refuse, or refuses star packages."""
    sandbox, server = new_server()
    star, loose = tmp_path / "star.hyper", tmp_path / "loose.hyper"
    star.write_bytes(related_file())
    loose.write_bytes(hyper_file(*(f'CREATE TABLE "Extract".{each} (id INT)' for each in "ab")))
    code, (note,) = notes(sandbox, server, publish_job(server, loose))
    assert code == 1
    assert "it must contain exactly one fact table" in note
    assert notes(sandbox, server, publish_job(server, star, name="Star")) == (0, [])
    (item,) = server.datasources.filter(name="Star")
    package = Path(server.datasources.download(item.id, str(tmp_path / "star")))
    sandbox.set_quirks(several_tables="refused")
    assert notes(sandbox, server, publish_job(server, star)) == (1, [])
    with pytest.raises(tsc.ServerResponseError, match="400011"):
        publish(server, star, name="Star", mode="Overwrite")
    assert notes(sandbox, server, publish_job(server, package, name="Packaged")) == (0, [])


def test_missing_warnings(new_server: NewServer, one_row: Path):
    """Prevents: a pipeline that asks for warnings first fails where a data source has none."""
    sandbox, server = new_server()
    item = publish(server, one_row)
    path = f"sites/{{site}}/dataQualityWarnings/datasource/{item.id}"
    assert code_of(call(sandbox, "GET", path, server=server)) == "404030"
    sandbox.set_quirks(missing_warnings="empty")
    answer = call(sandbox, "GET", path, server=server)
    assert answer.ok
    assert "<dataQualityWarning " not in answer.text
    sandbox.set_quirks(missing_warnings="404030")
    server.datasources.add_dqw(item, tsc.DQWItem("STALE"))
    assert call(sandbox, "GET", path, server=server).ok


def test_ids_of_tables(new_server: NewServer, tmp_path: Path):
    """Prevents: a pipeline knows only one form of table identifiers, or a publish changes them."""
    sandbox, server = new_server()
    star = tmp_path / "star.hyper"
    star.write_bytes(related_file())

    def ids() -> list[str | None]:
        item = publish(server, star, mode="Overwrite")
        root = ElementTree.fromstring(tds_of(server, item.id, tmp_path))
        found = [each.get("id") for each in root.iterfind("./object-graph/objects/object")]
        entries = fields(Session(sandbox.url, ENVIRONMENT), item.id)
        assert {each["logicalTableId"] for each in entries} == set(found)
        return found

    first = ids()
    for id_, name in zip(first, ("One", "Two"), strict=True):
        assert re.fullmatch(rf"{name} \(Extract\.{name}\)_[0-9A-F]{{32}}", str(id_))
    assert ids() == first
    sandbox.set_quirks(table_ids="plain")
    assert all(re.fullmatch(r"(One|Two)_[0-9A-F]{32}", str(id_)) for id_ in ids())
