"""The parts of docs/increments.md that can be put to the test."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from dagster.components.testing import create_defs_folder_sandbox

from tableau_pipeline.components import PublishedDatasource
from tableau_pipeline.core.declaration import Declaration
from tableau_pipeline_tests.conftest import ROOT


@dataclass(frozen=True)
class Section:
    """What stands below a heading, up to the next one."""

    text: str

    def blocks(self, language: str) -> list[str]:
        """The fenced blocks in a language."""
        return re.findall(rf"^```{language}\n(.*?)^```$", self.text, re.MULTILINE | re.DOTALL)

    def rows(self) -> list[dict[str, str]]:
        """The rows of its tables, by heading; `code` without its ticks."""
        found = []
        for table in re.findall(r"(?:^\|.*\|\n)+", self.text, re.MULTILINE):
            head, _, *rows = (_cells(line) for line in table.splitlines())
            found += [dict(zip(head, row, strict=True)) for row in rows]
        return found

    def batches(self) -> dict[int, str]:
        """The blocks of JSON that are said to be the batch of a refresh, by its number."""
        said = re.findall(
            r"batch of refresh (\d+):\n\n```json\n(.*?)^```$", self.text, re.MULTILINE | re.DOTALL
        )
        return {int(number): text for number, text in said}


@dataclass(frozen=True)
class Page:
    """A page of the documentation."""

    path: Path

    @cached_property
    def sections(self) -> Mapping[str, Section]:
        """By heading, without its number."""
        _, *parts = re.split(r"^##+ (?:\d+\. )?(.*)\n", self.path.read_text("utf-8"), flags=re.M)
        return dict(zip(parts[::2], map(Section, parts[1::2]), strict=True))


PAGE = Page(ROOT / "docs" / "increments.md")


def declared(heading: str) -> Declaration:
    """What a section declares, its YAML loaded as Dagster loads a location."""
    (yaml,) = PAGE.sections[heading].blocks("yaml")
    with create_defs_folder_sandbox() as project:
        folder = project.defs_folder_path / "documented"
        folder.mkdir()
        (folder / "defs.yaml").write_text(yaml, "utf-8")
        with project.load_component_and_build_defs(folder) as (component, _):
            assert isinstance(component, PublishedDatasource)
            return component.declaration


def _cells(line: str) -> list[str]:
    return [cell.strip().replace("`", "") for cell in line.strip("|").split("|")]
