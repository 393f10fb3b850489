"""Mistakes in declarations; a location shows one line for each mistake when it loads."""

import keyword
import re
from pathlib import Path

import dagster as dg
import pytest
import yaml
from dagster._core.definitions.utils import DISALLOWED_NAMES
from dagster.components.core.component_tree import ComponentTreeException
from dagster.components.testing import create_defs_folder_sandbox
from jsonschema import Draft202012Validator
from pydantic import ValidationError

from tableau_pipeline.components import FileDrop, PublishedDatasource
from tableau_pipeline.components.asset_names import step_name
from tableau_pipeline.components.loading import load_definitions
from tableau_pipeline.components.published_datasource import PublishedDatasourceScaffolder
from tableau_pipeline.components.yaml_component import DeclarationError
from tableau_pipeline.core.declaration import in_environment
from tableau_pipeline.core.identity import asset_key_of
from tableau_pipeline.core.policies import Diff
from tableau_pipeline.errors import RefusedError
from tableau_pipeline_tests.components.support.projects import Project, declared, scaffolding

HEAD = """type: tableau_pipeline.components.PublishedDatasource
attributes:
  name: Shop
  project: Sales
  tables:
    orders:
"""
# For each case: the text after HEAD, the line of the mistake, and a part of the message.
CASES = {
    "policy": ("      refresh: {dif: {key: [id]}}", 7, "orders.refresh: refresh is one of: replace;"
        " {diff: {key: [...]}}; {append: {cursor: ...}}; {partitions: {column: ...}}; not dif"),
    "policy without keys": ("      refresh: diff", 7, "{partitions: {column: ...}}; not diff"),
    "two policies": ("      refresh: {diff: {key: id}, append: {cursor: id}}", 7,
        "{partitions: {column: ...}}; not several of them"),
    "key of a policy": ("      refresh: {diff: {key: [id], chnges: x}}", 7,
        'refresh.diff.chnges: unknown key: did you mean "changes"? The known keys are key'),
    "unit": ("      refresh: {append: {cursor: id, lookback: 2 fortnights}}", 7,
        '"2 fortnights" is not a lookback: write a whole number'),
    "two triggers": ('      {}\n  trigger: {after: any, cron: "0 6 * * *"}', 8,
        "attributes.trigger: `after` and `cron` are 2 triggers"),
    "trigger": ("      {}\n  trigger: daily", 8,
        "trigger: trigger is one of: {after: any}; {after: all}; {every: 15m}; {cron: "),
    "every": ("      {}\n  trigger: {every: 7m}", 8, "every: 7m does not divide an hour or a day"),
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
        "permissions.0.group: this key is missing"),
    "twice": ("      {}\n  permissions:" + "\n    - {group: A, allow: [Read]}" * 2, 10,
        'permissions.1: group "A" is named before, too'),
    "tag of pipelines": ("      {}\n  tags:\n    - a\n    - tableau-pipeline:b", 8,
        'tags: "tableau-pipeline:b" is reserved: pipelines mark their data sources with it'),
    "quoted tag": ("      {}\n  tags: ['say \"x\"']", 8,
        'say "x" is no tag: Tableau splits a tag with quotes into several'),
    "note": ("      {}\n  certification_note: A", 8, "it needs certify: after_reconcile"),
    "never equal": ("      {}\n  reconcile: never\n  certify: after_reconcile", 9,
        "this needs a comparison, but reconcile is never"),
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
    """Prevents: a mistake in YAML leads to a traceback, or to the words of a JSON schema."""
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
    """Prevents: `dg check yaml` shows an error that does not say what is right."""
    attributes = yaml.safe_load(HEAD + CASES[case][0])["attributes"]
    schema = PublishedDatasource.model().model_json_schema()
    errors = Draft202012Validator(schema).iter_errors(attributes)
    worse = ("given schemas", "was unexpected", "were unexpected", "required property")
    assert [each.message for each in errors if each.message.endswith(worse)] == []


def test_editors_complete_every_form():
    """Prevents: an editor completes nothing below a key that has several forms."""
    schema = PublishedDatasource.model().model_json_schema()
    assert set(schema["properties"]["trigger"]["properties"]) == {
        "after", "every", "cron", "timezone", "upstream", "dbt", "models"
    }  # fmt: skip
    refresh = schema["$defs"]["Table"]["properties"]["refresh"]
    assert set(refresh["properties"]) == {"diff", "append", "partitions"}
    assert FileDrop.model().model_json_schema()["properties"]["folder"]["type"] == "string"


