"""The component that brings resources, triggers and jobs to a project."""

from pathlib import Path

import dagster as dg
import pytest
import yaml

from tableau_pipeline.components import TableauPipeline
from tableau_pipeline.components.loading import load_definitions
from tableau_pipeline.components.pipeline import TableauPipelineScaffolder
from tableau_pipeline.components.yaml_component import DeclarationError
from tableau_pipeline_tests.components.support.projects import Project, scaffolding
from tableau_pipeline_tests.conftest import ROOT

SHOP = """type: tableau_pipeline.components.PublishedDatasource
attributes:
  name: Shop
  project: Sales
  tables:
    sold: {model: orders}
  trigger: {cron: "0 6 * * *"}
"""
MODEL = 'import dagster as dg\n\norders = dg.AssetSpec("orders")\n'
OWN = """import dagster as dg

from tableau_pipeline.resources import SparkResource

@dg.definitions
def mine() -> dg.Definitions:
    return dg.Definitions(resources={"spark": SparkResource(), "io_manager": dg.mem_io_manager})
"""
IN_PYTHON = """import dagster as dg

from tableau_pipeline.components import PublishedDatasource

@dg.component_instance
def shop(context: dg.ComponentLoadContext){annotation}:
    return PublishedDatasource.from_attributes_dict(attributes={attributes})
"""


def loaded(project: Project) -> dg.Definitions:
    """Load a project as the definitions.py of create-dagster does, and validate it."""
    definitions = dg.load_from_defs_folder(path_within_project=project.package)
    dg.Definitions.validate_loadable(definitions)
    return definitions


@pytest.fixture
def shop(project: Project) -> Project:
    """A project with one data source."""
    project.write("models.py", MODEL)
    project.write("shop/defs.yaml", SHOP)
    return project


def test_one_declaration_is_enough(shop: Project):
    """Prevents: a project lacks a resource, a sensor or a job, or audits at the wrong time."""
    shop.add_pipeline(audit={"cron": "30 5 * * SUN", "timezone": "Europe/Paris"}, keep_days=30)
    definitions = loaded(shop)
    assert set(definitions.resources or {}) == {"spark", "hyper", "tableau", "snapshots"}
    assert (definitions.resources or {})["snapshots"].keep_days == 30
    assert [each.name for each in definitions.sensors or ()] == [
        "published_files",
        "refresh_after_models",
    ]
    assert {
        each.name: (each.job_name, each.cron_schedule, each.execution_timezone)
        for each in definitions.schedules or ()
        if isinstance(each, dg.ScheduleDefinition)
    } == {
        "audit_schedule": ("audit", "30 5 * * SUN", "Europe/Paris"),
        "refresh_shop": ("tableau_at_fixed_times", "0 6 * * *", "UTC"),
    }
    assert definitions.resolve_job_def("publish_file")
    assert definitions.resolve_job_def("audit")
    assert definitions.executor is None


@pytest.mark.filterwarnings("ignore::dagster.BetaWarning")
def test_git_shows_the_declaration(shop: Project):
    """Prevents: a link in the web UI leads to this package, and not to the owner's YAML file."""
    definitions = load_definitions(shop.package)
    anchor = dg.AnchorBasedFilePathMapping(shop.package, "src/shop")
    linked = dg.link_code_references_to_git(
        list(definitions.assets or ()), "https://github.com/me/shop", "main", anchor
    )
    found = {
        key.to_user_string(): reference.url
        for asset in linked
        if isinstance(asset, dg.AssetsDefinition)
        for key, metadata in asset.metadata_by_key.items()
        for reference in metadata["dagster/code_references"].code_references
    }
    place = "https://github.com/me/shop/tree/main/src/shop/defs/shop/defs.yaml#L1"
    assert found == {"shop": place, "shop_extract": place}


def test_models_that_its_schedule_cannot_run(shop: Project):
    """Prevents: Dagster reports a mistake in a trigger as a job that it cannot resolve."""
    file = shop.write("shop/defs.yaml", SHOP.replace('*"}', '*", upstream: true}'))
    shop.add_pipeline()
    with pytest.raises(DeclarationError) as raised:
        load_definitions(shop.package)
    assert str(raised.value) == (
        f'{file}:7: attributes.trigger.upstream: "Shop" cannot run its models first: no asset of '
        'this code location makes the model "orders". Let it follow them: trigger: {after: any}'
    )


