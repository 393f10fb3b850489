"""`assess`, as somebody runs it who has never used the pipeline: on a site of other clients."""

import json
import re
import shlex
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import tableauserverclient as TSC

from tableau_pipeline.command_line.main import run
from tableau_pipeline_tests.command_line.conftest import Told, asked, documented, files, masked
from tableau_pipeline_tests.command_line.test_adopt import (
    LIVE,
    SALES,
    STAR,
    WEEKDAYS,
    WRAPPED,
    hyper,
    packed,
)
from tableau_pipeline_tests.refresh.support.pipeline import session
from tableau_sandbox.faults import Refuse
from tableau_sandbox.options import UserSeed
from tableau_sandbox.testing import Sandbox, running_sandbox

ANN = UserSeed(name="ann", password="ann-secret", tokens=(("anns", "anns-secret"),))
BEFORE = SALES.replace("(1, 'DE', 10.5), ", "(1, 'DE', 9.5), ")
MANY = 29


@dataclass(frozen=True)
class Shop:
    """A site of other clients, and an empty folder to look at it from."""

    sandbox: Sandbox
    folder: Path

    def assess(self, *args: str) -> Told:
        """Run the command."""
        told, errors = StringIO(), StringIO()
        with redirect_stdout(told), redirect_stderr(errors):
            code = run(["assess", *args])
        return Told(code, told.getvalue(), errors.getvalue())

    def data(self, *args: str) -> dict[str, Any]:
        """What it finds, by the names of extracts."""
        return {each["name"]: each for each in self.assess(*args, "--json").data["extracts"]}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    """Sixty data sources, of which a user may see half."""
    folder = tmp_path_factory.mktemp("shop")
    with running_sandbox(folder / "sandbox", users=(ANN,)) as sandbox, session(sandbox) as admin:
        server, data = admin.tsc, hyper(folder / "sales.hyper", SALES)
        create = server.projects.create
        projects = {name: create(TSC.ProjectItem(name)) for name in ("Open", "Closed")}
        hide(server, projects["Closed"])

        def publish(name: str, file: Path, project: str = "Open") -> TSC.DatasourceItem:
            item = TSC.DatasourceItem(projects[project].id, name=name)
            return server.datasources.publish(item, file, "Overwrite")

        for number in range(MANY):
            publish(f"Branch {number}", data)
            publish(f"Secret {number}", data, "Closed")
        wrapped = publish("Wrapped", packed(folder / "e.tdsx", WRAPPED, data))
        server.schedules.add_to_schedule(WEEKDAYS, datasource=wrapped)
        publish("Star", hyper(folder / "star.hyper", *STAR), "Closed")
        (folder / "live.tds").write_text(LIVE, "utf-8")
        publish("ERP", folder / "live.tds")
        publish("Orders", hyper(folder / "before.hyper", BEFORE))
        publish("Orders", data)
        yield sandbox


def hide(server: TSC.Server, project: TSC.ProjectItem) -> None:
    """Let only administrators see what is in a project."""
    (everybody,) = server.groups.filter(name="All Users")
    allow = dict.fromkeys([TSC.Permission.Capability.Read], TSC.Permission.Mode.Allow)
    rule = TSC.PermissionsRule(grantee=everybody, capabilities=allow)
    server.projects.delete_datasource_default_permissions(project, rule)


