"""The links, messages and names on the pages, and their code, which must load or run."""

import ast
import inspect
import re
from collections import defaultdict
from functools import cache
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import dagster as dg
import pytest
import yaml

import tableau_pipeline
from tableau_pipeline import scripting
from tableau_pipeline.components import FileDrop, PublishedDatasource, TableauPipeline
from tableau_pipeline.components.asset_names import step_name
from tableau_pipeline.components.loading import load_definitions
from tableau_pipeline.components.published_datasource import RefreshConfig
from tableau_pipeline.ingest.options import NAMES
from tableau_pipeline_tests.components.support.projects import Project, project
from tableau_pipeline_tests.conftest import ROOT
from tableau_pipeline_tests.docs.page import Page, all_pages, loaded, page

__all__ = ["project"]

_TROUBLE = page("troubleshooting.md").sections
_BLOCK = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("where", all_pages(), ids=lambda each: str(each.path.relative_to(ROOT)))
def test_links(where: Page):
    """Prevents: a link on a page leads nowhere."""
    text = _BLOCK.sub("", where.whole.text)
    links = [each for each in re.findall(r"\]\((\S+?)\)", text) if "://" not in each]
    assert [link for link in links if not _leads_somewhere(where.path, link)] == []


def _leads_somewhere(origin: Path, link: str) -> bool:
    name, _, anchor = link.partition("#")
    file = (origin.parent / name).resolve() if name else origin
    return file.is_file() and (not anchor or anchor in _anchors(file))


def _anchors(file: Path) -> list[str]:
    text = _BLOCK.sub("", file.read_text("utf-8"))
    return [_slug(heading) for heading in re.findall(r"^#+ (.*)$", text, re.MULTILINE)]


def _slug(heading: str) -> str:
    """The anchor that GitHub makes of a heading. MkDocs is set up to make the same anchor."""
    return re.sub(r"[^\w\- ]", "", heading).strip().lower().replace(" ", "-")


