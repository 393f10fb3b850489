"""`make check` asks it: can files be read, and do tests keep to what is public?"""

import ast
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


def problems() -> Iterator[str]:
    """Whatever is too large, in phrases."""
    files = [file for package in _PACKAGES for file in sorted((_ROOT / package).rglob("*.py"))]
    for file in files:
        text = file.read_text("utf-8")
        if (lines := len(text.splitlines())) > _LINES_OF_A_FILE:
            yield f"{_name(file)} has {lines} lines, more than {_LINES_OF_A_FILE}"
        yield from _long_functions(file, text)
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
