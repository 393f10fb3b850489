"""What the pipeline may say: the texts of its code."""

import ast
import re
from functools import cache
from pathlib import Path

import tableau_pipeline

_PLACE = "…"
_CODE = Path(str(tableau_pipeline.__file__)).parent


def is_message(quoted: str) -> bool:
    """Whether some text of the code is this one, or a longer one; "…" stands for what it fills in.

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
