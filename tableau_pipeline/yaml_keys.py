"""Frozen values that are made in Python, or of the keys of YAML, and the mistakes in such keys."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from difflib import get_close_matches
from types import MappingProxyType
from typing import Annotated, Any, TypeVar, dataclass_transform
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
    model_validator,
)
from pydantic.dataclasses import dataclass
from pydantic.json_schema import SkipJsonSchema

T = TypeVar("T")
# Keys of former names that are not alike.
_NOW = MappingProxyType({"rebase": "republish", "columns": "contract"})


@dataclass_transform(frozen_default=True, field_specifiers=(Field,))
def keyed(cls: type[T]) -> type[T]:
    """Make a class a frozen dataclass that is read from a mapping, too.

    In YAML, a field has its `validation_alias` as its key, if it has one. An unknown key is an
    error that lists the known ones. A field of type `SkipJsonSchema` has no key.
    """
    of_keys: Any = classmethod(_of_keys)
    # pydantic finds a validator among the attributes of the class.
    setattr(cls, "_of_keys", model_validator(mode="wrap")(of_keys))  # noqa: B010
    # Messages name the value where that helps; it may be a secret.
    config = ConfigDict(
        extra="forbid", validate_by_alias=True, validate_by_name=True, hide_input_in_errors=True
    )
    return dataclass(frozen=True, config=config)(cls)


def _of_keys(cls: Any, value: Any, handler: Callable[[Any], Any]) -> Any:
    if not isinstance(value, dict):
        return handler(value)
    # YAML 1.1 reads a bare `on` as true.
    given = {"on" if key is True else key: each for key, each in value.items()}
    known = [
        str(field.validation_alias or name)
        for name, field in cls.__pydantic_fields__.items()
        if not any(type(each) is SkipJsonSchema for each in field.metadata)
    ]
    listed = ", ".join(known)
    problems = [
        _problem((key,), f"unknown key: {meant}The known keys are {listed}")
        for key in given
        if key not in known
        for meant in [guess(key, known) or guess(_NOW.get(str(key)), known)]
    ]
    try:
        found = handler({key: given[key] for key in known if key in given})
    except ValidationError as error:
        # What is wrong with all keys together may be due to the unknown one.
        problems += [each for each in error.errors() if each["loc"] or not problems]
    if problems:
        raise ValidationError.from_exception_data(cls.__name__, problems)
    return found


def written_as(form: Any, convert: Callable[[Any], Any]) -> BeforeValidator:
    """Return a validator of a field that is a tuple in Python, and has another form in YAML.

    Args:
        form: the form in YAML, as a type with its own errors.
        convert: makes the tuple of the form.
    """
    adapter = TypeAdapter(form)
    return BeforeValidator(
        lambda value: (
            value if isinstance(value, tuple) else convert(adapter.validate_python(value))
        ),
        json_schema_input_type=form,
    )


def mistake(at: tuple[str | int, ...], problem: str) -> ValidationError:
    """Return a validation error that points at a nested key."""
    return ValidationError.from_exception_data("mistake", [_problem(at, problem)])


def _problem(at: tuple[str | int, ...], problem: str) -> Any:
    return {"type": "value_error", "loc": at, "input": None, "ctx": {"error": ValueError(problem)}}


def guess(name: object, known: Iterable[str]) -> str:
    """Return 'did you mean "..."? ' for the most similar known name; "" if none is similar."""
    found = get_close_matches(str(name), list(known), n=1)
    return f'did you mean "{found[0]}"? ' if found else ""


def _known_zone(zone: str) -> str:
    try:
        ZoneInfo(zone)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        meant = guess(zone, available_timezones())
        raise ValueError(
            f'"{zone}" is not a time zone: {meant}Write it as "Europe/Paris", or UTC'
        ) from None
    return zone


# The name of a time zone.
Zone = Annotated[str, AfterValidator(_known_zone)]
# In YAML, a mapping.
Pairs = Annotated[
    tuple[tuple[str, str], ...],
    written_as(dict[str, str], lambda found: tuple(found.items())),
]


# Characters that XML cannot hold, in which Tableau writes all names and texts.
NO_TEXT = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def not_for_tableau(text: str) -> str | None:
    """Return the character in a text that Tableau cannot hold, as "U+000B"; None if all is well."""
    found = NO_TEXT.search(text)
    return f"U+{ord(found[0]):04X}" if found else None


def texts_in(value: Any, at: tuple[str | int, ...] = ()) -> Iterator[tuple[tuple[Any, ...], str]]:
    """Yield all texts in a value of dataclasses, mappings and sequences, with their places."""
    if isinstance(value, str):
        yield at, value
    elif is_dataclass(value) and not isinstance(value, type):
        for each in fields(value):
            yield from texts_in(getattr(value, each.name), (*at, each.name))
    elif isinstance(value, Mapping):
        for key, each in value.items():
            yield from texts_in(each, (*at, key))
    elif isinstance(value, tuple | list):
        for number, each in enumerate(value):
            yield from texts_in(each, (*at, number))