def test_a_key_of_one_column_need_not_be_a_list():
    """Prevents: users must write a key of one column as a list."""
    table = {"refresh": {"diff": {"key": "id"}}}
    declared = PublishedDatasource.from_attributes_dict(
        attributes={"name": "A", "project": "B", "tables": {"t": table}}
    )
    assert declared.tables[0].policy == Diff(("id",))


def mistakes(project: Project) -> str:
    """The message about a project that fails to load."""
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
    """Prevents: a template is refused before it is filled in, or its error names no line."""
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
    """Prevents: a wrong model name shows only at the first refresh, at night."""
    project.write("models.py", MODEL)
    file = project.write("shop/defs.yaml", HEAD + "      model: oders")
    (message,) = mistakes(project).splitlines()
    assert message.startswith(f"{file}:7: attributes.tables.orders.model: there is no asset")
    assert '"oders": did you mean "orders"? The assets of this location are orders.' in message
    assert 'dg.AssetSpec("oders")' in message


@pytest.mark.parametrize("beside", ["models.py", "inner/models.py"])
@pytest.mark.slow
def test_files_that_are_passed_over(project: Project, beside: str):
    """Prevents: Dagster skips files with models, and no message says so."""
    project.write(f"shop/{beside}", MODEL)
    file = project.write("shop/defs.yaml", PLAIN)
    assert mistakes(project).startswith(f"{file}:1: Dagster skips {beside} in this folder")
    project.write("shop/defs.yaml", f"type: dagster.DefsFolderComponent\n---\n{PLAIN}")
    load_definitions(project.package)


@pytest.mark.parametrize(
    ("name", "key", "where"),
    [
        ("Shop", "shop", "Sales"),
        ("Shop", "second", "Sales"),
        ("SHOP", "second", "[sales]"),
        ("shop", "second", '" sales"'),
    ],
)
def test_one_place_twice(project: Project, name: str, key: str, where: str):
    """Prevents: two declarations replace each other's rows in every run, and all runs succeed."""
    project.write("models.py", MODEL)
    text = PLAIN.replace("name: Shop", f"name: {name}\n  key: {key}")
    first = project.write("a/defs.yaml", PLAIN)
    second = project.write("b/defs.yaml", text.replace("project: Sales", f"project: {where}"))
    (message,) = mistakes(project).splitlines()
    assert message.startswith(f"{second}:3: attributes.name: ")
    for part in (f"{first}:3", "another name or project"):
        assert part in message


@pytest.mark.slow
def test_one_name_in_two_projects(project: Project):
    """Prevents: a name is refused because a data source in another project has it."""
    project.write("models.py", MODEL)
    project.write("a/defs.yaml", PLAIN)
    other = PLAIN.replace("name: Shop", "name: Shop\n  key: second")
    project.write("b/defs.yaml", other.replace("project: Sales", "project: Sales/EU"))
    load_definitions(project.package)


def test_a_name_that_a_model_has(project: Project):
    """Prevents: no message says that a model has the same asset key as a data source."""
    project.write("models.py", MODEL + "\n@dg.asset\ndef shop() -> None: ...\n")
    file = project.write("a/defs.yaml", PLAIN)
    assert re.search(rf"^{file}:3: .*models.py:\d+ has too", mistakes(project))


def test_a_key_of_published_files(project: Project):
    """Prevents: `status` takes a declared data source for one that is published from files."""
    project.write("models.py", MODEL)
    file = project.write(
        "a/defs.yaml", PLAIN.replace("name: Shop", "name: Shop\n  key: files/shop")
    )
    (message,) = mistakes(project).splitlines()
    assert message.startswith(f"{file}:4: attributes.key: ")
    assert "choose another key" in message


PREFIXED = 'dg.load_assets_from_current_module(key_prefix="dbt")'


