"""Pages of the documentation, and the parts of pages that tests check."""

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
    """The text below a heading, up to the next heading."""

    text: str

    def blocks(self, language: str) -> list[str]:
        """The contents of fenced blocks in a language."""
        return re.findall(rf"^```{language}\n(.*?)^```$", self.text, re.MULTILINE | re.DOTALL)

    def rows(self) -> list[dict[str, str]]:
        """The rows of the section's tables, by column heading; backticks are removed."""
        found = []
        for table in re.findall(r"(?:^\|.*\|\n)+", self.text, re.MULTILINE):
            head, _, *rows = (_cells(line) for line in table.splitlines())
            found += [dict(zip(head, row, strict=True)) for row in rows]
        return found


@dataclass(frozen=True)
class Page:
    """A page of the documentation."""

    path: Path

    @cached_property
    def whole(self) -> Section:
        """The whole page as one section."""
        return Section(self.path.read_text("utf-8"))

    @cached_property
    def sections(self) -> Mapping[str, Section]:
        """The sections of the page, by heading without its number."""
        _, *parts = re.split(r"^##+ (?:\d+\. )?(.*)\n", self.whole.text, flags=re.M)
        return dict(zip(parts[::2], map(Section, parts[1::2]), strict=True))


README = Page(ROOT / "README.md")


def page(name: str) -> Page:
    """A page below `docs/`."""
    return Page(ROOT / "docs" / name)


def all_pages() -> list[Page]:
    """Every page of the repository, in a fixed order."""
    top = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")]
    below = [*(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")]
    return [Page(path) for path in (*top, *sorted(below))]


def declared(section: Section) -> Declaration:
    """The declaration in a section, loaded as Dagster loads a location."""
    (yaml,) = section.blocks("yaml")
    return loaded(yaml)


def loaded(yaml: str) -> PublishedDatasource:
    """Load the data source of a `defs.yaml`."""
    with create_defs_folder_sandbox() as project:
        folder = project.defs_folder_path / "documented"
        folder.mkdir()
        (folder / "defs.yaml").write_text(yaml, "utf-8")
        with project.build_component_tree() as tree:
            (component,) = tree.get_all_components(of_type=PublishedDatasource)
    return component


def _cells(line: str) -> list[str]:
    return [cell.strip().replace("`", "") for cell in line.strip("|").split("|")]
