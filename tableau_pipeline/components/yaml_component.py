"""Read the components of this package from YAML."""

import re
from collections import ChainMap
from functools import cache, lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, Self

import dagster as dg
import yaml
from pydantic import BaseModel, GetJsonSchemaHandler, RootModel, TypeAdapter, ValidationError

from tableau_pipeline.dagster_internals import enrich_validation_errors_with_source_position
from tableau_pipeline.errors import RefusedError
from tableau_pipeline.outcome import Code

_FOLDER = re.compile(r"^type: *[\"']?dagster\.(components\.)?DefsFolderComponent\b", re.MULTILINE)
# PyYAML's C loader, if it is installed, has the same rules as the Python loader, but is ten times
# as fast.
_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class DeclarationError(RefusedError, ValueError):
    """A declaration is wrong; the message names the file, the line, the key, and allowed values."""

    code = Code.DECLARATION


class YamlComponent(dg.Component, dg.Resolvable):
    """The base of the components of this package. The keys in YAML are the fields of the class.

    Decorate each subclass with `tableau_pipeline.yaml_keys.keyed`.
    """

    # Override the pydantic model that Dagster derives, so that `resolve_from_model` checks the
    # keys. Dagster's model checks less, and its errors name only the outermost key.
    @classmethod
    @cache
    def model(cls) -> type[BaseModel]:
        """Return a pydantic model that accepts any keys, but has the component's JSON schema."""
        component = TypeAdapter(cls)

        class Keys(RootModel[dict[Any, Any]]):
            @classmethod
            def __get_pydantic_json_schema__(
                cls, core_schema: Any, handler: GetJsonSchemaHandler, /
            ) -> dict[str, Any]:
                return handler(component.core_schema)

            @classmethod
            def model_json_schema(cls, *arguments: Any, **options: Any) -> dict[str, Any]:
                schema = component.json_schema(*arguments, **options)
                return _without_unions(schema, schema.get("$defs", {}))

        return Keys

    @classmethod
    def resolve_from_model(cls, context: dg.ResolutionContext, model: BaseModel) -> Self:
        """Fill in templates such as `{{ env.X }}`, and check the keys.

        Raises:
            DeclarationError: keys are wrong or repeated, or Dagster would skip Python files in the
                same folder. Each line of the message names a problem and its place in the file.
            pydantic.ValidationError: keys are wrong, and they come from Python, not from a file.
        """
        keys = model.model_dump()
        # Resolve only files with a template, because Dagster's resolution visits every key.
        if "{{" in repr(keys):
            keys = context.resolve_value(keys)
        tree = context.source_position_tree
        if tree is None:
            return TypeAdapter(cls).validate_python(keys)
        file = Path(tree.position.filename)
        text = file.read_text("utf-8")
        _reject_repeated_keys(file, text)
        _reject_unloaded_modules(file, text)
        attributes = tree.children.get("attributes", tree)
        try:
            with enrich_validation_errors_with_source_position(attributes, ["attributes"]):
                return TypeAdapter(cls).validate_python(keys)
        except ValidationError as error:
            problems = []
            for detail in error.errors():
                # Split the key from its place in the file, which Dagster has added.
                key, _, place = str(detail["loc"][0]).partition(" at ")
                problem = _MESSAGES.get(detail["type"]) or detail["msg"].removeprefix(
                    "Value error, "
                )
                problems.append(": ".join(filter(None, (place, key, problem))))
            raise DeclarationError("\n".join(problems)) from None


# Replacements for pydantic's messages that do not explain what to write.
_MESSAGES = MappingProxyType(
    {
        "missing": "this key is missing",
        "dataclass_type": "this key takes nested keys: write them under it, or {}",
        "dict_type": "this key takes nested keys: write them under it",
        "tuple_type": "this is a list: write [a, b]",
        "string_type": 'this is a string: write "..."',
    }
)


def _reject_unloaded_modules(file: Path, text: str) -> None:
    """Refuse a `defs.yaml` that does not load the Python files of its folder."""
    if _FOLDER.search(text):
        return
    # Find modules that the file itself loads: `template_vars_module: .vars`, `type: .local.Own`.
    named = re.findall(r"^(?:template_vars_module|type): *[\"']?\.(\w+)", text, re.MULTILINE)
    skipped = [
        str(module.relative_to(file.parent))
        for module in sorted(file.parent.rglob("*.py"))
        # Ignore modules that do not mention Dagster, because they have no definitions.
        if module.stem not in named and "dagster" in module.read_text("utf-8", errors="replace")
    ]
    if skipped:
        raise DeclarationError(
            f"{file}:1: Dagster skips {', '.join(skipped)} in this folder: put "
            "`type: dagster.DefsFolderComponent` and a line `---` at the top of this file"
        )


# Cache the check of a file: each component checks its whole file, and a file may declare hundreds
# of components.
@lru_cache(maxsize=1)
def _reject_repeated_keys(file: Path, text: str) -> None:
    """Refuse a repeated key of a mapping, because the YAML reader would use only the last value."""
    nodes: list[Any] = [*yaml.compose_all(text, Loader=_Loader)]
    while nodes:
        node = nodes.pop(0)
        if isinstance(node, yaml.MappingNode):
            lines: dict[str, int] = {}
            for key, value in node.value:
                line = key.start_mark.line + 1
                if (first := lines.setdefault(str(key.value), line)) != line:
                    raise DeclarationError(
                        f"{file}:{line}: `{key.value}` is set here and on line {first}, but only "
                        "one of them can take effect: keep one"
                    )
                nodes.append(value)
        elif isinstance(node, yaml.SequenceNode):
            nodes += node.value


def _without_unions(schema: Any, definitions: dict[str, Any]) -> Any:
    """Return a JSON schema with each union replaced by all keys of its members.

    Editors use the resulting schema to complete keys. The schema allows all keys, and requires no
    key, because the component's own validators report mistakes, and suggest the right spelling.
    With a strict schema, Dagster would first report less helpful errors. For example, Dagster would
    report that a value "is not valid under any of the given schemas". For a mistyped key, Dagster
    would report that the correct key "is a required property".
    """
    if isinstance(schema, list):
        return [_without_unions(item, definitions) for item in schema]
    if not isinstance(schema, dict):
        return schema
    plain = {
        name: _without_unions(value, definitions)
        for name, value in schema.items()
        if name not in ("anyOf", "oneOf", "discriminator", "additionalProperties", "required")
        or isinstance(value, dict)
    }
    forms = _forms(schema, definitions)
    # Keep a union of plain types, such as text or number, because its errors are short.
    if forms and all(form.keys() == {"type"} for form in forms):
        plain["type"] = [form["type"] for form in forms]
    elif forms:
        properties = [form.get("properties", {}) for form in forms]
        plain["properties"] = _without_unions(dict(ChainMap(*properties[::-1])), definitions)
    return plain


def _forms(schema: dict[str, Any], definitions: dict[str, Any]) -> list[dict[str, Any]]:
    """Return all members of a union, including the members of nested unions."""
    forms = []
    for form in [*schema.get("anyOf", ()), *schema.get("oneOf", ())]:
        member = definitions[form["$ref"].rpartition("/")[2]] if "$ref" in form else form
        forms += _forms(member, definitions) or [member]
    return forms
