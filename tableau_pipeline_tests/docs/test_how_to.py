"""Guides whose scenes and examples are played on the sandbox."""

import runpy
from collections.abc import Generator, Mapping
from dataclasses import replace
from datetime import UTC, datetime, time
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest
import tableauserverclient as TSC
from tableauhyperapi import CreateMode, TableName

from tableau_pipeline.actions.batch import Batch, Insert
from tableau_pipeline.components import send_batch
from tableau_pipeline.components.published_datasource import refresh_assets
from tableau_pipeline.core.declaration import Republish
from tableau_pipeline.hyper.process import connect, hyper_process
from tableau_pipeline.publishing.site import TableauSite
from tableau_pipeline.refresh.decide import Options
from tableau_pipeline.refresh.refresh import refresh
from tableau_pipeline.refresh.report import Refreshed
from tableau_pipeline.resources import TableauServerResource, data_dir, resources_from_env
from tableau_pipeline_tests.conftest import ROOT
from tableau_pipeline_tests.docs.page import Page, declared, page
from tableau_pipeline_tests.docs.scenes import SCENES, Step
from tableau_pipeline_tests.refresh.support.models import snapshot
from tableau_pipeline_tests.refresh.support.pipeline import Pipeline, published_rows, session
from tableau_sandbox.testing import Sandbox

SECTIONS = page("how-to/ship-changes.md").sections
# More scenes, and more refreshes of scenes, which readers of the page need not see.
MORE = Page(Path(__file__).with_name("scenes.md")).sections


def ship(pipeline: Pipeline, step: Step) -> Refreshed:
    """Store the changes of the models, and refresh."""
    for model, parts in step.models.items():
        for part in parts:
            snapshot(
                pipeline.folder / "snapshots",
                part.rows,
                asset_key=model,
                partition=part.partition,
                span=part.span,
            )
    noon = datetime.combine(step.today, time(12), UTC)
    return refresh(pipeline.refresh(now=noon), Options())


@pytest.mark.slow
@pytest.mark.parametrize("heading", SCENES)
def test_scene(heading: str, tableau_sandbox: Sandbox, site: TableauSite, tmp_path: Path):
    # Prevents: the page shows another decision than a refresh makes, or rows are wrong.
    sections = [each[heading] for each in (SECTIONS, MORE) if heading in each]
    declaration = replace(declared(sections[0]), republish=Republish(growth=10))
    pipeline = Pipeline(tableau_sandbox, site, tmp_path, declaration)
    documented = {int(row["refresh"]): row for section in sections for row in section.rows()}
    numbers: list[int] = []
    for number, step in enumerate(SCENES[heading](), start=1):
        report = ship(pipeline, step)
        numbers.append(number)
        assert pipeline.wrong() == []
        assert report.plan is not None
        assert report.checkpoint is not None
        decided: dict[str, Any] = {"decision": report.plan.decision}
        if number == 1:
            assert decided == {"decision": "publish (create)"}
            continue
        decided["reason"] = report.plan.reason
        if "rows then" in documented[number]:
            (table,) = report.checkpoint.tables.values()
            decided["rows then"] = f"{table.content.rows:,}"
        assert decided == {name: documented[number][name] for name in decided}
    assert numbers == [1, *sorted(documented)]


def test_every_declaration_of_the_page_is_tested():
    # Prevents: the page shows a declaration that no test has played.
    both = [*SECTIONS.items(), *MORE.items()]
    assert sorted(name for name, each in both if each.blocks("yaml")) == sorted(SCENES)
    assert MORE.keys() <= SCENES.keys()


EXAMPLE = ROOT / "examples" / "hand_written_batches.py"
PAGE = page("how-to/custom-batches.md")
EXTRACT = TableName("Extract", "Extract")


