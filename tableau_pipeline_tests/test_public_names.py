"""The public names: other projects may import them from the package and some subpackages."""

import ast
import json
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

import tableau_pipeline
from tableau_pipeline_tests.conftest import ROOT

NAMES = {
    "FileDrop",
    "HyperResource",
    "PublishedDatasource",
    "RefreshError",
    "RefusedError",
    "Snapshot",
    "SnapshotIOManager",
    "SparkResource",
    "TableauPipeline",
    "TableauServerResource",
    "__version__",
    "data_dir",
    "load_definitions",
    "open_hyper",
    "read_files",
    "read_frame",
    "read_hyper",
    "resources_from_env",
    "send_batch",
}
# The subpackages of docs/reference/stability.md; all names in their `__all__` are public.
SUBPACKAGES = {
    "tableau_pipeline.actions.batch",
    "tableau_pipeline.components",
    "tableau_pipeline.hyper",
    "tableau_pipeline.resources",
    "tableau_pipeline.scripting",
    "tableau_pipeline.scripting.spark",
}
# Places from which earlier documentation imported public names. These imports must keep working.
PLACES = {
    ("tableau_pipeline.components.loading", "load_definitions"),
    ("tableau_pipeline.core.snapshot", "Snapshot"),
    ("tableau_pipeline.ingest", "read_files"),
    ("tableau_pipeline.snapshots.load", "read_frame"),
    ("tableau_pipeline.snapshots.load", "read_hyper"),
}
HEAVY = {"dagster", "pandas", "pyarrow", "pydantic", "pyspark", "tableauhyperapi"}


def test_the_names():
    """Prevents: a name becomes public or private by accident."""
    assert set(tableau_pipeline.__all__) == NAMES
    assert len(NAMES) <= 20


@pytest.mark.parametrize("name", sorted(NAMES))
def test_each_is_there(name: str):
    """Prevents: a public name moves within the package, and fails at its first use."""
    value = getattr(tableau_pipeline, name)
    assert name == "__version__" or value.__name__ == name


@pytest.mark.parametrize(("module", "name"), sorted(PLACES))
def test_former_places_have_the_same(module: str, name: str):
    """Prevents: a project imports a second class of the same name from a former place."""
    assert getattr(import_module(module), name) is getattr(tableau_pipeline, name)


def test_an_unknown_name():
    """Prevents: the import of a mistyped name succeeds, or ends in a loop."""
    with pytest.raises(AttributeError, match="'Datasource'"):
        _ = tableau_pipeline.Datasource


def test_importing_it_loads_next_to_nothing():
    """Prevents: a program that needs only the version takes seconds to start."""
    program = (
        "import sys, json, tableau_pipeline; tableau_pipeline.__version__; "
        "print(json.dumps([each.partition('.')[0] for each in sys.modules]))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert set(json.loads(done.stdout)) & HEAVY == set()


def test_pages_and_examples_import_what_is_public():
    """Prevents: the documentation or an example uses a name that the next release may move."""
    found = {*imports()}
    assert len(found) > 10
    public = {("tableau_pipeline", name) for name in NAMES} | PLACES
    for module in SUBPACKAGES:
        public |= {(module, name) for name in names_of(module)}
    assert sorted(found - public) == []


def names_of(module: str) -> set[str]:
    """Return the public names of a module, from its `__all__` if it has one."""
    return {name for name in exported(module) if not name.startswith("_")}


def exported(module: str) -> list[str]:
    found = import_module(module)
    return getattr(found, "__all__", None) or [
        name for name, value in vars(found).items() if getattr(value, "__module__", "") == module
    ]


def imports() -> Iterator[tuple[str, str]]:
    """Yield the imports of the package in documentation and examples, as (module, name)."""
    for text in texts():
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ImportFrom) and node.module:
                if node.module.partition(".")[0] == "tableau_pipeline":
                    yield from ((node.module, each.name) for each in node.names)
            elif isinstance(node, ast.Import):
                names = [each.name for each in node.names]
                yield from ((name, "") for name in names if name.startswith("tableau_pipeline"))


def texts() -> Iterator[str]:
    for path in (*(ROOT / "docs").rglob("*.md"), ROOT / "README.md"):
        yield from blocks(path)
    for path in (ROOT / "examples").rglob("*.py"):
        yield path.read_text("utf-8")
    for path in (ROOT / "examples").rglob("*.ipynb"):
        cells = json.loads(path.read_text("utf-8"))["cells"]
        yield from ("".join(each["source"]) for each in cells if each["cell_type"] == "code")


def blocks(path: Path) -> Iterator[str]:
    """Yield the import statements of a page. Its other code may be a fragment, so leave it out."""
    lines = iter(path.read_text("utf-8").splitlines())
    for line in lines:
        if line.startswith(("from tableau_pipeline", "import tableau_pipeline")):
            statement = line
            while statement.count("(") > statement.count(")"):
                statement += next(lines)
            yield statement
