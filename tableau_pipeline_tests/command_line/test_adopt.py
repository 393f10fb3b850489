"""The command `adopt`, on data sources that other clients published."""

import sys
import sysconfig
import zipfile
from collections.abc import Iterator
from datetime import time
from pathlib import Path

import pyarrow as pa
import pytest
import tableauserverclient as TSC
import yaml

from tableau_pipeline.hyper import open_hyper
from tableau_pipeline_tests.command_line.conftest import (
    World,
    documented,
    environment,
    masked,
    project,
)
from tableau_pipeline_tests.environments import environment as others
from tableau_pipeline_tests.environments import run
from tableau_pipeline_tests.refresh.support.models import snapshot
from tableau_pipeline_tests.refresh.support.other_users import CALCULATION
from tableau_pipeline_tests.refresh.support.pipeline import published_rows, session
from tableau_sandbox.testing import running_sandbox

WEEKDAYS = "5ced0000-0000-4000-8000-000000000001"
TABLE = 'CREATE TABLE "Extract"."Extract" AS (SELECT * FROM (VALUES {}) AS t ({}))'
SALES = TABLE.format("(1, 'DE', 10.5), (2, 'FR', 20.5)", '"order_id", "country", "amount"')
STAR = (
    'CREATE TABLE "Extract"."customers" ("id" BIGINT NOT NULL, ASSUMED PRIMARY KEY ("id"))',
    'CREATE TABLE "Extract"."orders" ("customer" BIGINT, "day" DATE, "at" TIMESTAMPTZ)',
    'ALTER TABLE "Extract"."orders" ADD ASSUMED FOREIGN KEY ("customer") '
    'REFERENCES "Extract"."customers" ("id")',
    'INSERT INTO "Extract"."customers" VALUES (1), (2)',
)
LIVE = "<datasource><connection class='postgres' dbname='erp'/></datasource>"
WRAPPED = (
    f"<datasource><connection class='postgres'/>{CALCULATION}<extract enabled='true'>"
    "<connection class='hyper' dbname='Data/e.hyper'/></extract></datasource>"
)


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """A project without data sources, and a server in Tokyo."""
    project(tmp_path, "adopting")
    with running_sandbox(tmp_path / "sandbox", time_zone="Asia/Tokyo") as sandbox:
        monkeypatch.chdir(tmp_path)
        for name, value in environment(tmp_path, sandbox).items():
            monkeypatch.setenv(name, value)
        world = World(tmp_path, "adopting", sandbox)
        yield world
        world.forget()


def hyper(path: Path, *statements: str) -> Path:
    """Write a `.hyper` file: create the schema "Extract", then run the statements."""
    with open_hyper(path, "w") as file:
        for each in ('CREATE SCHEMA "Extract"', *statements):
            file.execute(each)
    return path


def packed(path: Path, tds: str, data: Path) -> Path:
    """Write a packaged data source (.tdsx)."""
    with zipfile.ZipFile(path, "w") as package:
        package.writestr("e.tds", tds)
        package.write(data, "Data/e.hyper")
    return path


def publish(server: TSC.Server, file: Path, name: str) -> TSC.DatasourceItem:
    """Publish a file by the client library, as other clients do."""
    (project,) = server.projects.filter(name="Default")
    item = TSC.DatasourceItem(str(project.id), name=name)
    return server.datasources.publish(item, file, "CreateNew")


def schedule(server: TSC.Server, item: TSC.DatasourceItem, interval: object) -> None:
    """Give an extract a refresh task with its own schedule."""
    about = TSC.ScheduleItem("", 50, "Extract", "Parallel", interval)
    target = TSC.Target(item.id, "datasource")
    server.tasks.create(TSC.TaskItem("", "FullRefresh", 50, schedule_item=about, target=target))


def declared(world: World, key: str) -> dict:
    """The attributes in the declaration that `adopt` wrote."""
    text = (world.root / world.name / "defs" / key / "defs.yaml").read_text("utf-8")
    return list(yaml.safe_load_all(text))[1]["attributes"]


@pytest.fixture
def sales(world: World, tmp_path: Path) -> str:
    """Publish three data sources; return the LUID of the extract, which has two refresh tasks.

    The other two data sources are a star schema and a live connection.
    """
    with session(world.sandbox) as site:
        server, files = site.tsc, tmp_path / "files"
        files.mkdir()
        data = hyper(files / "sales.hyper", SALES)
        wrapped = publish(server, packed(files / "e.tdsx", WRAPPED, data), "Sales")
        server.schedules.add_to_schedule(WEEKDAYS, datasource=wrapped)
        schedule(server, wrapped, TSC.HourlyInterval(time(8), time(20), 2))
        publish(server, hyper(files / "star.hyper", *STAR), "Orders")
        (files / "live.tds").write_text(LIVE, "utf-8")
        publish(server, files / "live.tds", "ERP")
    return str(wrapped.id)


