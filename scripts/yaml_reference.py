"""Write the tables of docs/reference/yaml.md from the models that read the YAML.

`make docs` runs this script; a test compares the page with the script's output.
"""

import re
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
    # RefreshConfig comes before the models that share its keys, so that its table lists these keys.
    "run config": RefreshConfig,
    "publish_file": PublishFileConfig,
}
# If two tables share at least this many keys, only the first table lists these keys.
_SHARED = 3
_TYPES = {
    "string": "text",
    "integer": "integer",
    "number": "number",
    "boolean": "`true`/`false`",
}


def with_tables(page: str) -> str:
    """Return the page with new tables between its marks."""
    seen: dict[str, str] = {}
    for name, model in _MODELS.items():
        begin, end = BEGIN.format(name), END.format(name)
        before, _, rest = page.partition(begin)
        old, _, after = rest.partition(end)
        if not old:
            raise ValueError(f"{PAGE.name} lacks the marks {begin} and {end}")
        page = f"{before}{begin}\n\n{tables(name, model, seen)}\n{end}{after}"
    return page


def tables(name: str, model: type, seen: dict[str, str]) -> str:
    """Return a table of the model's own keys, and tables of further mappings.

    If a key may hold only one mapping, the keys of this mapping are in the table of the key.

    Args:
        seen: maps each row of the tables so far to its table. This call adds the rows of this
            model.
    """
    # The adapter's schema has every alternative. The schema of the class omits alternatives, to
    # suit editors.
    schema = TypeAdapter(model).json_schema(by_alias=True)
    known = schema.get("$defs", {})
    found = list(_sections("", schema, known))
    paths = [path for path, _ in found]
    return "\n".join(
        _section(path or name, form, known, seen, heading=_heading(path, form, paths))
        for path, form in found
    )


def _heading(path: str, form: Mapping[str, Any], paths: list[str]) -> str:
    """Return the heading above a table; "" for the outermost keys."""
    one_of_several = f" with `{form['required'][0]}`" if paths.count(path) > 1 else ""
    return f"### `{path}`{one_of_several}\n\n" if path else ""


def _sections(
    path: str, schema: Mapping[str, Any], known: Mapping[str, Any]
) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield every mapping with a table of its own, by its path from the top, outermost first."""
    yield path, schema
    for name, key in _keys(schema, known):
        if not _inside(key, known):
            for place, form in _mappings(key, known):
                yield from _sections(f"{path}{'.' * bool(path)}{name}{place}", form, known)


def _keys(
    schema: Mapping[str, Any], known: Mapping[str, Any]
) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the keys of a table, required keys first, each before the keys of its mapping."""
    for name, key in sorted(schema["properties"].items(), key=lambda e: not _needs(schema, e[0])):
        # State only whether this key is required: the keys of its mapping state this themselves.
        yield name, {**key, "required here": _needs(schema, name)}
        if inside := _inside(key, known):
            yield from ((f"{name}.{each}", what) for each, what in _keys(inside, known))


def _needs(schema: Mapping[str, Any], name: str) -> bool:
    return name in schema.get("required", ())


def _mappings(
    key: Mapping[str, Any], known: Mapping[str, Any]
) -> list[tuple[str, Mapping[str, Any]]]:
    return [(place, form) for place, form in _forms(key, known) if "properties" in form]


def _inside(key: Mapping[str, Any], known: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the only mapping that a key may hold.

    None means that the key may hold no mapping, several mappings, or names that lead to mappings.
    """
    match _mappings(key, known):
        case [("", form)]:
            return form
        case _:
            return None


def _forms(
    key: Mapping[str, Any], known: Mapping[str, Any], place: str = ""
) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield each form of a key's value, and its place below the key: `.<name>`, `[]` or both."""
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
    where: str,
    schema: Mapping[str, Any],
    known: Mapping[str, Any],
    seen: dict[str, str],
    *,
    heading: str,
) -> str:
    rows = {name: _row(name, key, known) for name, key in _keys(schema, known)}
    first = {name: seen[row] for name, row in rows.items() if row in seen}
    # If only a few keys are the same, both tables list them.
    shared = {each for each in first.values() if [*first.values()].count(each) >= _SHARED}
    left_out = {name: each for name, each in first.items() if each in shared}
    head = "| key | value | meaning |\n| --- | --- | --- |\n"
    table = "".join(f"{row}\n" for name, row in rows.items() if name not in left_out)
    also = "".join(
        f"\nAs in `{each}`: {', '.join(f'`{n}`' for n in left_out if left_out[n] == each)}.\n"
        for each in sorted(shared)
    )
    for row in rows.values():
        seen.setdefault(row, where)
    return f"{heading}{head}{table}{also}"


def _row(name: str, key: Mapping[str, Any], known: Mapping[str, Any]) -> str:
    meaning = _escaped(str(key.get("description", "")))
    return f"| `{name}` | {_with_default(key, known)} | {meaning} |"


def _with_default(key: Mapping[str, Any], known: Mapping[str, Any]) -> str:
    """Return what a key may hold, with its default. Among listed values, the default is bold."""
    value, default = _value(key, known), _default(key)
    if key["required here"]:
        return f"{value}, required"
    if default and default in re.split(r"[/ ,]+", value):
        return value.replace(default, f"**{default}**", 1)
    return f"{value}, default {default}" if default else value


def _default(key: Mapping[str, Any]) -> str:
    match key.get("default"):
        case None | {} | [] | () | "":
            return ""
        case bool(value):
            return f"`{str(value).lower()}`"
        case list(value) if value == key.get("items", {}).get("enum"):
            return "all"
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
        yield ", ".join(f"`{each}`" for each in key.get("enum", [key.get("const")]))
    elif "properties" in key:
        yield _shape(key)
    elif isinstance(key.get("additionalProperties"), dict):
        each = _plain(key["additionalProperties"], known)
        listed = each.replace("list of", "lists of", 1)
        yield f"{each + 's' if listed == each else listed} by name"
    elif key.get("type") == "array":
        items = _plain(key.get("items", {}), known)
        yield f"list of {items.replace(' or ', ', ')}" if "`" in items else f"list of {items}s"
    elif key.get("type") == "object":
        yield "mapping"
    elif key.get("type") != "null":
        yield _TYPES.get(str(key.get("type")), "text or list of texts")


def _shape(form: Mapping[str, Any]) -> str:
    """Return the mapping as text, with the keys that it requires."""
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
