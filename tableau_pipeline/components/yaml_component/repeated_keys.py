"""Refuse repeated keys in a YAML mapping: its reader silently takes the last one."""

from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

import yaml

from tableau_pipeline.components.attributes.base import DeclarationError

# The C loader, if PyYAML was built with it: ten times as fast, with the same rules.
_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def refuse_repeated_keys(file: Path) -> None:
    """Refuse a file that repeats a key, such as two triggers of one data source.

    Raises:
        DeclarationError: names file, lines and key.
    """
    if found := _first_repeated(file.read_text("utf-8")):
        key, first, second = found
        raise DeclarationError(
            f"{file}:{second}: `{key}` is set here and on line {first}, but only one of them "
            "can take effect: keep one"
        )


# Each component in a file checks it, and a file may declare hundreds.
@lru_cache(maxsize=1)
def _first_repeated(text: str) -> tuple[str, int, int] | None:
    for document in yaml.compose_all(text, Loader=_Loader):
        for found in _repeated(document):
            return found
    return None


def _repeated(node: yaml.Node | None) -> Iterator[tuple[str, int, int]]:
    """Yield each key that its mapping already has, with the lines of both."""
    children: list[yaml.Node] = []
    if isinstance(node, yaml.MappingNode):
        lines: dict[str, int] = {}
        for key, value in node.value:
            children.append(value)
            if isinstance(key, yaml.ScalarNode):
                line = key.start_mark.line + 1
                if key.value in lines:
                    yield key.value, lines[key.value], line
                lines[key.value] = line
    elif isinstance(node, yaml.SequenceNode):
        children += node.value
    for child in children:
        yield from _repeated(child)
