"""Code on the pages that no other test runs: it loads, or it runs."""

import inspect
import json
import re
from typing import Any

import pytest
import yaml

from tableau_pipeline import scripting
from tableau_pipeline.components import FileDrop, PublishedDatasource, TableauPipeline
from tableau_pipeline.components.publish_file import PublishFileConfig
from tableau_pipeline.components.published_datasource import RefreshConfig
from tableau_pipeline_tests.conftest import ROOT
from tableau_pipeline_tests.docs.page import Page, all_pages, loaded, page

_OURS = "type: tableau_pipeline.components.PublishedDatasource"
# Their blocks belong together, or to an example: other tests run them.
_RUN_ELSEWHERE = {"docs/reference/hyper.md", "docs/how-to/custom-batches.md"}


def _blocks(language: str) -> list[Any]:
    return [
        pytest.param(each, block, id=f"{each.path.relative_to(ROOT)} {number}")
        for each in all_pages()
        for number, block in enumerate(each.whole.blocks(language), start=1)
    ]


@pytest.mark.parametrize(("where", "block"), _blocks("yaml"))
def test_yaml(where: Page, block: str):
    """Prevents: an error for the first thing that a newcomer copies."""
    if _OURS in block:
        assert loaded(block).name
    # Of what comes from the environment, only URLs of notify are checked.
    for document in yaml.safe_load_all(re.sub(r"{{ env.\w+ }}", "json://localhost", block)):
        if "type" not in document:
            keys = document.get("attributes", document)
            assert keys.keys() <= {
                *PublishedDatasource.model().model_json_schema()["properties"],
                "ops",
            }
        elif document["type"].endswith(".FileDrop"):
            assert FileDrop(**document["attributes"])
        elif document["type"].endswith(".TableauPipeline"):
            assert TableauPipeline(**document["attributes"])


def test_models_of_the_declaration():
    """Prevents: a declaration whose comments on its models are wrong."""
    (text,) = page("how-to/models.md").sections["Declare the data source"].blocks("yaml")
    assert loaded(text).models == ("orders", "crm/customers")


@pytest.mark.parametrize(("where", "block"), _blocks("python"))
def test_python(where: Page, block: str):
    """Prevents: a model, or an import, that fails where it is copied to."""
    compile(block, str(where.path), "exec")
    if where.path.relative_to(ROOT).as_posix() not in _RUN_ELSEWHERE and "refresh(" not in block:
        exec(block, {"__name__": "documented"})


def test_python_without_yaml():
    """Prevents: keys in Python that are not those of YAML."""
    names: dict[str, Any] = {}
    (block,) = page("how-to/python.md").sections["Without YAML"].blocks("python")
    exec(block, names)
    assert names["orders"].models == ("orders",)


def test_python_without_dagster():
    """Prevents: a call of `refresh` that lacks a parameter, or has one that there is not."""
    (block,) = page("how-to/python.md").sections["Without Dagster"].blocks("python")
    names = {name: getattr(scripting, name) for name in scripting.__all__}
    calls: list[inspect.BoundArguments] = []
    signature = inspect.signature(scripting.refresh)
    names["refresh"] = lambda *given, **named: calls.append(signature.bind(*given, **named))
    exec(block, {**names, "data": ROOT})
    (call,) = calls
    assert call.arguments["declaration"].models == ("orders",)
    documented = page("reference/scripting.md").sections["refresh"].rows()
    assert [row["parameter"] for row in documented] == list(signature.parameters)


def test_run_config():
    """Prevents: an option in the launchpad that does not exist."""
    (text,) = page("reference/yaml.md").sections["Run config of a refresh"].blocks("yaml")
    assert all(str(each) in text for each in scripting.Accept)
    config: dict[str, Any] = yaml.safe_load(text)["ops"]["nyc_flights"]["config"]
    assert RefreshConfig(**config).options().dry_run
    assert config.keys() == RefreshConfig.model_fields.keys()


def test_database_config():
    """Prevents: a config of `publish_file` that the launchpad refuses."""
    (text,) = page("how-to/files.md").whole.blocks("json")
    assert PublishFileConfig(**json.loads(text)).is_database
