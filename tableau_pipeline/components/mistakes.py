"""The base class of the classes that read YAML keys."""

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any, Self

import dagster as dg
from pydantic import ConfigDict, ModelWrapValidatorHandler, ValidationError, model_validator

_OF_SEVERAL_FORMS = ("iceberg", "refresh", "timestamps", "trigger")


class DeclarationError(ValueError):
    """A declaration is wrong; the message names file, line and key, and what is allowed there."""


class Attributes(dg.Model):
    """Nested YAML keys. An unknown key is an error that lists the known ones."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    @model_validator(mode="wrap")
    @classmethod
    def _known_keys(cls, value: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        try:
            return handler(value)
        except ValidationError as error:
            known = [field.alias or name for name, field in cls.model_fields.items()]
            raise ValidationError.from_exception_data(
                error.title, [_in_words(each, known) for each in error.errors()]
            ) from None


def mistake(at: tuple[str | int, ...], value: Any, problem: str) -> ValidationError:
    """Return a validation error that points at a nested key."""
    line: Any = {"type": "value_error", "loc": at, "input": value}
    return ValidationError.from_exception_data(
        "mistake", [{**line, "ctx": {"error": ValueError(problem)}}]
    )


def guess(name: str, known: Iterable[str]) -> str:
    """Return 'did you mean "..."? ' for the most similar known name; "" if none is similar."""
    found = get_close_matches(name, list(known), n=1)
    return f'did you mean "{found[0]}"? ' if found else ""


def keys(value: Any) -> list[str]:
    """Return the keys of a mapping, or the field names of a model parsed from one."""
    if isinstance(value, dict):
        return list(value)
    return list(type(value).model_fields) if isinstance(value, Attributes) else []


def _in_words(error: Any, known: list[str]) -> Any:
    if len(error["loc"]) > 1 and error["loc"][0] in _OF_SEVERAL_FORMS:
        # pydantic puts the name of the chosen union member between a key and its nested keys.
        field, _, *rest = error["loc"]
        error = {**error, "loc": (field, *rest)}
    # A longer place belongs to a nested model, whose own validator has already put it into words.
    if error["type"] != "extra_forbidden" or len(error["loc"]) > 1:
        return error
    name = str(error["loc"][-1])
    problem = f"unknown key: {guess(name, known)}The known keys are {', '.join(known)}"
    return {**error, "type": "value_error", "ctx": {"error": ValueError(problem)}}


# The JSON schema of a component, for completion in editors and for `dg check yaml`.


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