def test_every_page_is_in_the_navigation():
    """Prevents: the navigation has no link to a page, so that `make docs` fails later."""
    listed = re.findall(r"([\w/-]+\.md)$", (ROOT / "mkdocs.yml").read_text("utf-8"), re.MULTILINE)
    ours = {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")}
    moved = {"getting-started.md", "contributing.md", "changelog.md"}
    assert sorted(listed) == sorted({*ours, *moved})


@pytest.mark.parametrize(
    # Another test checks the section "Codes".
    "heading",
    [name for name, each in _TROUBLE.items() if each.rows() and name != "Codes"],
)
def test_messages_are_those_of_the_code(heading: str):
    """Prevents: users search for the message that they see, and find no page."""
    documented = [row["what you see"] for row in _TROUBLE[heading].rows()]
    assert [each for each in documented if not is_message(each)] == []


def test_the_tutorial_shows_real_messages():
    """Prevents: the tutorial shows a message that no reader sees."""
    (block,) = page("tutorial.md").sections["Break it"].blocks("text")
    message, _, remedy = block.strip().partition(". ")
    assert is_message(re.sub(r"\d+", "…", message).partition("has ")[2])
    assert is_message(remedy)


@pytest.mark.parametrize("where", all_pages(), ids=lambda each: str(each.path.relative_to(ROOT)))
def test_names(where: Page):
    """Prevents: a page names a module, a class or a function that does not exist."""
    names = set(re.findall(r"`(tableau_pipeline(?:\.\w+)+)(?:\(.*?\))?`", where.whole.text))
    assert [name for name in sorted(names) if not _is_known(name)] == []


def _is_known(name: str) -> bool:
    try:
        resolve_name(name)
    except (ImportError, AttributeError):
        return False
    return True


def test_environment():
    """Prevents: users set a variable that has no effect, or no page names a variable."""
    template = (ROOT / ".env.example").read_text("utf-8")
    known = set(re.findall(r"^(?:# )?([A-Z][A-Z_]+)=", template, re.MULTILINE))
    documented = [row["variable"] for row in page("reference/environment.md").whole.rows()]
    assert {name for names in documented for name in names.split(", ")} == known


def test_options_of_the_reader():
    """Prevents: the page lists an option that the reader refuses, or hides an option."""
    text = page("reference/files.md").sections["Reader options"].text
    documented: dict[str, set[str]] = defaultdict(set)
    for files, options in re.findall(r"^\| ([\w ]+) \| (.*) \|$", text, re.MULTILINE):
        for format_ in files.lower().split(" and "):
            documented[format_] |= set(re.findall(r"`(\w+)`", options))
    del documented["files"]
    assert documented == {format_: set(names) for format_, names in NAMES.items()}


def test_make_targets():
    """Prevents: the page lacks a target of the Makefile, or names a target that is gone."""
    makefile = (ROOT / "Makefile").read_text("utf-8")
    (phony,) = re.findall(r"^\.PHONY: (.*)$", makefile, re.MULTILINE)
    rows = page("reference/commands.md").sections["make"].rows()
    documented = [row["target"] for row in rows if "target" in row]
    tools = {"python", "java", "postgresql"}
    assert {name.split()[1] for name in documented} == set(phony.split()) - tools


def test_places():
    """Prevents: the list of places sends newcomers to files that have moved."""
    text = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    places = re.findall(r"^\| .+ \| `(\w+/\w+\.py)` \|$", text, re.MULTILINE)
    assert len(places) > 20
    assert [each for each in places if not (ROOT / "tableau_pipeline" / each).is_file()] == []


_PLACE = "…"
_CODE = Path(str(tableau_pipeline.__file__)).parent


def is_message(quoted: str) -> bool:
    """Whether a text in the code contains this text; "…" replaces what the code fills in.

    Quotation marks do not count.
    """
    wanted = ".*".join(map(re.escape, quoted.replace('"', "").split(_PLACE)))
    return any(re.search(wanted, text) for text in _texts())


@cache
def _texts() -> frozenset[str]:
    found = set()
    for file in _CODE.rglob("*.py"):
        tree = ast.parse(file.read_text("utf-8"))
        found |= {text for node in ast.walk(tree) if (text := _text(node))}
    return frozenset(found)


def _text(node: ast.AST) -> str:
    match node:
        case ast.Constant(value=str() as text):
            return text.replace('"', "")
        case ast.JoinedStr(values=parts):
            return "".join(_text(part) for part in parts)
        case ast.FormattedValue():
            return _PLACE
        case _:
            return ""


_OURS = "type: tableau_pipeline.components.PublishedDatasource"
# The blocks of these pages belong together, or to an example. Other tests run them.
_RUN_ELSEWHERE = {"docs/reference/hyper.md", "docs/how-to/custom-batches.md"}


def _blocks(language: str) -> list[Any]:
    return [
        pytest.param(each, block, id=f"{each.path.relative_to(ROOT)} {number}")
        for each in all_pages()
        for number, block in enumerate(each.whole.blocks(language), start=1)
    ]


@pytest.mark.parametrize(("where", "block"), _blocks("yaml"))
def test_yaml(where: Page, block: str):
    """Prevents: YAML that a newcomer copies from a page does not load."""
    if _OURS in block:
        assert loaded(block).name
    # Put a URL in the place of each environment variable: only `notify` checks such values, and it
    # needs URLs.
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


@pytest.mark.parametrize(
    ("where", "block"), [each for each in _blocks("yaml") if _OURS in each.values[1]]
)
def test_location_of_a_page(project: Project, where: Page, block: str):
    """Prevents: a location with YAML of a page fails to load in Dagster's loader or in ours."""
    component = loaded(block)
    lakes = {table.model for table in component.tables if table.source}
    stubs = [f'{each.replace("/", "_")} = dg.AssetSpec("{each}")' for each in component.models]
    kept = [each for each, model in zip(stubs, component.models, strict=True) if model not in lakes]
    project.write("models.py", "\n".join(["import dagster as dg", *kept]))
    project.write("documented/defs.yaml", block)
    project.add_pipeline()
    for found in (
        load_definitions(project.package),
        dg.load_from_defs_folder(path_within_project=project.package),
    ):
        keys = found.resolve_asset_graph().get_all_asset_keys()
        assert {dg.AssetKey.from_user_string(each) for each in component.models} <= keys


def test_models_of_the_declaration():
    """Prevents: the comments in a declaration name other models than the declaration uses."""
    (text,) = page("how-to/models.md").sections["Declare the data source"].blocks("yaml")
    assert loaded(text).models == ("orders", "crm/customers")


@pytest.mark.parametrize(("where", "block"), _blocks("python"))
def test_python(where: Page, block: str):
    """Prevents: Python code from a page fails after users copy the code."""
    compile(block, str(where.path), "exec")
    if where.path.relative_to(ROOT).as_posix() not in _RUN_ELSEWHERE and "refresh(" not in block:
        exec(block, {"__name__": "documented"})


def test_python_without_dagster():
    """Prevents: the page calls `refresh` without a parameter, or with an unknown parameter."""
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


@pytest.mark.parametrize("accept", scripting.Accept)
def test_what_may_be_accepted(accept: scripting.Accept):
    """Prevents: the pages of commands and of scripts do not name a way to accept a refusal."""
    options = page("reference/commands.md").whole.text
    members = page("reference/scripting.md").sections["Options and Accept"].text
    assert f"`{accept}`" in options or f"`--accept {accept}`" in options
    assert f"`{accept.name}`" in members


def test_run_config():
    """Prevents: the page shows an option that the launchpad does not have."""
    (text,) = page("reference/yaml.md").sections["Run config of a refresh"].blocks("yaml")
    assert all(str(each) in text for each in scripting.Accept)
    config: dict[str, Any] = yaml.safe_load(text)["ops"][step_name("nyc_flights")]["config"]
    assert RefreshConfig(**config).dry_run
    assert config.keys() == RefreshConfig.model_fields.keys()
