"""The JSON schema of a component: editors complete by it, and `dg check yaml` judges by it."""

from typing import Any


def without_alternatives(schema: dict[str, Any]) -> dict[str, Any]:
    """The same, where a key may have one of several forms without a judgement on the form.

    A validator of JSON schemas can only say that a value is "not valid under any of the given
    schemas". The keys of all forms stay, for editors; what is wrong, the component itself tells.
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
        if name not in ("anyOf", "oneOf", "discriminator")
    }
    forms = _forms(schema, definitions)
    types = [form.get("type") for form in forms if form.keys() <= {"type"}]
    if forms and len(types) == len(forms):
        plain["type"] = types
    elif properties := _properties(forms, definitions):
        plain["properties"] = properties
    return plain


def _forms(schema: dict[str, Any], definitions: dict[str, Any]) -> list[dict[str, Any]]:
    """The alternatives of a schema, with those of its alternatives."""
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