@pytest.mark.slow
def test_proposals(world: World, sales: str):
    """Prevents: a team must write the declarations of its published data sources by hand."""
    result = world.run("adopt", "--project", "Default")
    assert masked(result.text) == documented("tableau-pipeline adopt --project Default")
    assert result.code == 1
    assert world.run("status", "--offline").text == "No data source is declared.\n"
    result = world.run("adopt", "--project", "Default", "--write", "--json")
    found = {each["name"]: each for each in result.data["datasources"]}
    written = {name: each["written"] for name, each in found.items()}
    assert written == {"ERP": False, "Orders": True, "Sales": True}
    # `adopt` lists the refresh tasks that the site has, and leaves them unchanged.
    with session(world.sandbox) as site:
        listed = {(each.id, each.target.id) for each in site.tsc.tasks.get()[0]}
    assert listed == {(each["id"], sales) for each in found["Sales"]["tasks"]}
    assert declared(world, "sales") == {
        "name": "Sales",
        "project": "Default",
        "adopt": True,
        "tables": {
            "sales": {
                "model": "sales_rows",
                "refresh": {"diff": {"key": ["order_id"]}},
                "contract": {"order_id": "int", "country": "string", "amount": "decimal(3,1)"},
            }
        },
        "trigger": {"cron": "0 4 * * MON,TUE,WED,THU,FRI", "timezone": "Etc/GMT-9"},
    }
    star = declared(world, "orders")
    on = {"customer": "id"}
    assert star["relationships"] == [{"from": "orders", "to": "customers", "on": on}]
    assert star["timestamps"] == "with_time_zone"
    assert star["tables"]["customers"]["refresh"] == {"diff": {"key": ["id"]}}


@pytest.mark.slow
def test_names_that_folders_and_tags_do_not_take(world: World, tmp_path: Path):
    """Prevents: `adopt` proposes a folder that is in use, or a key that is too long for a tag."""
    with session(world.sandbox) as site:
        data = hyper(tmp_path / "sales.hyper", SALES)
        for name in ("Tableau", "Sales of " + "very " * 48 + "old", "Sales (2)"):
            publish(site.tsc, data, name)
    world.run("adopt", "--project", "Default", "--write")
    assert declared(world, "tableau_datasource")["name"] == "Tableau"
    shown = world.run("status", "--json").data["datasources"]
    assert [len(each["key"]) <= 80 for each in shown] == [True] * 3
    # The default key comes from the name, so the declaration omits the key.
    assert "key" not in declared(world, "sales_2_")
    again = world.run("adopt", "--project", "Default", "--json").data["datasources"]
    assert all("it is declared already" in each["why_not"] for each in again)


@pytest.mark.slow
def test_adoption_to_the_end(world: World, sales: str, tmp_path: Path):
    """Prevents: a refresh after `adopt` publishes other rows, or drops calculated fields."""
    assert world.run("adopt", "--project", "Default", "--write").code == 1
    # Until the model exists, a refresh fails and names the model.
    result = world.run("refresh", "sales")
    assert result.code == 1
    assert "sales_rows" in result.text
    rows = pa.table(
        {
            "order_id": pa.array([1, 2, 3], pa.int32()),
            "country": ["DE", "FR", "IT"],
            "amount": pa.array(["10.5", "20.5", "1.0"]).cast(pa.decimal128(3, 1)),
        }
    )
    snapshot(world.root / "data" / "snapshots", rows, asset_key="sales_rows")
    assert world.run("plan", "sales").code == 2
    assert world.run("refresh", "sales").code == 0
    with session(world.sandbox) as site:
        assert published_rows(site, sales).sort_by("order_id") == rows
        assert site.metadata(sales).work == {"calculated fields": ("Delayed",)}
    again = world.run("adopt", "--project", "Default", "--write")
    assert "Sales: it is declared already, as sales" in again.text


