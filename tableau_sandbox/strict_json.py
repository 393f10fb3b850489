"""Read JSON strictly: refuse a text that two JSON parsers could understand differently."""

import json
from collections.abc import Callable
from typing import Any

from pydantic import ValidationError

# The condition of an action batch may have 100 levels; each level takes two levels of JSON.
_DEEPEST = 250
_LONGEST_NUMBER = 1000


class JsonError(ValueError):
    """A text is not JSON, or parsers may disagree on its value; the message states the reason."""


def read_json(body: bytes) -> Any:
    """Return the value of a JSON text in UTF-8; a byte order mark is optional.

    Raises:
        JsonError: the text is not JSON, repeats a key, is nested too deeply, or has a number or a
            character that some parsers do not accept.
    """
    try:
        value = json.loads(
            body.decode("utf-8-sig"),
            object_pairs_hook=_object,
            parse_int=_number(int),
            parse_float=_number(float),
            parse_constant=_no_number,
        )
        _check(value, levels=_DEEPEST)
    except JsonError:
        raise
    except RecursionError as error:
        raise JsonError("the JSON is nested too deeply") from error
    except ValueError as error:
        raise JsonError(f"the text is not JSON: {error}") from error
    return value


def first_problem(error: ValidationError) -> str:
    """Describe the first error: the place, the reason, and the value."""
    problem: Any = error.errors(include_url=False)[0]
    place = ".".join(map(str, problem["loc"])) or "the body"
    reason = problem["msg"].removeprefix("Value error, ")
    return f"{place}: {reason}; it is {problem['input']!r:.200}"


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        raise JsonError(f"a key is repeated among {', '.join(key for key, _ in pairs)!a}")
    return fields


def _number(read: Callable[[str], Any]) -> Callable[[str], Any]:
    def checked(written: str) -> Any:
        if len(written) > _LONGEST_NUMBER:
            raise JsonError(f"a number has more than {_LONGEST_NUMBER} characters")
        value = read(written)
        if value in (float("inf"), float("-inf")):
            raise JsonError(f"{written} is beyond the range of numbers")
        return value

    return checked


def _no_number(written: str) -> None:
    raise JsonError(f"{written} is not a number")


def _check(value: object, *, levels: int) -> None:
    if isinstance(value, str):
        # hyperd treats U+0000 as the end of a statement, and half a surrogate pair is not a
        # character.
        if "\0" in value or any("\ud800" <= letter <= "\udfff" for letter in value):
            raise JsonError(f"{value[:100]!a} is not valid text: U+0000 or half a character")
    elif isinstance(value, dict | list):
        if not levels:
            raise JsonError(f"the JSON has more than {_DEEPEST} levels")
        for item in (*value, *value.values()) if isinstance(value, dict) else value:
            _check(item, levels=levels - 1)