@pytest.fixture
def site(
    tableau_sandbox: Sandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Generator[TableauSite]:
    """A session on the sandbox. Environment variables name the sandbox and a new data folder."""
    monkeypatch.setenv("PIPELINE_DATA_DIR", str(tmp_path / "data"))
    with session(tableau_sandbox) as site:
        yield site


def published(site: TableauSite, name: str) -> dict[Any, Any]:
    """The rows of a data source of one table: values of column 2 by values of column 1."""
    (item,) = (each for each in TSC.Pager(site.tsc.datasources) if each.name == name)
    keys, values = (column.to_pylist() for column in published_rows(site, str(item.id)).columns)
    return dict(zip(keys, values, strict=True))


def customers(names: Mapping[int, str]) -> None:
    keys = pa.array(names.keys(), pa.int64())
    rows = pa.table({"customer_id": keys, "name": pa.array(names.values(), pa.string())})
    snapshot(data_dir() / "snapshots", rows, asset_key="customers")


def materialize(asset: dg.AssetsDefinition, instance: dg.DagsterInstance, **config: Any) -> Any:
    """Materialize an asset, and return the metadata of its last materialization."""
    result = dg.materialize(
        [asset],
        instance=instance,
        resources=resources_from_env(),
        run_config={"ops": {asset.op.name: {"config": config}}} if config else None,
    )
    *_, last = result.get_asset_materialization_events()
    return {name: value.value for name, value in last.materialization.metadata.items()}


@pytest.mark.slow
def test_declared_data_source(site: TableauSite, tmp_path: Path):
    # Prevents: a documented batch fails, lacks its payload, or is never undone by a refresh.
    refresh = refresh_assets(declared(PAGE.sections["Change a declared data source"]), trigger=None)
    forget = runpy.run_path(str(EXAMPLE))["forget_a_customer"]
    everybody = {number: f"customer {number}" for number in range(20)}
    customers(everybody)
    with dg.DagsterInstance.ephemeral() as instance:
        materialize(refresh, instance)
        materialize(forget, instance, customer_id=7)
        del everybody[7]
        file = tmp_path / "new.hyper"
        with connect(hyper_process(), file, CreateMode.CREATE) as connection:
            connection.execute_command("CREATE TABLE new (customer_id BIGINT, name TEXT)")
            connection.execute_command("INSERT INTO new VALUES (20, 'customer 20')")
        insert = Batch([Insert(target="Extract", source="new")])

        @dg.asset
        def welcome(context: dg.AssetExecutionContext, tableau: TableauServerResource) -> None:
            send_batch(context, "loyal_customers", batch=insert, payload=file, tableau=tableau)

        materialize(welcome, instance)
        everybody[20] = "customer 20"
        assert published(site, "Loyal Customers") == everybody
        customers(everybody)
        after = materialize(refresh, instance)
        assert after["decision"] == "publish (replace)"
        assert after["reason"] == "full publish: an update that was written by hand changed it"
        assert published(site, "Loyal Customers") == everybody
        assert materialize(refresh, instance)["decision"] == "no change"


@pytest.mark.slow
def test_other_data_source(site: TableauSite, tmp_path: Path):
    # Prevents: the example fails, or changes other rows than the rows that it names.
    _publish(site, "Stock, EU", tmp_path)
    with dg.DagsterInstance.ephemeral() as instance:
        data_dir().mkdir()
        materialize(runpy.run_path(str(EXAMPLE))["counted_stock"], instance)
    assert published(site, "Stock, EU") == {17: 3, 18: 5, 99: 8}


@pytest.mark.parametrize("name", ["Stock, EU", "name:eq:x", "Lager & Büro"])
def test_published_rows(site: TableauSite, tmp_path: Path, name: str):
    """Prevents: the code on the page fails for names with commas, colons or umlauts."""
    _publish(site, name, tmp_path)
    _publish(site, "x", tmp_path)
    (code,) = page("how-to/published-rows.md").whole.blocks("python")
    names: dict[str, Any] = {}
    exec(code, names)
    assert names["published_rows"](name).to_pydict() == {"article": [17, 18], "pieces": [9, 5]}


def _publish(site: TableauSite, name: str, folder: Path) -> None:
    file = folder / "Stock.hyper"
    _stock(file)
    item = TSC.DatasourceItem(site.project("Default", create=False), name=name)
    site.tsc.datasources.publish(item, file, mode=TSC.Server.PublishMode.CreateNew)


def _stock(file: Path) -> None:
    with connect(hyper_process(), file, CreateMode.CREATE_AND_REPLACE) as connection:
        connection.execute_command('CREATE SCHEMA "Extract"')
        connection.execute_command(f"CREATE TABLE {EXTRACT} (article BIGINT, pieces INTEGER)")
        connection.execute_command(f"INSERT INTO {EXTRACT} VALUES (17, 9), (18, 5)")


def test_the_page_shows_the_example():
    # Prevents: the page shows code that no test has run.
    code = EXAMPLE.read_text("utf-8")
    blocks = PAGE.whole.blocks("python")
    assert len(blocks) == 2
    assert [block for block in blocks if block not in code] == []
