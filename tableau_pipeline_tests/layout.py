"""`make check` asks it: can files be read, and do tests keep to what is public?"""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

_ROOT = Path(__file__).parents[1]
_PACKAGES = (
    "tableau_pipeline",
    "tableau_pipeline_tests",
    "tableau_sandbox",
    "tableau_sandbox_tests",
)
# What tests of the pipeline may use of the sandbox.
_PUBLIC = {
    f"tableau_sandbox.{name}" for name in ("testing", "faults", "options", "quirks", "simulation")
}
_LINES_OF_A_FILE, _LINES_OF_A_FUNCTION = 600, 50
# Where the words of other programs decide, as they say it in no other way; tests with these
# programs fail when they say it differently.
_WORDS_OF_OTHERS = {
    "tableau_pipeline/components/assessing.py": "codes in answers of Tableau",
    "tableau_pipeline/components/loading.py": "Dagster's and YAML's mistakes",
    "tableau_pipeline/hyper/messages.py": "hyperd",
    "tableau_pipeline/objects/errors.py": "object stores",
    "tableau_pipeline/publishing/properties.py": "the tag that Tableau refused",
    "tableau_pipeline/snapshots/spark.py": "Spark's failed tasks",
}
# What Dagster may change in a minor release stands in one file, where tests look at each name.
_INTERNALS = "tableau_pipeline/dagster_internals.py"
_INTERNAL = re.compile(r"dagster\._|dagster_shared\b|dagster_dg_core\b|dagster\.components\.")
# Beyond a module: what leads from a public object to an internal one.
_INTO_DAGSTER = {
    "event_log_storage",
    "run_storage",
    "schedule_storage",
    "node_def",
    "job_def",
    "get_step_execution_context",
}
# What holds words for people, by its name, unless it is a text to be read, such as a file.
_FOR_PEOPLE = {"message", "reason", "why", "problem", "distrust", "description", "summary"}
_LOOKS = {"startswith", "endswith"}
_SEARCHES = {"search", "match", "fullmatch", "findall", "finditer"}


def problems() -> Iterator[str]:
    """Whatever is too large, in phrases."""
    files = [file for package in _PACKAGES for file in sorted((_ROOT / package).rglob("*.py"))]
    for file in files:
        text = file.read_text("utf-8")
        if (lines := len(text.splitlines())) > _LINES_OF_A_FILE:
            yield f"{_name(file)} has {lines} lines, more than {_LINES_OF_A_FILE}"
        yield from _long_functions(file, text)
        if file.is_relative_to(_ROOT / "tableau_pipeline"):
            yield from _without_code(file, text)
            if _name(file) != _INTERNALS:
                yield from _internals(file, text)
            found = [*_decided_by_words(file, text)]
            if _name(file) not in _WORDS_OF_OTHERS:
                yield from found
            elif not found:
                yield f"{_name(file)} looks into no message, and is listed as if it did"
        if file.is_relative_to(_ROOT / "tableau_pipeline_tests"):
            yield from _private_imports(file, text)


def _long_functions(file: Path, text: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.body:
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if lines > _LINES_OF_A_FUNCTION:
                yield (
                    f"{_name(file)}:{node.lineno} {node.name} has {lines} lines, more than "
                    f"{_LINES_OF_A_FUNCTION}"
                )


def _decided_by_words(file: Path, text: str) -> Iterator[str]:
    """Where a piece of a message is looked for: a decision belongs into a value."""
    for node in ast.walk(ast.parse(text)):
        subjects: list[ast.expr] = []
        if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.In | ast.NotIn):
            subjects = node.comparators
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            is_look, is_search = node.func.attr in _LOOKS, node.func.attr in _SEARCHES
            subjects = [node.func.value] if is_look else node.args if is_search else []
        if any(map(_is_for_people, subjects)):
            yield f"{_name(file)}:{node.lineno} looks into a message: {ast.unparse(node)}"


def _without_code(file: Path, text: str) -> Iterator[str]:
    """Where a refusal has words, and no code by which programs would know it."""
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.Call(func=ast.Name(id="RefusedError"), args=args, keywords=keywords):
                is_text = any(not isinstance(e, ast.Starred | ast.Name | ast.Call) for e in args)
                if is_text and "code" not in {each.arg for each in keywords}:
                    yield f"{_name(file)}:{node.lineno} refuses without a code of `outcome.Code`"


def _internals(file: Path, text: str) -> Iterator[str]:
    """Where something internal to Dagster is used."""
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.ImportFrom(module=str(name)) if _INTERNAL.match(name):
                line = node.lineno
            case ast.Attribute(attr=name) if name in _INTO_DAGSTER:
                line = node.lineno
            case _:
                continue
        yield f"{_name(file)}:{line} uses {name} of Dagster: move it to {_INTERNALS}"


def _is_for_people(node: ast.expr) -> bool:
    match node:
        case ast.Call(func=ast.Name(id="str"), args=[ast.Name(id="error")]):
            return True
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name in _FOR_PEOPLE
    return False


def _private_imports(file: Path, text: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(text)):
        modules = []
        if isinstance(node, ast.ImportFrom) and node.module:
            modules = [node.module]
        elif isinstance(node, ast.Import):
            modules = [each.name for each in node.names]
        for module in modules:
            if module.partition(".")[0] == "tableau_sandbox" and module not in _PUBLIC:
                yield (
                    f"{_name(file)} imports {module}: use tableau_sandbox.simulation, or what else "
                    "is public"
                )


def _name(path: Path) -> str:
    return str(path.relative_to(_ROOT))


if __name__ == "__main__":
    sys.exit("\n".join(problems()) or None)
