"""`make check` asks it: are files and functions small enough to be read?"""

import ast
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

_ROOT = Path(__file__).parents[1]
_PACKAGES = (
    "tableau_pipeline",
    "tableau_pipeline_tests",
    "tableau_sandbox",
    "tableau_sandbox_tests",
)
_LINES_OF_A_FILE, _LINES_OF_A_FUNCTION, _SHARED_NAMES = 600, 50, 6


def problems() -> Iterator[str]:
    """Whatever is too large, in phrases."""
    files = [file for package in _PACKAGES for file in sorted((_ROOT / package).rglob("*.py"))]
    for file in files:
        text = file.read_text("utf-8")
        if (lines := len(text.splitlines())) > _LINES_OF_A_FILE:
            yield f"{_name(file)} has {lines} lines, more than {_LINES_OF_A_FILE}"
        yield from _long_functions(file, text)
    modules = [file for file in files if file.name != "__init__.py"]
    product = _ROOT / _PACKAGES[0]
    names = Counter(file.stem for file in modules if file.is_relative_to(product))
    shared = sorted(name for name, count in names.items() if count > 1)
    if len(shared) > _SHARED_NAMES:
        yield f"more than {_SHARED_NAMES} names belong to several modules: {', '.join(shared)}"


def _long_functions(file: Path, text: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.body:
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if lines > _LINES_OF_A_FUNCTION:
                yield (
                    f"{_name(file)}:{node.lineno} {node.name} has {lines} lines, more than "
                    f"{_LINES_OF_A_FUNCTION}"
                )


def _name(path: Path) -> str:
    return str(path.relative_to(_ROOT))


if __name__ == "__main__":
    sys.exit("\n".join(problems()) or None)