@pytest.mark.parametrize(
    ("resources", "expected"),
    [(["hyper", "tableau", "snapshots"], {"hyper", "tableau", "snapshots"}), (False, set())],
)
def test_resources_of_the_project(shop: Project, resources: object, expected: set[str]):
    """Prevents: a project fails to load because it has its own resource `spark`."""
    shop.write("own.py", OWN)
    shop.add_pipeline(resources=resources)
    definitions = dg.load_from_defs_folder(path_within_project=shop.package)
    assert set(definitions.resources or {}) == {"spark", "io_manager"} | expected


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({"resources": ["spork"]}, 'there is no resource "spork": did you mean "spark"?'),
        ({"resources": False, "keep_days": 3}, "which `resources` leaves out"),
        ({"audit": {"cron": "daily"}}, '"daily" is not a cron schedule'),
    ],
)
def test_a_mistake_is_one_line(project: Project, attributes: dict, message: str):
    """Prevents: the component ignores a wrong setting without a message."""
    file = project.add_pipeline(**attributes)
    with pytest.raises(DeclarationError) as raised:
        load_definitions(project.package)
    assert str(raised.value).startswith(f"{file}:")
    assert message in str(raised.value)
    assert len(str(raised.value).splitlines()) == 1


@pytest.mark.parametrize("annotation", ["", " -> dg.Component", " -> 'PublishedDatasource'"])
def test_a_data_source_that_nothing_finds(project: Project, annotation: str):
    """Prevents: a declared trigger never fires because Dagster does not list the component."""
    attributes = yaml.safe_load(SHOP)["attributes"]
    project.write("models.py", MODEL)
    file = project.write("shop.py", IN_PYTHON.format(annotation=annotation, attributes=attributes))
    project.add_pipeline()
    with pytest.raises(
        DeclarationError, match=r"write `-> PublishedDatasource` after shop\("
    ) as no:
        load_definitions(project.package)
    assert str(no.value).startswith(f"{file}:5: ")


def test_a_data_source_in_python(project: Project):
    """Prevents: a trigger in Python never fires, or two declarations share the same name."""
    attributes = yaml.safe_load(SHOP)["attributes"]
    annotated = IN_PYTHON.format(annotation=" -> PublishedDatasource", attributes=attributes)
    project.write("models.py", MODEL)
    project.write("shop.py", annotated)
    project.add_pipeline()
    assert len(list(loaded(project).schedules or ())) == 1
    file = project.write("shop/defs.yaml", SHOP.replace("Shop", "Shop\n  key: second"))
    message = rf'^{file}:3: .*"second", is declared in Python, too, with the key "shop"'
    with pytest.raises(DeclarationError, match=message):
        load_definitions(project.package)


def test_the_scaffold(tmp_path: Path):
    """Prevents: a scaffold overwrites settings of a project, or omits dagster.yaml."""
    request = scaffolding(tmp_path / "src" / "tableau", tmp_path)
    ignored = tmp_path / ".gitignore"
    ignored.write_text("*.pyc\n.env", "utf-8")
    TableauPipelineScaffolder().scaffold(request)
    # Rows and Dagster's runs do not belong in a repository.
    assert ignored.read_text("utf-8") == "*.pyc\n.env\ndagster_home/\ndata/\n"
    text = (tmp_path / "src" / "tableau" / "defs.yaml").read_text("utf-8")
    declared = TableauPipeline.from_attributes_dict(attributes=yaml.safe_load(text)["attributes"])
    assert declared.audit
    settings = (tmp_path / "dagster_home" / "dagster.yaml").read_text("utf-8")
    assert settings == (ROOT / "dagster_home" / "dagster.yaml").read_text("utf-8")
    env = tmp_path / ".env"
    assert f"DAGSTER_HOME=${{DAGSTER_HOME:-{tmp_path}/dagster_home}}" in env.read_text("utf-8")
    assert "docs/" not in env.read_text("utf-8"), "an installed package has no pages"
    with pytest.raises(ValueError, match="a project needs this component once"):
        TableauPipelineScaffolder().scaffold(request)
    (tmp_path / "src" / "tableau" / "defs.yaml").unlink()
    env.write_text("TABLEAU_SITE=sales\n", "utf-8")
    TableauPipelineScaffolder().scaffold(request)
    assert env.read_text("utf-8") == "TABLEAU_SITE=sales\n"
