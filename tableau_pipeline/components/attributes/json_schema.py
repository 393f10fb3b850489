"""The JSON schema of a component, for completion in editors and for `dg check yaml`."""

from typing import Any


def without_alternatives(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema with each union replaced by all keys of its members, and open to others.

    A JSON schema validator can only report that a value is "not valid under any of the given
    schemas", or that an unknown key "was unexpected". The keys still serve completion in editors,
    and the component's own validators report what is wrong, and what was perhaps meant.
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
        if name not in ("anyOf", "oneOf", "discriminator", "additionalProperties")
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
