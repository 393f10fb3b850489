"""How the components of this package are read from YAML."""

import re
from collections.abc import Iterator
from functools import cache, lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, Self

import dagster as dg
import yaml
from dagster._utils.pydantic_yaml import enrich_validation_errors_with_source_position
from pydantic import BaseModel, GetJsonSchemaHandler, RootModel, TypeAdapter, ValidationError

from tableau_pipeline.errors import RefusedError

_FOLDER = re.compile(r"^type: *[\"']?dagster\.(components\.)?DefsFolderComponent\b", re.MULTILINE)
# Modules that the file itself refers to: `template_vars_module: .vars`, or `type:
# .local.Component`.
_NAMED = re.compile(r"^(?:template_vars_module|type): *[\"']?\.(\w+)", re.MULTILINE)
# The C loader, if PyYAML was built with it: ten times as fast, with the same rules.
_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class DeclarationError(RefusedError, ValueError):
    """A declaration is wrong; the message names file, line and key, and what is allowed there."""


class YamlComponent(dg.Component, dg.Resolvable):
    """A component whose keys in YAML are the fields of its class, which is `keyed`."""

    # Dagster would derive a looser model, whose errors name only the outermost key.
    @classmethod
    def model(cls) -> type[BaseModel]:
        """Return the class of the keys."""
        return _keys_of(cls)

    @classmethod
    def resolve_from_model(cls, context: dg.ResolutionContext, model: BaseModel) -> Self:
        """Fill in templates such as `{{ env.X }}`, and check the keys.

        Raises:
            DeclarationError: keys are wrong; a line for each names its place in the file. Or the
                file repeats a key, such as a second trigger, or Dagster would skip models beside
                it.
            pydantic.ValidationError: keys are wrong that are in no file.
        """
        keys = model.model_dump()
        # Most files have no template, and Dagster's resolution visits every key.
        if "{{" in repr(keys):
            keys = context.resolve_value(keys)
        tree = context.source_position_tree
        if tree is None:
            return TypeAdapter(cls).validate_python(keys)
        file = Path(tree.position.filename)
        refuse_repeated_keys(file)
        reject_unloaded_modules(file)
        attributes = tree.children.get("attributes", tree)
        try:
            with enrich_validation_errors_with_source_position(attributes, ["attributes"]):
                return TypeAdapter(cls).validate_python(keys)
        except ValidationError as error:
            raise DeclarationError("\n".join(map(_of_key, error.errors()))) from None


# Replacements for pydantic's messages that do not state what to write.
_WORDS = MappingProxyType(
    {
        "missing": "this key is missing",
        "dataclass_type": "this key takes nested keys: write them under it, or {}",
        "dict_type": "this key takes nested keys: write them under it",
        "tuple_type": "this is a list: write [a, b]",
        "string_type": 'this is a string: write "..."',
    }
)


def _of_key(error: Any) -> str:
    """Format a pydantic error, in which Dagster has put the place in the file."""
    key, _, place = str(error["loc"][0]).partition(" at ")
    problem = _WORDS.get(error["type"]) or str(error["msg"]).removeprefix("Value error, ")
    return f"{place}: {key}: {problem}" if place else f"{key}: {problem}"


@cache
def _keys_of(component: type[YamlComponent]) -> type[BaseModel]:
    """Return a model that takes any keys, with the JSON schema of the component."""

    class Keys(RootModel[dict[Any, Any]]):
        @classmethod
        def __get_pydantic_json_schema__(
            cls, core_schema: Any, handler: GetJsonSchemaHandler, /
        ) -> dict[str, Any]:
            return handler(TypeAdapter(component).core_schema)

        @classmethod
        def model_json_schema(cls, *arguments: Any, **options: Any) -> dict[str, Any]:
            schema = TypeAdapter(component).json_schema(*arguments, **options)
            return without_alternatives(schema)

    return Keys


def reject_unloaded_modules(file: Path) -> None:
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


def refuse_repeated_keys(file: Path) -> None:
    """Refuse a file that repeats a key, of which YAML's reader would silently take the last one.

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


def without_alternatives(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a JSON schema with each union replaced by all keys of its members.

    It takes other keys too, and requires none. A JSON schema validator can only report that a value
    is "not valid under any of the given schemas", that an unknown key "was unexpected", or of a
    mistyped one that the right one "is a required property". The keys still serve completion in
    editors, and the component's own validators report what is wrong, and what was perhaps meant.
    """
    return _plain(schema, schema.get("$defs", {}))


def _plain(schema: Any, definitions: dict[str, Any]) -> Any:
    if isinstance(schema, list):
        return [_plain(each, definitions) for each in schema]
    if not isinstance(schema, dict):
        return schema
    plain = {
        name: _plain(value, definitions)
        for name, value in schema.items()
        if name not in ("anyOf", "oneOf", "discriminator", "additionalProperties", "required")
        or isinstance(value, dict)
    }
    forms = _forms(schema, definitions)
    types = [form.get("type") for form in forms if form.keys() <= {"type"}]
    # A union of plain types alone, such as text or a number, gives short errors and is kept.
    if forms and len(types) == len(forms):
        plain["type"] = types
    elif properties := _properties(forms, definitions):
        plain["properties"] = properties
    return plain


def _forms(schema: dict[str, Any], definitions: dict[str, Any]) -> list[dict[str, Any]]:
    """Return all members of a union, including those of nested unions."""
    found = []
    for form in [*schema.get("anyOf", ()), *schema.get("oneOf", ())]:
        named = definitions[form["$ref"].rpartition("/")[2]] if "$ref" in form else form
        found += _forms(named, definitions) or [named]
    return found


def _properties(forms: list[dict[str, Any]], definitions: dict[str, Any]) -> dict[str, Any]:
    return {
        name: _plain(value, definitions)
        for form in forms
        for name, value in form.get("properties", {}).items()
    }
