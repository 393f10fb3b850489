"""The command `assess`, on data sources that other clients published."""

import os
import pty
import re
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from io import StringIO
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import tableauserverclient as TSC
from hypothesis import given
from hypothesis import strategies as st

from tableau_pipeline.command_line.main import run
from tableau_pipeline.components.assessment import (
    AssessedDatasource,
    DatasourceKind,
    RevisionComparison,
)
from tableau_pipeline.components.pseudonyms import Tokens
from tableau_pipeline.hyper.process import hyper_process
from tableau_pipeline.objects.local_files import scratch
from tableau_pipeline.publishing.rest import RefreshTask
from tableau_pipeline.publishing.revisions import ChangedRows, compare_files
from tableau_pipeline_tests.command_line.conftest import Result, asked, documented, files, masked
from tableau_pipeline_tests.command_line.test_adopt import (
    LIVE,
    SALES,
    STAR,
    WEEKDAYS,
    hyper,
    packed,
)
from tableau_pipeline_tests.refresh.support.pipeline import session
from tableau_sandbox.faults import Refuse
from tableau_sandbox.options import UserSeed
from tableau_sandbox.testing import Sandbox, running_sandbox

# Ann may not see the project of half of the data sources.
ANN = UserSeed(name="ann", password="ann-secret", site_role="Viewer")
# Bob may overwrite Orders, but may not download it.
BOB = UserSeed(name="bob", password="bob-secret")
MANY = (
    'CREATE TABLE "Extract"."Extract" AS (SELECT i AS "order_id", {} AS "amount" '
    "FROM generate_series(1, 1000) AS t(i))"
)
CHANGED = "CASE WHEN i <= 12 THEN 0 ELSE i END"
RECORDS = "".join(
    f"<metadata-record class='column'><remote-name>{name}</remote-name>"
    "<parent-name>[Extract]</parent-name></metadata-record>"
    for name in ("order_id", "country", "amount")
)
WRAPPED = (
    f"<datasource><connection class='postgres' dbname='erp'>{RECORDS}</connection>"
    f"<extract enabled='true'><connection class='hyper' dbname='Data/e.hyper'>{RECORDS}"
    "</connection></extract></datasource>"
)
ODD = "Pay|roll *net* <b>"
# The most requests that users must expect: 10 for lists, and 4 for each data source (its
# connections, its revisions, and two to count its rows).
MOST_REQUESTS = 10 + 4 * 60
REVISIONS = "sites/*/datasources/*/revisions"


