"""Mistakes in declarations, as a location tells them when it is loaded: one line for each."""

import re
from pathlib import Path

import dagster as dg
import pytest
import yaml
from jsonschema import Draft202012Validator

from tableau_pipeline.components import FileDrop, PublishedDatasource
from tableau_pipeline.components.loading import load_definitions
from tableau_pipeline.components.published_datasource import (
    PublishedDatasourceScaffolder,
)
from tableau_pipeline.components.yaml_component import DeclarationError
from tableau_pipeline.core.declaration import Diff
from tableau_pipeline_tests.components.support.projects import Project, project

__all__ = ["project"]

HEAD = """type: tableau_pipeline.components.PublishedDatasource
attributes:
  name: Shop
  project: Sales
  tables:
    orders:
"""
# What follows HEAD, the line of the mistake, and what is said of it.
CASES = {
    "policy": ("      refresh: {dif: {key: [id]}}", 7, "orders.refresh: refresh is one of: replace;"
        " {diff: {key: [...]}}; {append: {cursor: ...}}; {partitions: {column: ...}}; not dif"),
    "two policies": ("      refresh: {diff: {key: id}, append: {cursor: id}}", 7,
        "{partitions: {column: ...}}; not several of them"),
    "key of a policy": ("      refresh: {diff: {key: [id], chnges: x}}", 7,
        'refresh.diff.chnges: unknown key: did you mean "changes"? The known keys are key'),
    "unit": ("      refresh: {append: {cursor: id, lookback: 2 fortnights}}", 7,
        '"2 fortnights" is not a lookback: write a whole number'),
    "two triggers": ('      {}\n  trigger: {after: any, cron: "0 6 * * *"}', 8,
        "attributes.trigger: `after` and `cron` are 2 triggers"),
    "trigger": ("      {}\n  trigger: daily", 8,
        'trigger: trigger is one of: {after: any}; {after: all}; {cron: "0 6 * * *", timezone:'),
    "cron": ("      {}\n  trigger: {cron: every day}", 8,
        '"every day" is not a cron schedule: write minute, hour, day of the month'),
    "zone": ('      {}\n  trigger:\n    cron: "0 6 * * *"\n    timezone: Europe/Pariss', 10,
        '"Europe/Pariss" is not a time zone: did you mean "Europe/Paris"?'),
    "relationship": ("      {}\n  relationships:\n    - from: orders\n      to: ordres\n"
        "      on: {a: b}", 10,
        '"ordres" is not a table of this data source: did you mean "orders"? Its tables are'),
    "relationship without a side": ("      {}\n  relationships:\n    - {from: orders, on: {a: b}}",
        9, "to: this key is missing"),
    "capability": ("      {}\n  permissions:\n    - {group: A, allow: [ExportData]}", 9,
        "permissions.0.allow.0: Input should be 'Read', 'Connect', 'ExportXml'"),
    "nobody": ("      {}\n  permissions:\n    - {allow: [Read]}", 9,
        "name either a group or a user: {group: Analysts, allow: [Read]}"),
    "both": ("      {}\n  permissions:\n    - group: A\n      allow: [Read]\n      deny: [Read]",
        11, "deny: Read is in `allow`, too"),
    "twice": ("      {}\n  permissions:\n    - group: A\n    - group: A", 10,
        'permissions.1: group "A" is named before, too'),
    "tag of pipelines": ("      {}\n  tags:\n    - a\n    - tableau-pipeline:b", 8,
        'tags: "tableau-pipeline:b" is a tag by which pipelines find what is theirs'),
    "note": ("      {}\n  certification_note: A", 8, "it needs certify: after_reconcile"),
    "never equal": ("      {}\n  reconcile: never\n  certify: after_reconcile", 9,
        "with reconcile: never, nothing is ever found equal"),
    "key": ("      {}\n  projct: A", 8, 'unknown key: did you mean "project"? The known keys'),
    "former key": ("      {}\n  rebase: 2", 8, 'unknown key: did you mean "republish"?'),
    "former key of a table": ("      columns: {id: int}", 7, 'did you mean "contract"?'),
    "no table": ("", 6, "attributes.tables.orders: this key takes nested keys"),
    "project": ("      {}\n  create_project: 7", 8, "valid boolean"),
    "indent": ("      {}\n    - x", 8, "this is not YAML: a wrong indent"),
    "tab": ("\t{}", 7, "this is not YAML: YAML allows neither a tab"),
    "colon": ("      {}\n  key: a: b", 8, "this is not YAML: a second colon"),
}  # fmt: skip


