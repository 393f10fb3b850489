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
