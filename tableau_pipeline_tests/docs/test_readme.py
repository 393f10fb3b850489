import re
from typing import Any

import pytest
import yaml
from dagster.components.testing import create_defs_folder_sandbox

from tableau_pipeline.components import PublishedDatasource
from tableau_pipeline.components.published_datasource.assets import RefreshConfig
from tableau_pipeline.refresh.plan.decide import Accept
from tableau_pipeline_tests.conftest import ROOT, Story
from tableau_pipeline_tests.docs.page import Page

README = Page(ROOT / "README.md")


def test_demo_table(story: Story):
    # Prevents: a first page whose figures nobody can reproduce.
    told = re.findall(r"^(.*?)  +(NYC \w+)  +(.*?)  +(.*)$", README.sections["Try it"].text, re.M)
    figures = [
        (line.chapter.title, line.datasource, line.decision, line.rows, line.deleted, line.inserted)
        for line in story.lines
    ]
    assert [(*row[:3], *_numbers(row[3])) for row in told] == figures


def _numbers(text: str) -> list[int]:
    return [int(number.replace(",", "")) for number in text.split()[:3]]


def test_declaration_loads():
    # Prevents: an error for the first thing that a newcomer copies.
    (text,) = README.sections["Your data source"].blocks("yaml")
    with create_defs_folder_sandbox() as project:
        folder = project.defs_folder_path / "shop"
        folder.mkdir()
        (folder / "defs.yaml").write_text(text, "utf-8")
        with project.build_component_tree() as tree:
            (component,) = tree.get_all_components(of_type=PublishedDatasource)
    assert component.declaration.models == ("orders", "crm/customers")


def test_run_config_is_valid():
    # Prevents: an option in the launchpad that does not exist.
    (text,) = README.sections["What a refresh does"].blocks("yaml")
    assert all(str(each) in text for each in Accept)
    config: dict[str, Any] = yaml.safe_load(text)["ops"]["nyc_flights"]["config"]
    assert RefreshConfig(**config).options().dry_run
    assert config.keys() == RefreshConfig.model_fields.keys()


def test_python_runs():
    # Prevents: a model, or a declaration, that fails where it is copied to.
    names: dict[str, Any] = {}
    for heading in ("Your models", "Python without YAML"):
        for block in README.sections[heading].blocks("python"):
            exec(block, names)
    assert names["orders"].declaration.models == ("orders",)


@pytest.mark.parametrize("link", re.findall(r"\]\((\S+?)\)", README.path.read_text("utf-8")))
def test_links(link: str):
    # Prevents: a dead end.
    file, _, anchor = link.partition("#")
    headings = Page(ROOT / file).sections
    assert not anchor or anchor in {name.lower().replace(" ", "-") for name in headings}
