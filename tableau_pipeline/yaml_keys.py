"""Define `keyed`, a decorator for frozen dataclasses whose objects can be written in YAML.

Errors point at the wrong key.
"""

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
# The current names of renamed keys, by former name. `guess` alone would not find the current names,
# because they are too different.
_RENAMED = MappingProxyType({"rebase": "republish", "columns": "contract"})


@dataclass_transform(frozen_default=True, field_specifiers=(Field,))
def keyed(cls: type[T]) -> type[T]:
    """Make a class a frozen dataclass whose objects can also be read from a mapping.

    In YAML, the key of a field is the `validation_alias`, or else the name of the field. A field of
    type `SkipJsonSchema` has no key. An unknown key is an error, whose message lists the known
    keys.
    """
    of_keys: Any = classmethod(_of_keys)
    # Set the validator as an attribute of the class, because pydantic looks for validators there.
    setattr(cls, "_of_keys", model_validator(mode="wrap")(of_keys))  # noqa: B010
    # Hide inputs in pydantic's errors, because inputs may be secrets.
    config = ConfigDict(
        extra="forbid", validate_by_alias=True, validate_by_name=True, hide_input_in_errors=True
    )
    return dataclass(frozen=True, config=config)(cls)


def _of_keys(cls: Any, value: Any, handler: Callable[[Any], Any]) -> Any:
    if not isinstance(value, dict):
        return handler(value)
    # YAML 1.1 reads a bare `on` as true.
    given = {"on" if key is True else key: content for key, content in value.items()}
    known = [
        str(field.validation_alias or name)
        for name, field in cls.__pydantic_fields__.items()
        if not any(type(item) is SkipJsonSchema for item in field.metadata)
    ]
    listed = ", ".join(known)
    problems = [
        _problem((key,), f"unknown key: {suggestion}The known keys are {listed}")
        for key in given
        if key not in known
        for suggestion in [guess(key, known) or guess(_RENAMED.get(str(key)), known)]
    ]
    try:
        result = handler({key: given[key] for key in known if key in given})
    except ValidationError as error:
        # If there are unknown keys, leave out errors of the whole mapping: the unknown keys may
        # cause them.
        problems += [problem for problem in error.errors() if problem["loc"] or not problems]
    if problems:
        raise ValidationError.from_exception_data(cls.__name__, problems)
    return result


def written_as(form: Any, convert: Callable[[Any], Any]) -> BeforeValidator:
    """Return a validator for a field that is a tuple in Python, and has another form in YAML.

    Args:
        form: the type of the form in YAML, which pydantic validates.
        convert: a function that converts a value of this form to the tuple.
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
    """Return 'did you mean "..."? ' with the most similar known name; "" if no name is similar."""
    matches = get_close_matches(str(name), list(known), n=1)
    return f'did you mean "{matches[0]}"? ' if matches else ""


def _known_zone(zone: str) -> str:
    try:
        ZoneInfo(zone)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        suggestion = guess(zone, available_timezones())
        raise ValueError(
            f'"{zone}" is not a time zone: {suggestion}Write it as "Europe/Paris", or UTC'
        ) from None
    return zone


# The name of a time zone.
Zone = Annotated[str, AfterValidator(_known_zone)]
# Pairs of texts; their form in YAML is a mapping.
Pairs = Annotated[
    tuple[tuple[str, str], ...],
    written_as(dict[str, str], lambda mapping: tuple(mapping.items())),
]


# The characters that XML cannot represent. Tableau writes all names and texts in XML.
NO_TEXT = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def not_for_tableau(text: str) -> str | None:
    """Return the first character that Tableau cannot store, such as "U+000B"; else None."""
    match = NO_TEXT.search(text)
    return f"U+{ord(match[0]):04X}" if match else None


def texts_in(value: Any, at: tuple[str | int, ...] = ()) -> Iterator[tuple[tuple[Any, ...], str]]:
    """Yield each text in nested dataclasses, mappings and sequences, with the keys of the text."""
    if isinstance(value, str):
        yield at, value
    elif is_dataclass(value) and not isinstance(value, type):
        for field in fields(value):
            yield from texts_in(getattr(value, field.name), (*at, field.name))
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from texts_in(item, (*at, key))
    elif isinstance(value, tuple | list):
        for number, item in enumerate(value):
            yield from texts_in(item, (*at, number))
