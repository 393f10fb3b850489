"""In what two declarations of a data source differ, key by key."""

from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from types import MappingProxyType
from typing import Any

from tableau_pipeline.core.declaration import Append, Declaration, Diff, Partitions, ReplaceAll
from tableau_pipeline.hyper.types import Column
from tableau_pipeline.metadata.fields import Members

# What people call the keys; every other key is called by its name.
_WORDS = MappingProxyType(
    {"name": "renamed", "project": "moved", "refresh": "policy", "retain": "window"}
)
_POLICIES = MappingProxyType(
    {ReplaceAll: "replace", Diff: "diff", Append: "append", Partitions: "partitions"}
)


def differences(before: Declaration, now: Declaration) -> Iterator[tuple[str, str]]:
    """Yield each difference: what it is about in a word, and a sentence."""
    for path, old, new in _differences(before, now):
        table, keys = (f"{path[1]}: ", path[2:]) if path[0] == "tables" else ("", path)
        about = _WORDS.get(keys[0], keys[0]) if keys else "tables"
        where = f"{'.'.join(keys[1:])}: " if keys[1:] else ""
        yield about, f"{table}{where}{_text(old)} -> {_text(new)}"


def _differences(old: Any, new: Any, *path: str) -> Iterator[tuple[tuple[str, ...], Any, Any]]:
    """Yield the innermost keys that differ, with both of their values."""
    if old == new:
        return
    before, after = _parts(old), _parts(new)
    # A policy of another kind has other keys.
    if before is None or after is None or (is_dataclass(old) and type(old) is not type(new)):
        yield path, old, new
        return
    for key in dict.fromkeys([*before, *after]):
        yield from _differences(before.get(key), after.get(key), *path, key)


def _parts(value: Any) -> Mapping[str, Any] | None:
    """The parts of a value by their keys in YAML, or by their names; None if it has none."""
    if is_dataclass(value):
        known: Any = getattr(value, "__pydantic_fields__", {})
        alias = {name: field.validation_alias for name, field in known.items()}
        named = {
            str(alias.get(each.name) or each.name): getattr(value, each.name)
            for each in fields(value)
        }
        # A column is its type, by its name, and a hierarchy or folder the fields in it.
        return None if list(named) in (["name", "type"], ["name", "fields"]) else named
    if isinstance(value, tuple) and all(hasattr(each, "name") for each in value):
        return {each.name: each for each in value}
    return None


def _text(value: Any) -> str:
    if value in (None, (), ""):
        return "none"
    if isinstance(value, Column):
        return str(value.type)
    if isinstance(value, Members):
        return _text(value.fields)
    if is_dataclass(value):
        parts = {key: each for key, each in (_parts(value) or {}).items() if key != "name"}
        known = {key: each for key, each in parts.items() if each not in (None, (), "")}
        given = {key: each for key, each in known.items() if each is not False}
        listed = ", ".join(f"{key}: {_text(each)}" for key, each in given.items())
        kind = _POLICIES.get(type(value), "")
        return f"{kind} {{{listed}}}".strip() if listed else kind or "as by default"
    if isinstance(value, tuple) and all(isinstance(each, tuple) for each in value):
        return ", ".join(f"{{{left}: {right}}}" for left, right in value)
    if isinstance(value, tuple):
        return ", ".join(_text(each) for each in value)
    return str(value)