@pytest.mark.parametrize("returned", ["[]", "[orders]", PREFIXED])
def test_an_asset_beside_definitions(
    project: Project, returned: str, caplog: pytest.LogCaptureFixture
):
    """Prevents: Dagster skips the models in a file with definitions, and no message says so."""
    text = f"""
@dg.definitions
def mine() -> dg.Definitions:
    return dg.Definitions(assets={returned})
"""
    file = project.write("models.py", MODEL + text)
    load_definitions(project.package)
    expected = [f"{file}: Dagster skips `orders`"] if returned == "[]" else []
    assert [message.partition(": from a")[0] for message in caplog.messages] == expected


def test_columns_that_no_snapshot_has(
    project: Project, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    """Prevents: only a refresh shows a misspelt key, or a model must run before a merge."""
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
    assert "if the model has changed since, run it before the refresh" in message


def test_a_model_that_was_stored_is_known(project: Project):
    """Prevents: a location fails to load because another location makes the model."""
    project.add_pipeline()
    project.write("shop/defs.yaml", PLAIN)
    project.snapshot("orders", id=[1])
    load_definitions(project.package)


def test_other_errors_keep_their_cause(project: Project):
    """Prevents: an error in a user's Python code is cut down to one line."""
    project.write("models.py", "1 / 0\n")
    with pytest.raises(ZeroDivisionError):
        load_definitions(project.package)


@pytest.mark.parametrize(
    ("folder", "name", "key"),
    [
        ("my_sales", "My Sales", "my_sales"),
        ("My-Sales (2)", "My Sales 2", "my_sales_2"),
        ("2024", "2024", "2024"),
        ("on", "On", "on"),
        ("null", "Null", "null"),
        ("über", "Über", "uber"),
        ("売上 2024", "売上 2024", "2024"),
    ],
)
def test_a_scaffold_of_any_name(tmp_path: Path, folder: str, name: str, key: str):
    """Prevents: a scaffold has an odd key, wrong YAML types, or an invalid model name."""
    target = tmp_path / folder
    PublishedDatasourceScaffolder().scaffold(scaffolding(target, tmp_path))
    text = (target / "defs.yaml").read_text("utf-8")
    declared = PublishedDatasource.from_attributes_dict(
        attributes=list(yaml.safe_load_all(text))[1]["attributes"]
    )
    assert (declared.name, declared.key) == (name, key)
    assert [table.name for table in declared.tables] == [key]
    assert re.search(rf"^  (# )?key: '?{key}'?$", text, re.MULTILINE)
    assert all(model.isidentifier() for model in declared.models)


def test_a_scaffold_without_a_key(tmp_path: Path):
    """Prevents: a scaffold declares the asset key "_"."""
    with pytest.raises(ValueError, match="has no letter from A to Z and no digit"):
        PublishedDatasourceScaffolder().scaffold(scaffolding(tmp_path / "売上", tmp_path))
    assert not (tmp_path / "売上").exists()


# For each case: the changed keys of a declaration, the key of the mistake, and a part of the
# message. The tests of mistakes above check files and lines.
KEYS = [
    ("tables: {orders: {guard: {max_shrink: 50}}, customers: {}}",
        "tables.orders.guard.max_shrink", "less than or equal to 1"),
    ("{tables: {}, relationships: []}", "tables", "at least 1 item"),
    ("tables: {orders: {retain: {column: day, days: 90, as_of: now}}, customers: {}}",
        "tables.orders.retain.as_of", "'run' or 'max'"),
    # The window is longer than the calendar, so no refresh could compute its start.
    ("tables: {orders: {retain: {column: day, days: 999999}}, customers: {}}",
        "tables.orders.retain.days", "less than or equal to 500000"),
    ("tables: {orders: {name: sold}, customers: {}}", "tables.orders.name", "unknown key"),
    ("tables: {orders: {policy: replace}, customers: {}}", "tables.orders.policy", "unknown key"),
    ("on_schema_change: ignore", "on_schema_change", "'additive', 'refuse' or 'publish'"),
    ("relationships: [{from: orders, to: customers, on: {}}]",
        "relationships.0.on", "at least 1 item"),
    ("relationships: []", "relationships", 'exactly one fact table, which no relationship points '
        'to; here: "orders", "customers"'),
    ("timestamps: local", "timestamps",
        "one of: utc, with_time_zone, {zone: Europe/Paris}; not 'local'"),
    ("timestamps: {zone: Europe/Pariss}", "timestamps.zone", '"Europe/Pariss" is not a time zone'),
    ("max_database_version: 1", "max_database_version", "greater than or equal to 2"),
    ("trigger: [{after: any}, {cron: 0 6 * * *}]", "trigger", "trigger is one of: {after: any}"),
    ("freshness: {by: 7}", "freshness.by", "7 is not a time of day: write it as"),
    ("trigger: {dbt: ''}", "trigger.dbt", "at least 1 character"),
    ("trigger: {dbt: run_results.json, models: []}", "trigger.models", "at least 1 item"),
    ("project: A//B", "project", "empty part"),
    ("tables: {orders: {source: {hudi: /lake/orders}}, customers: {}}",
        "tables.orders.source.hudi", "unknown key: The known keys are delta, iceberg"),
    ("tables: {orders: {source: {delta: /a, iceberg: /b}}, customers: {}}",
        "tables.orders.source", "source is one of: {delta: /lake/orders}"),
    ("tables: {orders: {source: /lake/orders}, customers: {}}",
        "tables.orders.source", "s3://lake/orders}; not '/lake/orders'"),
    ("tables: {orders: {source: {delta: lake/orders}}, customers: {}}",
        "tables.orders.source", '"lake/orders" is neither an absolute path'),
    ("tables: {orders: {source: {iceberg: db.orders}}, customers: {}}",
        "tables.orders.source", '"db.orders" is neither an absolute path'),
    ("tables: {orders: {source: {iceberg: {catalog: prod}}}, customers: {}}",
        "tables.orders.source.iceberg.table", "required"),
    ("tables: {orders: {source: {iceberg: {catalog: prod, table: orders}}}, customers: {}}",
        "tables.orders.source.iceberg.table", '"orders" is not a namespace and'),
    ("tables: {orders: {source: {iceberg: {catlog: prod, table: db.orders}}}, customers: {}}",
        "tables.orders.source.iceberg.catlog", 'did you mean "catalog"?'),
    ("tables: {orders: {source: {delta: /a}, refresh: {partitions: {column: a}}}, customers: {}}",
        "tables.orders.refresh", "has no Dagster partitions: use {diff: {key: [...]}}"),
    ("name: 日本", "name", "set `key`"),
    ("{name: CRM, key: orders}", "key", 'the asset key "orders", which a model already has'),
    ("{key: x, tables: {x_extract: {}}, relationships: []}", "key", '"x_extract"'),
]  # fmt: skip


@pytest.mark.parametrize(("changes", "key", "words"), KEYS)
def test_error_names_the_key(changes: str, key: str, words: str):
    """Prevents: a mistake in YAML is ignored, or its error does not name the key."""
    with pytest.raises(ValidationError) as raised:
        declared(**yaml.safe_load(changes))
    found = {".".join(map(str, each["loc"])): each["msg"] for each in raised.value.errors()}
    assert words in found[key]


TWO_TRIGGERS = """type: tableau_pipeline.components.PublishedDatasource
attributes:
  name: Shop
  project: Sales
  tables:
    orders: {}
  trigger: {after: any}
  trigger: {cron: "0 6 * * *"}
"""


def test_several_data_sources_in_one_file():
    """Prevents: a data source or a repeated key is ignored, or an error names a wrong line."""
    first = "".join(line for line in TWO_TRIGGERS.splitlines(keepends=True) if "cron" not in line)
    stock = first.replace("Shop", "Stock")
    with create_defs_folder_sandbox() as sandbox:
        folder = sandbox.defs_folder_path / "shop"
        folder.mkdir()
        (folder / "defs.yaml").write_text(f"{first}\n---\n{stock}", "utf-8")
        with sandbox.build_component_tree() as tree:
            found = tree.get_all_components(of_type=PublishedDatasource)
        assert {each.key for each in found} == {"shop", "stock"}
        (folder / "defs.yaml").write_text(f"{stock}\n---\n{TWO_TRIGGERS}", "utf-8")
        with (
            pytest.raises(ComponentTreeException) as raised,
            sandbox.load_component_and_build_defs(defs_path=folder),
        ):
            pass
    assert "defs.yaml:17: `trigger` is set here and on line 16" in str(raised.value.__cause__)


SHOP = """type: tableau_pipeline.components.PublishedDatasource
attributes:
  name: Shop
  project: Sales
  tables:
    sold: {model: orders}
"""
IMPORTS = """import dagster as dg
from pyspark.sql import DataFrame
"""
ASSET = f"""{IMPORTS}
@dg.asset
def orders() -> DataFrame: ...
"""
RELATED = "  relationships: [{from: sold, to: raw, on: {id: id}}]\n"
STORED = {
    "by its key": ASSET.replace("asset", 'asset(io_manager_key="snapshots")'),
    "by another key": ASSET.replace("asset", 'asset(io_manager_key="mine")'),
    "by one that a function makes": ASSET.replace("asset", "asset(io_manager_def=mine)")
    .replace("@", "@dg.io_manager\ndef mine(): ...\n\n@", 1),
    "by its own code": ASSET.replace("DataFrame:", "dg.MaterializeResult:"),
    "as a graph": """import dagster as dg
from pyspark.sql import DataFrame

@dg.op(out=dg.Out(io_manager_key="snapshots"))
def rows() -> DataFrame: ...

@dg.graph_asset
def orders() -> DataFrame: return rows()
""",
    "with others": """import dagster as dg
from pyspark.sql import DataFrame

@dg.multi_asset(
    outs={
        "orders": dg.AssetOut(io_manager_key="snapshots", dagster_type=DataFrame),
        "other": dg.AssetOut(dagster_type=DataFrame),
    }
)
def several(): ...
""",
    "with others, as specs": """import dagster as dg

@dg.multi_asset(specs=[dg.AssetSpec("orders"), dg.AssetSpec("other")])
def several(): ...
""",
    "elsewhere": 'import dagster as dg\n\norders = dg.AssetSpec("orders")\n',
}  # fmt: skip
MINE = """import dagster as dg

from tableau_pipeline.resources import resources_from_env

@dg.definitions
def mine() -> dg.Definitions:
    return dg.Definitions(resources={"mine": resources_from_env()["snapshots"]})
"""
DEFAULT = MINE.replace('"mine"', '"io_manager"')


@pytest.mark.parametrize("returned", ["DataFrame", "DataFrame | None", "dg.Output[DataFrame]"])
def test_by_another_io_manager(project: Project, returned: str):
    """Prevents: a run fails with Spark's error about a broadcast variable."""
    project.write("models.py", ASSET.replace("DataFrame:", f"{returned}:"))
    project.add_pipeline()
    file = project.write("shop/defs.yaml", SHOP)
    with pytest.raises(DeclarationError) as raised:
        load_definitions(project.package)
    assert str(raised.value) == (
        f'{file}:6: attributes.tables.sold.model: "Shop" publishes the model "orders". Its asset '
        "has Dagster's own IO manager, which stores no snapshots: set "
        'io_manager_key="snapshots" in its @dg.asset'
    )


@pytest.mark.parametrize(
    "definition",
    [
        'dg.DynamicPartitionsDefinition(name="shops")',
        'dg.MultiPartitionsDefinition({"day": dg.DailyPartitionsDefinition("2026-01-01"), '
        '"shop": dg.StaticPartitionsDefinition(["a"])})',
    ],
)
def test_partitions_that_snapshots_do_not_have(project: Project, definition: str):
    """Prevents: a refusal that was certain at the start comes after hours of Spark."""
    kind = definition.split("(")[0].removeprefix("dg.")
    key = f'asset(io_manager_key="snapshots", partitions_def={definition})'
    project.write("models.py", ASSET.replace("asset", key))
    project.add_pipeline()
    file = project.write("shop/defs.yaml", SHOP)
    with pytest.raises(DeclarationError) as raised:
        load_definitions(project.package)
    assert str(raised.value) == (
        f'{file}:6: attributes.tables.sold.model: "Shop" publishes the model "orders"; its '
        f"partitions are those of a {kind}, which snapshots do not support: partition it by time "
        "windows or by a fixed list of keys, and keep all else in columns; or do not partition it"
    )


@pytest.mark.parametrize("models", STORED.values(), ids=STORED)
def test_as_snapshots(project: Project, models: str):
    """Prevents: a location fails to load although its models store snapshots."""
    project.write("models.py", models)
    project.write("mine.py", MINE)
    project.add_pipeline()
    project.write("shop/defs.yaml", SHOP)
    load_definitions(project.package)


def test_by_default(project: Project):
    """Prevents: a location fails to load although its default IO manager stores snapshots."""
    project.write("models.py", ASSET)
    project.write("default.py", DEFAULT)
    project.add_pipeline()
    project.write("shop/defs.yaml", SHOP)
    load_definitions(project.package)


def test_kinds_of_models(project: Project):
    """Prevents: a project's models show no kinds in the lineage, or not the declared kinds."""
    own = ASSET.replace("asset", 'asset(kinds={"csv"})').replace("orders", "raw_orders")
    project.write("models.py", ASSET + own.removeprefix(IMPORTS))
    project.write("default.py", DEFAULT)
    project.add_pipeline()
    project.write("shop/defs.yaml", SHOP + "    raw: {model: raw_orders}\n" + RELATED)
    specs = load_definitions(project.package).resolve_all_asset_specs()
    kinds = {spec.key.to_user_string(): spec.kinds for spec in specs}
    assert (kinds["orders"], kinds["raw_orders"]) == ({"pyspark", "parquet"}, {"csv"})


@pytest.mark.slow
def test_any_name_of_a_data_source(project: Project):
    """Prevents: a data source named like a step, or like a Python keyword, stops the location."""
    project.add_pipeline(
        audit={"cron": "0 5 * * *"},
        lineage={"openlineage": {"transport": {"type": "console"}}},
        notify={"urls": ["json://localhost"]},
    )
    ours = load_definitions(project.package)
    jobs = [job for job in ours.jobs or () if isinstance(job, dg.JobDefinition)]
    steps = [node.name for job in jobs for node in job.nodes]
    words = {*DISALLOWED_NAMES, *keyword.kwlist, *keyword.softkwlist} - {"_"}
    others = {*steps, *(job.name for job in jobs), "hubspot", "at_fixed_times"}
    names = sorted({*words, *others}, key=str.casefold)
    first = {name.casefold(): name for name in names}.values()
    for number, name in enumerate(first):
        text = f"name: {name!r}\n  project: Sales\n  tables: {{orders: {{}}}}\n"
        text += "  trigger: {cron: 0 6 * * *}\n"
        head = "type: tableau_pipeline.components.PublishedDatasource\nattributes:\n  "
        project.write(f"d{number}/defs.yaml", head + text)
    project.write("models.py", MODEL + HUBSPOT)
    definitions = load_definitions(project.package)
    dg.Definitions.validate_loadable(definitions)
    keys = definitions.resolve_asset_graph().get_all_asset_keys()
    assert {dg.AssetKey(asset_key_of(name)) for name in first} <= keys


def test_keys_that_are_almost_alike():
    """Prevents: two data sources with similar keys share one step."""
    assert step_name("a/b") != step_name("a__b")


HUBSPOT = """

@dg.multi_asset(name="hubspot", specs=[dg.AssetSpec("contacts"), dg.AssetSpec("deals")])
def load(): ...
"""


BAD = [
    ("name: 'Shop\\u000b'", "name", "U+000B"),
    ('project: "Sa\\u0007les"', "project", "U+0007"),
    ('folders: {"Mon\\u001aey": [id]}', "folders", "U+001A"),
    ('calculations: {"Ma\\ufffergin": {formula: "1"}}', "calculations", "U+FFFE"),
    ('tags: ["a\\u0000b"]', "tags", "U+0000"),
    (f"key: {'k' * 190}", "key", "has more than 200 characters: set a shorter `key`"),
]


@pytest.mark.parametrize(("line", "at", "problem"), BAD, ids=[each[1:][0] for each in BAD])
def test_what_tableau_cannot_hold(line: str, at: str, problem: str):
    """Prevents: a refresh creates a data source that it can never tag or describe."""
    with pytest.raises(ValidationError) as raised:
        declared(**yaml.safe_load(line.replace("'", '"')))
    assert str(raised.value.errors()[0]["loc"][0]) == at
    assert problem in str(raised.value)


def test_a_root_that_makes_a_key_too_long():
    """Prevents: in an environment, a refresh creates a data source that it cannot tag."""
    made = declared(key="k" * 150)
    with pytest.raises(RefusedError, match="set a shorter `key`"):
        in_environment(made, "r" * 60)
    assert in_environment(made, "r" * 20).tag
