"""Write the tables of docs/reference/yaml.md from the models that read the YAML.

`make docs` runs this; a test compares the page with what this would write.
"""

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from tableau_pipeline.components import FileDrop, PublishedDatasource, TableauPipeline
from tableau_pipeline.components.publish_file import PublishFileConfig
from tableau_pipeline.components.published_datasource import RefreshConfig

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "yaml.md"
BEGIN, END = "<!-- begin generated: {} -->", "<!-- end generated: {} -->"
_MODELS: Mapping[str, type] = {
    "TableauPipeline": TableauPipeline,
    "PublishedDatasource": PublishedDatasource,
    "FileDrop": FileDrop,
    "publish_file": PublishFileConfig,
    "run config": RefreshConfig,
}
_TYPES = {
    "string": "text",
    "integer": "whole number",
    "number": "number",
    "boolean": "`true` or `false`",
}


def with_tables(page: str) -> str:
    """The page with fresh tables between its marks."""
    for name, model in _MODELS.items():
        begin, end = BEGIN.format(name), END.format(name)
        before, _, rest = page.partition(begin)
        old, _, after = rest.partition(end)
        if not old:
            raise ValueError(f"{PAGE.name} lacks the marks {begin} and {end}")
        page = f"{before}{begin}\n\n{tables(model)}\n{end}{after}"
    return page


def tables(model: type) -> str:
    """A table of keys for the model itself, and one for each mapping inside."""
    # The adapter describes every alternative; the class itself leaves alternatives out for editors.
    schema = TypeAdapter(model).json_schema(by_alias=True)
    known = schema.get("$defs", {})
    found = list(_sections("", schema, known))
    paths = [path for path, _ in found]
    return "\n".join(
        _section(path, form, known, is_one_of_several=paths.count(path) > 1) for path, form in found
    )


def _sections(
    path: str, schema: Mapping[str, Any], known: Mapping[str, Any]
) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Every mapping with keys of its own, by its path from the top, outermost first."""
    inside = [
        (f"{path}{name}{place}.", form)
        for name, key in schema["properties"].items()
        for place, form in _forms(key, known)
        if "properties" in form
    ]
    yield path, schema
    for each, form in inside:
        yield from _sections(each, form, known)


def _forms(
    key: Mapping[str, Any], known: Mapping[str, Any], place: str = ""
) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """What a key may hold, and where below the key: `.<name>` in a mapping, `[]` in a list."""
    if "$ref" in key:
        yield from _forms(known[key["$ref"].rpartition("/")[2]], known, place)
    elif alternatives := [*key.get("anyOf", ()), *key.get("oneOf", ())]:
        for each in alternatives:
            yield from _forms(each, known, place)
    elif isinstance(key.get("additionalProperties"), dict):
        yield from _forms(key["additionalProperties"], known, f"{place}.<name>")
    elif key.get("type") == "array" and "items" in key:
        yield from _forms(key["items"], known, f"{place}[]")
    else:
        yield place, key


def _section(
    path: str, schema: Mapping[str, Any], known: Mapping[str, Any], *, is_one_of_several: bool
) -> str:
    """A table, below a heading unless these are the outermost keys."""
    heading = f"### `{path.removesuffix('.')}`" if path else ""
    if is_one_of_several:
        heading += f" with `{schema['required'][0]}`"
    heading += "\n\n" if path else ""
    required = schema.get("required", ())
    keys = sorted(schema["properties"].items(), key=lambda item: item[0] not in required)
    rows = [_row(name, key, known, is_required=name in required) for name, key in keys]
    head = "| key | value | default | meaning |\n| --- | --- | --- | --- |"
    return f"{heading}{head}\n" + "".join(f"{row}\n" for row in rows)


def _row(name: str, key: Mapping[str, Any], known: Mapping[str, Any], *, is_required: bool) -> str:
    default = "**required**" if is_required else _default(key)
    meaning = _escaped(str(key.get("description", "")))
    return f"| `{name}` | {_value(key, known)} | {default} | {meaning} |"


def _default(key: Mapping[str, Any]) -> str:
    match key.get("default"):
        case None | {} | [] | () | "":
            return ""
        case bool(value):
            return f"`{str(value).lower()}`"
        case dict(value):
            inside = ", ".join(f"{name}: {each}" for name, each in value.items())
            return f"`{{{inside}}}`".replace("False", "false").replace("True", "true")
        case value:
            return f"`{value}`"


def _value(key: Mapping[str, Any], known: Mapping[str, Any]) -> str:
    found = dict.fromkeys(filter(None, _values(key, known)))
    return " or ".join(found)


def _values(key: Mapping[str, Any], known: Mapping[str, Any]) -> Iterator[str]:
    if "$ref" in key:
        yield from _values(known[key["$ref"].rpartition("/")[2]], known)
    elif alternatives := [*key.get("anyOf", ()), *key.get("oneOf", ())]:
        for each in alternatives:
            yield from _values(each, known)
    elif "enum" in key or "const" in key:
        yield " or ".join(f"`{each}`" for each in key.get("enum", [key.get("const")]))
    elif "properties" in key:
        yield _shape(key)
    elif isinstance(key.get("additionalProperties"), dict):
        each = _plain(key["additionalProperties"], known)
        listed = each.replace("list of", "lists of", 1)
        yield f"mapping of names to {each + 's' if listed == each else listed}"
    elif key.get("type") == "array":
        items = _plain(key.get("items", {}), known)
        yield f"list of {items.replace(' or ', ', ')}" if "`" in items else f"list of {items}s"
    elif key.get("type") == "object":
        yield "mapping"
    elif key.get("type") != "null":
        yield _TYPES.get(str(key.get("type")), "text or list of texts")


def _shape(form: Mapping[str, Any]) -> str:
    """A mapping by the keys that it needs."""
    needed = ", ".join(f"{name}: ..." for name in form.get("required", ()))
    return f"`{{{needed}}}`" if needed else "mapping"


def _plain(key: Mapping[str, Any], known: Mapping[str, Any]) -> str:
    inside = list(_forms(key, known))
    if any("properties" in form for _, form in inside):
        return "mapping"
    return _value(key, known)


def _escaped(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")


if __name__ == "__main__":
    old = PAGE.read_text("utf-8")
    if (new := with_tables(old)) != old:
        PAGE.write_text(new, "utf-8")
        sys.stdout.write(f"{PAGE} was out of date: commit what was written\n")
