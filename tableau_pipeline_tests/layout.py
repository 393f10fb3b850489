"""Check the rules for source files, such as their length and their imports, for `make check`."""

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
# The modules of the sandbox that the tests of the pipeline may import.
_PUBLIC = {
    f"tableau_sandbox.{name}" for name in ("testing", "faults", "options", "quirks", "simulation")
}
_LINES_OF_A_FILE, _LINES_OF_A_FUNCTION = 600, 50
# These modules search messages of another program for words, because the program shows the fact in
# no other way. Tests with the real program fail when its words change.
_WORDS_OF_OTHERS = {
    "tableau_pipeline/components/assessing.py": "codes in answers of Tableau",
    "tableau_pipeline/components/loading.py": "Dagster's and YAML's mistakes",
    "tableau_pipeline/hyper/messages.py": "hyperd",
    "tableau_pipeline/objects/errors.py": "object stores",
    "tableau_pipeline/publishing/properties.py": "the tag that Tableau refused",
    "tableau_pipeline/snapshots/spark.py": "Spark's failed tasks",
}
# Only this module may use names that Dagster can change in a minor release. Tests check each name.
_INTERNALS = "tableau_pipeline/dagster_internals.py"
_INTERNAL = re.compile(r"dagster\._|dagster_shared\b|dagster_dg_core\b|dagster\.components\.")
# Attributes that lead from Dagster's public objects to its internal objects.
_INTO_DAGSTER = {
    "event_log_storage",
    "run_storage",
    "schedule_storage",
    "node_def",
    "job_def",
    "get_step_execution_context",
}
# The names of variables and attributes that hold messages for people.
_FOR_PEOPLE = {"message", "reason", "why", "problem", "distrust", "description", "summary"}
_LOOKS = {"startswith", "endswith"}
_SEARCHES = {"search", "match", "fullmatch", "findall", "finditer"}


def problems() -> Iterator[str]:
    """Yield a phrase about each breach of the rules."""
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
                yield f"{_name(file)} looks into no message: remove it from _WORDS_OF_OTHERS"
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
    """Yield each place that searches a message for words. Code must decide by values instead."""
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
    """Yield each refusal that has a message for people but no code for programs."""
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.Call(func=ast.Name(id="RefusedError"), args=args, keywords=keywords):
                is_text = any(not isinstance(e, ast.Starred | ast.Name | ast.Call) for e in args)
                if is_text and "code" not in {each.arg for each in keywords}:
                    yield f"{_name(file)}:{node.lineno} refuses without a code of `outcome.Code`"


def _internals(file: Path, text: str) -> Iterator[str]:
    """Yield each use of Dagster's internals."""
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
                    f"{_name(file)} imports {module}: use tableau_sandbox.simulation or another "
                    "public module"
                )


def _name(path: Path) -> str:
    return str(path.relative_to(_ROOT))


if __name__ == "__main__":
    sys.exit("\n".join(problems()) or None)
