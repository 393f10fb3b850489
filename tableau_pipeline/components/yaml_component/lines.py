"""Find the line of a key in a YAML file."""

from collections.abc import Sequence
from pathlib import Path

import yaml


def line_of(file: Path, begin: int, keys: Sequence[str]) -> int:
    """Return the line of the innermost of these keys that exists.

    Args:
        begin: the first line of the document that holds the keys.
    """
    line = begin
    for document in yaml.compose_all(file.read_text("utf-8"), Loader=yaml.SafeLoader):
        if document and document.start_mark.line + 1 == begin:
            node: yaml.Node | None = document
            for key in keys:
                found = _child(node, key)
                if found is None:
                    break
                line, node = found
    return line


def _child(node: yaml.Node | None, key: str) -> tuple[int, yaml.Node] | None:
    if isinstance(node, yaml.MappingNode):
        for name, value in node.value:
            if name.value == key:
                return name.start_mark.line + 1, value
    return None