@pytest.mark.parametrize(("text", "line", "expected"), CASES.values(), ids=CASES)
def test_one_line_for_each(project: Project, text: str, line: int, expected: str):
    """Prevents: a page of a traceback, or a schema's opinion, where a word would do."""
    file = project.write("shop/defs.yaml", HEAD + text)
    with pytest.raises(DeclarationError) as raised:
        load_definitions(project.package)
    (message,) = str(raised.value).splitlines()
    assert message.startswith(f"{file}:{line}: ")
    assert expected in message
    assert "True" not in message
    assert raised.value.__cause__ is None


@pytest.mark.parametrize("case", sorted(CASES.keys() - {"indent", "tab", "colon"}))
def test_no_schema_tells_less(case: str):
    """Prevents: `dg check yaml` stops at a text that does not say what is right."""
    attributes = yaml.safe_load(HEAD + CASES[case][0])["attributes"]
    schema = PublishedDatasource.model().model_json_schema()
    errors = Draft202012Validator(schema).iter_errors(attributes)
    worse = ("given schemas", "was unexpected", "were unexpected", "required property")
    assert [each.message for each in errors if each.message.endswith(worse)] == []


def test_editors_complete_every_form():
    """Prevents: no completion below a key that has several forms."""
    schema = PublishedDatasource.model().model_json_schema()
    assert set(schema["properties"]["trigger"]["properties"]) == {
        "after", "cron", "timezone", "upstream", "dbt", "models"
    }  # fmt: skip
    refresh = schema["$defs"]["Table"]["properties"]["refresh"]
    assert set(refresh["properties"]) == {"diff", "append", "partitions"}
    assert FileDrop.model().model_json_schema()["properties"]["folder"]["type"] == "string"


def test_a_key_of_one_column_need_not_be_a_list():
    """Prevents: an error for what can mean one thing only."""
    table = {"refresh": {"diff": {"key": "id"}}}
    declared = PublishedDatasource.from_attributes_dict(
        attributes={"name": "A", "project": "B", "tables": {"t": table}}
    )
    assert declared.tables[0].policy == Diff(("id",))


def mistakes(project: Project) -> str:
    """What is told of a project that does not load."""
    with pytest.raises(DeclarationError) as raised:
        load_definitions(project.package)
    return str(raised.value)


MODEL = """import dagster as dg

@dg.asset
def orders() -> None: ...
"""
PLAIN = HEAD.replace("orders:", "orders: {}")


def test_templates_are_filled_in_before_anything_is_checked(
    project: Project, monkeypatch: pytest.MonkeyPatch
):
    """Prevents: a value of the environment that is refused unread, or that is wrong somewhere."""
    append = "      refresh: {append: {cursor: id, lookback: '{{ env.LOOKBACK }}'}}"
    file = project.write("shop/defs.yaml", HEAD + append)
    project.write("models.py", MODEL)
    monkeypatch.setenv("LOOKBACK", "2 fortnights")
    where = f"{file}:7: attributes.tables.orders.refresh.append.lookback: "
    assert mistakes(project).startswith(f'{where}"2 fortnights" is not a lookback')
    monkeypatch.setenv("LOOKBACK", "2 days")
    load_definitions(project.package)


@pytest.mark.slow
def test_an_unknown_model(project: Project):
    """Prevents: a wrong name that shows at the first refresh, at night."""
    project.write("models.py", MODEL)
    file = project.write("shop/defs.yaml", HEAD + "      model: oders")
    (message,) = mistakes(project).splitlines()
    assert message.startswith(f"{file}:7: attributes.tables.orders.model: there is no asset")
    assert '"oders": did you mean "orders"? The assets of this location are orders.' in message
    assert 'dg.AssetSpec("oders")' in message


@pytest.mark.slow
def test_a_model_of_another_location(project: Project):
    """Prevents: a model that is made elsewhere cannot be named."""
    stub = 'import dagster as dg\n\norders = dg.AssetSpec("orders")\n'
    project.write("models.py", stub)
    project.write("shop/defs.yaml", PLAIN)
    load_definitions(project.package)


@pytest.mark.parametrize("beside", ["models.py", "inner/models.py"])
@pytest.mark.slow
def test_files_that_are_passed_over(project: Project, beside: str):
    """Prevents: models that are nowhere to be seen, silently."""
    project.write(f"shop/{beside}", MODEL)
    file = project.write("shop/defs.yaml", PLAIN)
    assert mistakes(project).startswith(f"{file}:1: Dagster skips {beside} beside this file")
    project.write("shop/defs.yaml", f"type: dagster.DefsFolderComponent\n---\n{PLAIN}")
    load_definitions(project.package)


@pytest.mark.slow
def test_one_name_twice(project: Project):
    """Prevents: `Duplicate asset key`, of which nobody knows where it stands."""
    project.write("models.py", MODEL)
    first = project.write("a/defs.yaml", PLAIN)
    second = project.write("b/defs.yaml", PLAIN)
    (message,) = mistakes(project).splitlines()
    assert message.startswith(f"{second}:3: attributes.name: ")
    assert f"is declared in {first}:3" in message
    # A key of its own would not help.
    assert message.endswith("Give one of them another name or project")


