"""Keys that YAML has twice in one mapping: its reader takes the last one without a word."""

from collections.abc import Iterator
from pathlib import Path

import yaml

# The one written in C, where PyYAML was built with it: ten times as fast, by the same rules.
_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def refuse_repeated_keys(file: Path) -> None:
    """Two triggers of one data source, for instance.

    Raises:
        ValueError: names file, lines and key.
    """
    for document in yaml.compose_all(file.read_text("utf-8"), Loader=_Loader):
        for key, first, second in _repeated(document):
            raise ValueError(
                f"{file}:{second}: `{key}` stands here and on line {first}, but only one of them "
                "can hold: keep one"
            )


def _repeated(node: yaml.Node | None) -> Iterator[tuple[str, int, int]]:
    """Each key that its mapping has already, with the lines of both."""
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