@pytest.fixture(scope="module")
def sandbox(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    """A site with sixty data sources of other clients."""
    root = tmp_path_factory.mktemp("site")
    with running_sandbox(root / "sandbox", users=(ANN, BOB)) as sandbox:
        with session(sandbox) as site:
            Clients(site.tsc, root).publish_all()
        sandbox.wait_until_idle()
        yield sandbox


@dataclass(frozen=True)
class Clients:
    """Other clients, which publish data sources to the site."""

    server: TSC.Server
    root: Path

    def publish_all(self) -> None:
        """Publish sixty data sources, half of them for administrators alone."""
        curated, regions, board = map(self.project, ("Curated", "Regions", "Board"))
        emea = self.project("Emea", parent=regions)
        self.close(board)
        small = hyper(self.root / "small.hyper", SALES)
        for number in range(26):
            self.publish(small, f"Region {number:02}", (regions, emea)[number % 2])
            self.publish(small, f"Margin {number:02}", board)
        for project in (regions, board, board):
            self.publish(small, ODD if project is board else "Twin", project, "Overwrite")
        self.publish(small, "Twin", board)
        self.publish(hyper(self.root / "star.hyper", *STAR), "Star", board)
        tagged = self.publish(small, "Payroll", board)
        tagged.tags = {"tableau-pipeline:payroll"}
        self.server.datasources.update(tagged)
        for name, amount in (("before", "i"), ("after", CHANGED)):
            file = hyper(self.root / f"{name}.hyper", MANY.format(amount))
            orders = self.publish(file, "Orders", curated, "Overwrite")
        users = {each.name: each for each in self.server.users.all()}
        writes = {TSC.Permission.Capability.Write: TSC.Permission.Mode.Allow}
        rule = TSC.PermissionsRule(users[BOB.name], writes)
        self.server.datasources.update_permissions(orders, [rule])
        wrapped = packed(self.root / "e.tdsx", WRAPPED, small)
        bookings = self.publish(wrapped, "Bookings", curated)
        self.server.schedules.add_to_schedule(WEEKDAYS, datasource=bookings)
        self.server.datasources.refresh(bookings)
        (self.root / "live.tds").write_text(LIVE, "utf-8")
        self.publish(self.root / "live.tds", "Ledger", curated)

    def project(self, name: str, parent: TSC.ProjectItem | None = None) -> TSC.ProjectItem:
        """Create a project."""
        luid = str(parent.id) if parent else None
        return self.server.projects.create(TSC.ProjectItem(name, parent_id=luid))

    def close(self, project: TSC.ProjectItem) -> None:
        """Remove all permissions on a project and on the data sources that it gets later."""
        projects = self.server.projects
        projects.populate_permissions(project)
        for rule in project.permissions:
            projects.delete_permission(project, rule)
        projects.populate_datasource_default_permissions(project)
        for rule in project.default_datasource_permissions:
            projects.delete_datasource_default_permissions(project, rule)

    def publish(
        self, file: Path, name: str, project: TSC.ProjectItem, mode: str = "CreateNew"
    ) -> TSC.DatasourceItem:
        """Publish a file."""
        item = TSC.DatasourceItem(str(project.id), name=name)
        return self.server.datasources.publish(item, file, mode)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty folder, in which the command runs."""
    return tmp_path_factory.mktemp("anywhere")


@pytest.fixture(autouse=True)
def anywhere(folder: Path, sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Run without a project or a Dagster instance, and assert that the command leaves no file."""
    monkeypatch.chdir(folder)
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    monkeypatch.setenv("TABLEAU_SERVER_URL", sandbox.url)
    monkeypatch.setenv("TABLEAU_TOKEN_NAME", sandbox.token_name)
    monkeypatch.setenv("TABLEAU_TOKEN_VALUE", sandbox.token_secret)
    yield
    assert files(folder) == {}
    assert [*scratch().glob("revisions *")] == []


def sign_in_as(user: UserSeed, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the command sign in as a user with a password."""
    for name in ("TABLEAU_TOKEN_NAME", "TABLEAU_TOKEN_VALUE"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("TABLEAU_USERNAME", user.name)
    monkeypatch.setenv("TABLEAU_PASSWORD", user.password)


def assess(*args: str) -> Result:
    """Run the command."""
    text, errors = StringIO(), StringIO()
    with redirect_stdout(text), redirect_stderr(errors):
        code = run(["assess", *args])
    return Result(code, text.getvalue(), errors.getvalue())


def by_name(result: Result) -> dict[str, dict]:
    """The data sources that the command found, by name."""
    return {each["name"]: each for each in result.data["datasources"]}


@pytest.mark.slow
def test_sixty_data_sources(caplog: pytest.LogCaptureFixture):
    """Prevents: `assess` changes the site, counts its requests wrong, or shows wrong facts."""
    with asked(caplog) as requests:
        result = assess("--json", "--sample", "1")
    assert result.code == 0, result
    cost, found = result.data["requests"], by_name(result)
    assert cost["sent"] == len(requests) <= MOST_REQUESTS
    assert len(result.data["datasources"]) == 60
    assert found["Region 01"]["project"] == "Regions/Emea"
    orders, bookings, ledger = found["Orders"], found["Bookings"], found["Ledger"]
    assert (orders["kind"], sum(orders["rows"].values()), orders["revisions"]) == ("hyper", 1000, 2)
    assert (orders["owner"], orders["tasks"], orders["obstacles"]) == ("admin", [], [])
    assert orders["jobs"]["jobs"] == 0
    # 988 of 1,000 rows did not change, and the server rounds the size to 1 MB.
    assert orders["saved_megabytes"] == pytest.approx(0.988)
    assert orders["compared"]["found"] == {"rows": 1000, "changed": 12}
    assert (bookings["kind"], bookings["sources"]) == ("extract", ["postgres"])
    assert (bookings["jobs"]["jobs"], sum(bookings["rows"].values())) == (1, 2)
    assert bookings["tasks"][0]["when"].startswith('"Weekday early mornings"')
    assert (ledger["kind"], ledger["rows"]) == ("live", None)
    assert found["Star"]["rows"] == {"customers": 2, "orders": 0}
    # A job has only the name of its data source. Two are named "Twin", so the jobs are unknown.
    assert (found["Twin"]["jobs"], "several" in found["Twin"]["unknown"]["jobs"]) == (None, True)
    (tagged,) = found["Payroll"]["obstacles"]
    assert 'tag "tableau-pipeline:payroll"' in tagged["text"]
    assert found[ODD]["unknown"]["compared"] == "it is not one of the 1 that were compared"


def test_transcript():
    """Prevents: the reference shows output that `assess` does not write."""
    result = assess("--project", "curated", "--sample", "1")
    command = "tableau-pipeline assess --project Curated --sample 1"
    assert masked(result.text) == documented(command)
    assert result.code == 0


@pytest.mark.slow
def test_half_of_them(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch):
    """Prevents: `assess` says "none" for facts that its user may not see, or repeats a refusal."""
    sign_in_as(ANN, monkeypatch)
    with asked(caplog) as requests:
        result = assess()
        data = assess("--json").data
    assert result.code == 0
    assert "Margin" not in result.text
    assert "as ann (Viewer, which may not publish)" in result.text
    assert len(data["datasources"]) == 30
    assert data["requests"]["sent"] == len(requests) / 2
    assert "only administrators may list jobs" in data["unknown"]["jobs"]
    for each in data["datasources"]:
        facts = (each["tasks"], each["jobs"], each["rows"], each["revisions"], each["compared"])
        assert facts == (None,) * 5, each
        assert any("another user owns it" in e["text"] for e in each["obstacles"]) or (
            each["kind"] == "live"
        )
    # The report shows each refusal once.
    assert len(result.text.splitlines()) < 50
    assert "this user may not download it" not in result.text


def test_a_site_without_revisions(sandbox: Sandbox):
    """Prevents: `assess` fails, or guesses an estimate, on a site that keeps no revisions."""
    with sandbox.quirks(revisions=False):
        result = assess("--sample", "3", "--json", "--project", "Curated")
    assert result.code == 0
    orders = by_name(result)["Orders"]
    assert (orders["revisions"], orders["saved_megabytes"]) == (None, None)
    assert orders["basis"] == "its revisions are not known"
    assert "The site keeps no revisions" in orders["unknown"]["revisions"]


@pytest.mark.slow
def test_a_pause(sandbox: Sandbox, caplog: pytest.LogCaptureFixture):
    """Prevents: `assess` fails, or waits in silence, because the server is busy."""
    busy = Refuse(status=429, retry_after=1, method="GET", path=REVISIONS, nth=3)
    with sandbox.armed(busy) as armed, asked(caplog) as requests:
        result = assess()
    assert (result.code, armed.fired) == (0, 1)
    assert result.errors == "The server answered 429: a pause of 1.0 s\n"
    sent = f"{len(requests)} requests of 500, 1 pause of 1.0 s in all. Nothing was written.\n"
    assert result.text.endswith(sent)


def test_the_budget(sandbox: Sandbox, caplog: pytest.LogCaptureFixture):
    """Prevents: `assess` sends more requests than allowed, or does not sign out."""
    with asked(caplog) as requests:
        result = assess("--max-requests", "40", "--json")
    assert result.code == 1
    assert result.data["requests"]["sent"] == len(requests) == 40
    assert "/auth/signout" in requests[-1]
    listed = result.data["datasources"]
    left = [each for each in listed if not each["is_complete"]]
    assert (len(listed), 0 < len(left) < 60) == (60, True)
    why = "not looked at: the budget of 40 requests is used up"
    assert {each["unknown"].get("revisions", why) for each in left} == {why}
    # Retries count as requests, and even the lists of projects and data sources may exceed the
    # budget.
    caplog.clear()
    first, second = (
        Refuse(status=429, retry_after=0, method="GET", path=f"sites/*/{what}", times=times)
        for what, times in (("projects", 2), ("datasources", None))
    )
    with sandbox.armed(first), sandbox.armed(second), asked(caplog) as requests:
        result = assess("--max-requests", "10")
    assert (result.code, len(requests)) == (1, 10)
    assert "take more requests: the budget of 10 requests is used up" in result.errors
    assert assess("--max-requests", "9").code == 64


@pytest.mark.slow
def test_a_server_that_fails(sandbox: Sandbox):
    """Prevents: `assess` sends hundreds of requests to a server that is down, or shows nothing."""
    broken = Refuse(status=500, method="GET", path=REVISIONS, times=None)
    with sandbox.armed(broken) as armed:
        result = assess()
    assert "rows:" not in result.text
    assert (result.code, armed.fired) == (1, 3)
    assert "not looked at: the server failed 3 times in a row" in result.text
    assert "59 were assessed only in part." in result.text


def test_a_server_that_cannot_count(sandbox: Sandbox, caplog: pytest.LogCaptureFixture):
    """Prevents: `assess` calls a missing VizQL Data Service once for each data source."""
    with sandbox.quirks(vds=False), asked(caplog) as requests:
        result = assess("--json")
    assert result.code == 0
    assert "no answer of a VizQL Data Service" in result.data["unknown"]["rows"]
    assert len([each for each in requests if "vizql" in each]) == 1


@pytest.mark.slow
def test_no_download(monkeypatch: pytest.MonkeyPatch):
    """Prevents: an adoption fails because `assess` did not mention a missing download right."""
    sign_in_as(BOB, monkeypatch)
    orders = by_name(assess("--sample", "1", "--json"))["Orders"]
    assert orders["revisions"] == 2
    assert "Download Data Source" in orders["unknown"]["download"]
    assert "this user may not download it" in [each["text"] for each in orders["obstacles"]]
    orders = by_name(assess("--sample", "1", "--max-mb", "0", "--json"))["Orders"]
    assert orders["basis"] == "it has 1 MB, more than --max-mb 0"


def test_a_connected_app(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch):
    """Prevents: a refused scope ends `assess`, or looks like an expired session."""
    app = sandbox.connected_app
    sign_in_as(UserSeed(name=sandbox.user, password=sandbox.password), monkeypatch)
    monkeypatch.setenv("TABLEAU_CONNECTED_APP_CLIENT_ID", app.client_id)
    monkeypatch.setenv("TABLEAU_CONNECTED_APP_SECRET_ID", app.secret_id)
    monkeypatch.setenv("TABLEAU_CONNECTED_APP_SECRET_VALUE", app.secret_value)
    result = assess("--project", "Curated", "--json")
    assert (result.code, result.errors) == (0, "")
    assert result.data["unknown"]["tasks"] == "this user may not list refresh tasks"
    assert sum(by_name(result)["Orders"]["rows"].values()) == 1000


def test_a_project_that_is_not_there():
    """Prevents: `assess` reports a mistyped project as an empty project."""
    result = assess("--project", "Curatde")
    assert result.code == 1
    assert 'Project "Curatde": there is none on the site' in result.errors


def test_a_bar():
    """Prevents: `assess` works for minutes and shows no progress."""
    screen, terminal = pty.openpty()
    shown: list[bytes] = []

    def read() -> None:
        # A thread must empty the small buffer of the terminal while the command runs. A read
        # after the terminal is closed raises an OSError.
        with suppress(OSError):
            while piece := os.read(screen, 10_000):
                shown.append(piece)

    reader = Thread(target=read)
    reader.start()
    with (
        open(terminal, "w") as errors,  # noqa: PTH123
        redirect_stdout(StringIO()),
        redirect_stderr(errors),
    ):
        run(["assess", "--project", "Curated"])
    reader.join()
    os.close(screen)
    assert "Ledger" in b"".join(shown).decode()


@pytest.mark.slow
def test_markdown():
    """Prevents: a name breaks the Markdown table in a ticket, or notifies a user."""
    result = assess("--markdown", "--project", "Board")
    rows = [each for each in result.text.splitlines() if each.startswith("|")]
    assert len(rows) == 2 + 30
    assert len({len(re.findall(r"(?<!\\)\|", row)) for row in rows}) == 1
    assert r"Pay\|roll \*net\* \<b>" in result.text
    assert result.text.count("###") == 3
    # If two data sources have the same name, the report adds the project to each name.
    text = assess("--no-rows").text
    assert all(f"Twin ({project})" in text for project in ("Board", "Regions"))
    # The section "Not known" lists every name, for users who handle each data source in turn.
    assert "Margin 25" in result.text.split("### Not known")[1]


def test_variables_of_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Prevents: `assess` ignores the credentials in the .env file that other commands read."""
    variables = ("TABLEAU_SERVER_URL", "TABLEAU_TOKEN_NAME", "TABLEAU_TOKEN_VALUE")
    lines = [f"{name}={os.environ[name]}\n" for name in variables]
    (tmp_path / ".env").write_text("".join(lines), "utf-8")
    for name in variables:
        monkeypatch.delenv(name)
    result = assess()
    assert (result.code, "No credentials" in result.errors or "is not set" in result.errors) == (
        1,
        True,
    )
    monkeypatch.chdir(tmp_path)
    assert assess("--project", "Curated").code == 0
    assert [each.name for each in tmp_path.iterdir()] == [".env"]


THEIRS = AssessedDatasource(
    "luid",
    "Sales",
    project="Curated",
    owner="ann",
    updated_at=datetime(2026, 11, 20, tzinfo=UTC),
    megabytes=100,
    is_own=True,
)


@pytest.mark.parametrize(
    ("facts", "texts"),
    [
        ({}, []),
        ({"is_own": False}, ["another user owns it"]),
        ({"is_encrypted": True}, ["its extract is encrypted"]),
        ({"pipelines": ("a", "b")}, ['"tableau-pipeline:a", "tableau-pipeline:b"']),
        (
            {"kind": DatasourceKind.EXTRACT, "sources": ("oracle",)},
            ["an extract of oracle takes no updates"],
        ),
        (
            {"kind": DatasourceKind.EXTRACT, "has_password": True},
            ["an extract of a source that the server does not name", "drops the credentials"],
        ),
        # A live connection shows only this obstacle.
        (
            {"kind": DatasourceKind.LIVE, "sources": ("oracle",), "is_own": False},
            ["a live connection to"],
        ),
    ],
)
def test_obstacles(facts: dict[str, Any], texts: list[str]):
    """Prevents: an adoption fails because of an obstacle that `assess` could have shown."""
    found = [e.text for e in replace(THEIRS, **facts).obstacles(takes_updates=True)]
    assert len(found) == len(texts)
    assert [text for text, one in zip(texts, found, strict=True) if text not in one] == []
    (old,) = THEIRS.obstacles(takes_updates=False)
    assert "this server takes no updates" in old.text


def test_an_estimate():
    """Prevents: an estimate hides its basis, or promises savings that are impossible."""
    day = datetime(2026, 11, 21, tzinfo=UTC)
    for changed, saved in ((1_200, 98.8), (250_000, 0)):
        compared = RevisionComparison(ChangedRows(100_000, changed), 7, THEIRS.updated_at, day)
        found = replace(THEIRS, compared=compared)
        assert found.saved_megabytes == pytest.approx(saved)
    text = "revision 7 of 2026-11-20 and the data of 2026-11-21: 100.0% of 100,000 rows differ"
    assert found.basis == text
    assert replace(found, megabytes=None).saved_megabytes is None


def names_of(sandbox: Sandbox) -> set[str]:
    """The names, IDs and addresses of the site, which a redacted report must not contain."""
    with session(sandbox) as site:
        server = site.tsc
        found = [*server.datasources.all(), *server.projects.all(), *server.users.all()]
        names = {str(name) for each in found for name in (each.name, each.id)}
        inside = {"customers", "orders", "order_id", "amount", "country", "payroll", "erp"}
        address = {sandbox.url, sandbox.url.rpartition(":")[2], "127.0.0.1", str(server.site_id)}
        return names | inside | address | {"Weekday", WEEKDAYS}


@pytest.mark.slow
@pytest.mark.parametrize("user", [None, ANN, BOB], ids=["admin", "ann", "bob"])
def test_redacted(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch, user: UserSeed | None):
    """Prevents: a redacted report contains a name, an ID or an address of the site."""
    names = names_of(sandbox)
    if user:
        sign_in_as(user, monkeypatch)
    result = [
        assess("--redact", "--sample", "2", *form) for form in ([], ["--json"], ["--markdown"])
    ]
    assert {each.code for each in result} == {0}
    text = "".join(each.text + each.errors for each in result)
    # Look for whole words: one such as "administrators" may begin with a name.
    found = [e for e in names if re.search(rf"(?<!\w){re.escape(e)}(?!\w)", text, re.IGNORECASE)]
    assert found == []
    # A later report has the same tokens for the same names.
    again = assess("--redact", "--json", "--no-rows")
    assert by_name(again).keys() == by_name(result[1]).keys()
    assert len(by_name(again)) == (60 if user is None else 30)


def test_redacted_errors(monkeypatch: pytest.MonkeyPatch, sandbox: Sandbox):
    """Prevents: the error of a redacted `assess` contains an address or a name."""
    result = assess("--redact", "--project", "Secret")
    assert result.code == 1
    assert "Secret" not in result.errors
    sign_in_as(UserSeed(name="ann", password="wrong"), monkeypatch)
    result = assess("--redact", "--json")
    assert result.data["error"].startswith(
        "The site could not be assessed: the server answered 401001. "
    )
    monkeypatch.setenv("TABLEAU_SERVER_URL", "http://tableau.invalid:1")
    assert "invalid" not in assess("--redact").errors


@given(name=st.text(min_size=1), site=st.uuids())
def test_tokens_name_nothing(name: str, site: object):
    """Prevents: the token that replaces an unusual name in a report reveals that name."""
    tokens = Tokens(str(site))
    assert re.fullmatch("server-[0-9a-f]{10}", tokens.text("server", name))
    message = f"Listing its revisions failed: 403004 Forbidden: '{name}'."
    assert tokens.reason(message) == "the server answered 403004"
    assert tokens.reason(name) in (
        "the reason is hidden, because it may contain names",
        "the server answered 403004",
    )
    (task,) = tokens.tasks([RefreshTask("id", f'"{name}", daily at 04:00', "url")])
    assert task == RefreshTask("", "daily at 04:00", "")
    assert tokens.rows({name: 1}) == {"table-0": 1}


@pytest.mark.parametrize(
    ("older", "newer", "changed"),
    [
        ("(1, 'a'), (2, 'b')", "(2, 'b'), (1, 'a')", 0),
        ("(1, 'a'), (2, 'b')", "(1, 'a'), (2, 'c')", 1),
        ("(1, 'a'), (1, 'a'), (2, 'b')", "(1, 'a'), (2, 'b')", 1),
        ("(1, NULL), (2, 'b')", "(1, NULL), (2, NULL)", 1),
    ],
)
def test_rows_that_changed(tmp_path: Path, older: str, newer: str, changed: int):
    """Prevents: an estimate counts moved rows as changed, or overlooks a repeated row."""
    make = 'CREATE TABLE "Extract"."Extract" AS (SELECT * FROM (VALUES {}) AS t ("id", "name"))'
    before = hyper(tmp_path / "before.hyper", make.format(older))
    after = hyper(tmp_path / "after.hyper", make.format(newer))
    rows = newer.count("(")
    assert compare_files(hyper_process(), before, after) == ChangedRows(rows, changed)


def test_other_columns(tmp_path: Path):
    """Prevents: `assess` estimates changed rows of files that have different columns."""
    one = hyper(tmp_path / "one.hyper", SALES)
    other = hyper(tmp_path / "other.hyper", MANY.format("i"))
    with pytest.raises(ValueError, match="different tables or columns"):
        compare_files(hyper_process(), one, other)