@pytest.fixture
def shop(site: Sandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shop:
    """The site, as an administrator looks at it."""
    monkeypatch.chdir(tmp_path)
    for name in ("DAGSTER_HOME", "PIPELINE_DATA_DIR", "TABLEAU_PROJECT_ROOT"):
        monkeypatch.delenv(name, raising=False)
    signs_in(site, monkeypatch, site.token_name, site.token_secret)
    return Shop(site, tmp_path)


def signs_in(sandbox: Sandbox, patch: pytest.MonkeyPatch, name: str, secret: str) -> None:
    """Have the next command sign in by this token."""
    patch.setenv("TABLEAU_SERVER_URL", sandbox.url)
    patch.setenv("TABLEAU_TOKEN_NAME", name)
    patch.setenv("TABLEAU_TOKEN_VALUE", secret)


def test_sixty_data_sources(shop: Shop, caplog: pytest.LogCaptureFixture):
    """Prevents: a first look that changes something, asks a site for ever, or writes a file."""
    with asked(caplog) as requests:
        found = shop.assess("--json")
    data = found.data
    assert found.code == 0
    assert len(data["extracts"]) == 2 * MANY + 3
    assert data["live"] == 1
    assert data["requests"] == len(requests) < 10 + 5 * 2 * (MANY + 2)
    assert files(shop.folder) == {}


def test_what_is_told_of_each(shop: Shop):
    """Prevents: a report on which nobody can decide what to take over first."""
    found = shop.data("--sample", "100")
    orders, wrapped = found["Orders"], found["Wrapped"]
    assert (orders["project"], orders["owner"], orders["rows"]) == ("Open", "admin", 2)
    assert (orders["revisions"], orders["difference"]["changed"]) == (2, 1)
    assert orders["saving"] == 0.5
    assert orders["blockers"] == []
    assert wrapped["source"] == "postgres"
    assert wrapped["tasks"] == ['"Weekday early mornings", weekly Mon, Tue, Wed, Thu, Fri at 04:00']
    assert wrapped["blockers"][0].startswith("an extract of postgres: a publish drops embedded")
    assert found["Star"]["rows"] == 2
    assert "ERP" not in found
    assert [*shop.data("--project", "Closed")].count("Orders") == 0
    refused = shop.assess("--project", "Nowhere")
    assert (refused.code, 'no project "Nowhere"' in refused.errors) == (1, True)


def test_a_user_who_sees_half(shop: Shop, monkeypatch: pytest.MonkeyPatch):
    """Prevents: whoever is no administrator gets an error, or numbers that are made up."""
    signs_in(shop.sandbox, monkeypatch, "anns", "anns-secret")
    assert shop.assess().code == 1
    found = shop.data()
    # Whether that has rows of its own, it may not look at.
    assert len(found) == MANY + len(("Wrapped", "Orders", "ERP"))
    branch = found["Branch 1"]
    assert (branch["jobs"], branch["tasks"], branch["project"]) == (None, [], "Open")
    assert branch["rows"] is None
    assert "this user needs the capability API Access" in branch["unknown"][0]
    assert branch["blockers"][0].startswith("this user may not download it: give it")
    assert branch["blockers"][1].startswith("another user owns it")


def test_a_site_without_revisions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Prevents: an estimate that rests on nothing."""
    monkeypatch.chdir(tmp_path)
    with running_sandbox(tmp_path / "sandbox", revisions=False) as sandbox:
        with session(sandbox) as admin:
            data = hyper(tmp_path / "sales.hyper", SALES)
            (project,) = admin.tsc.projects.filter(name="Default")
            for _ in range(2):
                item = TSC.DatasourceItem(project.id, name="Orders")
                admin.tsc.datasources.publish(item, data, "Overwrite")
        signs_in(sandbox, monkeypatch, sandbox.token_name, sandbox.token_secret)
        shop = Shop(sandbox, tmp_path)
        orders = shop.data("--sample", "9")["Orders"]
        assert (orders["revisions"], orders["difference"], orders["saving"]) == (None, None, None)
        assert "unknown" in shop.assess("--sample", "9").text


def test_the_site_asks_to_wait(shop: Shop):
    """Prevents: a look at a large site ends at the first request that is one too many."""
    busy = Refuse(status=429, retry_after=1, method="GET", path="sites/*/datasources/*", nth=3)
    content = Refuse(status=429, method="GET", path="sites/*/datasources/*/content", nth=20)
    with shop.sandbox.armed(busy), shop.sandbox.armed(content):
        found = shop.assess("--json")
    assert found.code == 0
    assert all(not each["unknown"] for each in found.data["extracts"])


def test_budget_of_requests(shop: Shop):
    """Prevents: a look that costs a site more than it was allowed to."""
    found = shop.assess("--max-requests", "60", "--json")
    assert found.code == 1
    assert found.data["requests"] <= 60
    why = ["not looked at: the budget of 60 requests is used up"]
    left = [each for each in found.data["extracts"] if each["unknown"] == why]
    assert 2 * MANY + 4 > len(left) > MANY
    assert len(found.data["extracts"]) > 2 * MANY


def test_nothing_is_named(shop: Shop, monkeypatch: pytest.MonkeyPatch):
    """Prevents: a report to strangers names data, people or machines of a company."""
    gone = Refuse(status=500, method="GET", path="sites/*/datasources/*/content", times=4)
    monkeypatch.setenv("TABLEAU_SITE", "")
    names = r"Branch \d|Secret|Wrapped|Orders|Star\b|Open|Closed|\badmin\b|customers|127\.0\.0\.1"
    names += r"|Weekday early|[0-9a-f]{8}-[0-9a-f]{4}-"
    texts = []
    for args in ("--json", "--markdown", ""):
        with shop.sandbox.armed(gone):
            found = shop.assess("--redact", "--sample", "3", *shlex.split(args))
        texts.append(found.text)
        assert re.findall(names, found.text) == []
    again = shop.assess("--redact", "--json").data["extracts"]
    first = json.loads(texts[0])["extracts"]
    assert {each["name"] for each in again} == {each["name"] for each in first}
    assert len({each["name"] for each in again}) == len(again)


def test_as_documented(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Prevents: a page that shows what the command does not write."""
    monkeypatch.chdir(tmp_path)
    with running_sandbox(tmp_path / "sandbox") as sandbox:
        with session(sandbox) as admin:
            server = admin.tsc
            project = server.projects.create(TSC.ProjectItem("Sales"))
            data = hyper(tmp_path / "sales.hyper", SALES)
            wrapped = packed(tmp_path / "e.tdsx", WRAPPED, data)
            for name, file in (
                ("Orders", hyper(tmp_path / "before.hyper", BEFORE)),
                ("Orders", data),
                ("Invoices", wrapped),
            ):
                item = TSC.DatasourceItem(project.id, name=name)
                made = server.datasources.publish(item, file, "Overwrite")
            server.schedules.add_to_schedule(WEEKDAYS, datasource=made)
        signs_in(sandbox, monkeypatch, sandbox.token_name, sandbox.token_secret)
        found = Shop(sandbox, tmp_path).assess("--project", "Sales", "--sample", "1")
    assert found.code == 0
    command = "tableau-pipeline assess --project Sales --sample 1"
    assert masked(found.text) == documented(command)