@pytest.mark.parametrize(
    ("name", "where"),
    [("Shop", "Sales"), ("SHOP", "[sales]"), ("shop", '" sales"')],
)
def test_one_place_twice(project: Project, name: str, where: str):
    """Prevents: two declarations that replace each other's rows in every run, both green."""
    project.write("models.py", MODEL)
    text = PLAIN.replace("name: Shop", f"name: {name}\n  key: second").replace(
        "project: Sales", f"project: {where}"
    )
    first = project.write("a/defs.yaml", PLAIN)
    second = project.write("b/defs.yaml", text)
    (message,) = mistakes(project).splitlines()
    assert message.startswith(f"{second}:3: attributes.name: ")
    for part in (f"{first}:3", '"shop"', '"second"', "another name or project"):
        assert part in message


@pytest.mark.slow
def test_one_name_in_two_projects(project: Project):
    """Prevents: a name that is free in another project cannot be declared there."""
    project.write("models.py", MODEL)
    project.write("a/defs.yaml", PLAIN)
    other = PLAIN.replace("name: Shop", "name: Shop\n  key: second")
    project.write("b/defs.yaml", other.replace("project: Sales", "project: Sales/EU"))
    load_definitions(project.package)


def test_a_name_that_a_model_has(project: Project):
    """Prevents: the same for a model that is not of this data source."""
    project.write("models.py", MODEL + "\n@dg.asset\ndef shop() -> None: ...\n")
    file = project.write("a/defs.yaml", PLAIN)
    assert re.search(rf"^{file}:3: .*models.py:\d+ has too", mistakes(project))


PREFIXED = 'dg.load_assets_from_current_module(key_prefix="dbt")'


@pytest.mark.parametrize("returned", ["[]", "[orders]", PREFIXED])
def test_an_asset_beside_definitions(
    project: Project, returned: str, caplog: pytest.LogCaptureFixture
):
    """Prevents: models of dbt that are nowhere to be seen, because their file has a resource."""
    text = f"""
@dg.definitions
def mine() -> dg.Definitions:
    return dg.Definitions(assets={returned})
"""
    file = project.write("models.py", MODEL + text)
    load_definitions(project.package)
    expected = [f"{file}: Dagster passes over `orders`"] if returned == "[]" else []
    assert [message.partition(": of a")[0] for message in caplog.messages] == expected


def test_columns_that_no_snapshot_has(
    project: Project, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    """Prevents: a misspelt key that shows at the first refresh; or a change of a model and its
    contract that cannot be merged, because the model has not run yet."""
    project.write("models.py", MODEL)
    project.add_pipeline()
    file = project.write("shop/defs.yaml", HEAD + "      refresh: {diff: {key: [idd]}}")
    project.snapshot("orders", id=[1, 2])
    load_definitions(project.package)
    assert caplog.messages == []
    monkeypatch.setenv("DAGSTER_IS_DEFS_VALIDATION_CLI", "1")
    load_definitions(project.package)
    (message,) = caplog.messages
    assert message.startswith(f"{file}:6: attributes.tables.orders: ")
    assert 'diff: key names "idd", but the model has the columns id' in message
    assert "if it has changed since, run it before the refresh" in message


def test_a_model_that_was_stored_is_known(project: Project):
    """Prevents: a location that does not load because another one makes the model."""
    project.add_pipeline()
    project.write("shop/defs.yaml", PLAIN)
    project.snapshot("orders", id=[1])
    load_definitions(project.package)


def test_other_errors_keep_their_cause(project: Project):
    """Prevents: an error in somebody's Python that is cut down to a line."""
    project.write("models.py", "1 / 0\n")
    with pytest.raises(ZeroDivisionError):
        load_definitions(project.package)


@pytest.mark.parametrize("folder", ["my_sales", "My-Sales (2)"])
def test_a_scaffold_of_any_name(tmp_path: Path, folder: str):
    """Prevents: a key that nobody can guess, or a model whose name Python does not allow."""
    target = tmp_path / folder
    request = dg.ScaffoldRequest(
        type_name="x",
        target_path=target,
        scaffold_format="yaml",
        project_root=tmp_path,
        params=None,
    )
    PublishedDatasourceScaffolder().scaffold(request)
    text = (target / "defs.yaml").read_text("utf-8")
    declared = PublishedDatasource.from_attributes_dict(
        attributes=list(yaml.safe_load_all(text))[1]["attributes"]
    )
    assert f"# key: {declared.key}\n" in text
    assert all(model.isidentifier() for model in declared.models)
