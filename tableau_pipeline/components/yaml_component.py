"""How the components of this package are read from YAML."""

import re
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any, Self

import dagster as dg
import yaml
from pydantic import BaseModel

from tableau_pipeline.components.mistakes import Attributes, DeclarationError, without_alternatives

# Files beside a declaration that Dagster does not load.


_FOLDER = re.compile(r"^type: *[\"']?dagster\.(components\.)?DefsFolderComponent\b", re.MULTILINE)
# Modules that the file itself refers to: `template_vars_module: .vars`, or `type:
# .local.Component`.
_NAMED = re.compile(r"^(?:template_vars_module|type): *[\"']?\.(\w+)", re.MULTILINE)


def refuse_passed_over(file: Path) -> None:
    """Refuse Python files beside a `defs.yaml` that does not load the files of its folder.

    Raises:
        DeclarationError: names the files and the remedy.
    """
    text = file.read_text("utf-8")
    if _FOLDER.search(text):
        return
    named = set(_NAMED.findall(text))
    found = [
        str(each.relative_to(file.parent))
        for each in sorted(file.parent.rglob("*.py"))
        # A module that does not mention Dagster has no definitions to lose.
        if each.stem not in named and "dagster" in each.read_text("utf-8", errors="replace")
    ]
    if found:
        raise DeclarationError(
            f"{file}:1: Dagster skips {', '.join(found)} beside this file: put "
            "`type: dagster.DefsFolderComponent` and a line `---` at its top"
        )


# Refuse repeated keys in a YAML mapping: its reader silently takes the last one.


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


class YamlComponent(dg.Component, dg.Resolvable, Attributes):
    """A component that is its own model of the YAML."""

    # Dagster would derive a looser model, whose errors name only the outermost key.
    @classmethod
    def model(cls) -> type[Self]:
        """The class that reads the YAML: this one."""
        return cls

    @classmethod
    def model_json_schema(cls, *arguments: Any, **options: Any) -> dict[str, Any]:
        """Return the JSON schema for editors and `dg check yaml`."""
        return without_alternatives(super().model_json_schema(*arguments, **options))

    @classmethod
    def resolve_from_model(cls, context: dg.ResolutionContext, model: BaseModel) -> Self:
        """Fill in templates such as `{{ env.X }}`.

        Raises:
            DeclarationError: the file repeats a key, such as a second trigger, or Dagster would
                skip models beside it.
        """
        if tree := context.source_position_tree:
            file = Path(tree.position.filename)
            refuse_repeated_keys(file)
            refuse_passed_over(file)
        # Most files have no template, and Dagster's resolution visits every key.
        if isinstance(model, cls) and "{{" not in repr(model):
            return model
        attributes = model.model_dump(by_alias=True, exclude_unset=True)
        return cls.model_validate(context.resolve_value(attributes))