HYPERLEAUP = """
import sys
from types import ModuleType

# hyperleaup imports these modules, but uses them only on Databricks.
stubs = ("databricks", "databricks.sdk", "databricks.sdk.runtime")
sys.modules |= {name: ModuleType(name) for name in stubs}
from hyperleaup import HyperFile
from pyspark.sql import SparkSession

url, folder = sys.argv[1:]
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", False).getOrCreate()
frame = spark.createDataFrame([(1, "a"), (2, "b")], "id bigint, name string")
made = HyperFile(name="leaped", df=frame)
made.publish(url, token_name="pipeline", token_value="pipeline-secret", datasource_name="Leaped")
"""
# Names that need quotes in YAML, are not ASCII, or lead to a key that is already in use.
NAMES = (
    *("売上", "Продажи", "Sales!", "Sales?", "sales_", 'Quote "x": #1', "a/b\\c", "yes", "123"),
    *("null", "{{ env.HOME }}", "x" * 200, "- - -", "Sales 1 extract", "Sales 2 rows"),
)
ODD = dict.fromkeys(NAMES, SALES) | {
    "Empty": 'CREATE TABLE "Extract"."Extract" ("id" INTEGER)',
    "Odd types": TABLE.format(
        "(1, TIME '10:00', INTERVAL '1 day', 'a'::VARCHAR(5), '\\xff'::BYTES, TRUE)",
        '"id", "time", "interval", "short", "bytes", "on"',
    ),
    "Odd columns": TABLE.format("(1, 2, 3), (4, 5, 3)", '"a b", "yes", "ключ: #"'),
    "Renamed": 'CREATE TABLE "Extract"."Sales" AS (SELECT 1 AS "id")',
    "Public": 'CREATE TABLE "public"."Extract" AS (SELECT 1 AS "id")',
}
TWO = ('CREATE TABLE "Extract"."one" ("id" INT)', 'CREATE TABLE "Extract"."two" ("id" INT)')
WITHOUT = {"{{ env.HOME }}", "Live", "Parts", "Ours"}


def clients_publish(world: World, files: Path) -> None:
    """Publish by hyperleaup and tabcmd, each from its own virtual environment."""
    folder = others("--no-deps", "hyperleaup==0.1.2")
    ours = sysconfig.get_path("purelib")
    script = ("-c", HYPERLEAUP, world.sandbox.url, str(files))
    run(str(folder / "python"), *script, PYTHONPATH=ours)
    tabcmd = str(others("tabcmd==2.0.21") / "tabcmd")
    token = ("--token-name", world.sandbox.token_name, "--token-value", world.sandbox.token_secret)
    home = {"cwd": files, "HOME": str(files)}
    run(tabcmd, "login", "--server", world.sandbox.url, *token, **home)
    for name in ("By tabcmd", "By tabcmd (2)"):
        file = str(files / "sales.hyper")
        run(tabcmd, "publish", file, "--name", name, "-r", "Default", **home)


@pytest.mark.long
def test_forty_data_sources_of_other_clients(world: World, tmp_path: Path):
    """Prevents: one odd data source ends the adoption of a project, or breaks the location."""
    files = tmp_path / "files"
    files.mkdir()
    sales = hyper(files / "sales.hyper", SALES)
    clients_publish(world, files)
    with session(world.sandbox) as site:
        server = site.tsc
        for number, (name, sql) in enumerate(ODD.items()):
            publish(
                server,
                hyper(files / f"{number}.hyper", 'CREATE SCHEMA IF NOT EXISTS "public"', sql),
                name,
            )
        for number in range(1, 15):
            publish(server, sales, f"Sales {number}")
        publish(server, hyper(files / "star.hyper", *STAR), "Star")
        publish(
            server, packed(files / "p.tdsx", WRAPPED, hyper(files / "two.hyper", *TWO)), "Parts"
        )
        wrapped = publish(server, packed(files / "e.tdsx", WRAPPED, sales), "Wrapped")
        schedule(server, wrapped, TSC.MonthlyInterval(time(6), "First"))
        schedule(server, wrapped, TSC.MonthlyInterval(time(6), ("1", "LastDay")))
        (files / "live.tds").write_text(LIVE, "utf-8")
        publish(server, files / "live.tds", "Live")
        site.tag(str(publish(server, sales, "Ours").id), ["tableau-pipeline:ours"])
        names = {str(each.name) for each in server.datasources.all()}
    assert len(names) >= 40
    result = world.run("adopt", "--project", "Default", "--write", "--json")
    assert result.code == 1
    found = {each["name"]: each for each in result.data["datasources"]}
    assert found.keys() == names
    assert {name for name, each in found.items() if each["why_not"]} == WITHOUT
    assert {name for name, each in found.items() if each["written"]} == names - WITHOUT
    for name, phrase in {
        "Odd types": "Extract.time (TIME) would go; Extract.interval (INTERVAL) would go",
        "Renamed": "Sales.id (INTEGER) would go",
        "Public": 'its schema "public" would be "Extract"',
        "Wrapped": "its trigger is one of its 2 tasks: monthly 1, LastDay at 06:00",
    }.items():
        assert phrase in " ".join(found[name]["notes"]), found[name]
    dg = str(Path(sys.executable).with_name("dg"))
    assert "All definitions loaded successfully" in run(dg, "check", "defs", cwd=world.root).stdout
    listed = world.run("status", "--offline", "--json").data["datasources"]
    assert {each["name"] for each in listed} == names - WITHOUT
    assert len({each["key"] for each in listed}) == len(listed)
    again = world.run("adopt", "--project", "Default", "--json").data["datasources"]
    assert {each["name"] for each in again if not each["why_not"]} == set()
