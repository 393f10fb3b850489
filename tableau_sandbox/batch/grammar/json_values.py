"""Parse JSON strictly: repeated and unknown keys are errors."""

import json
from collections.abc import Collection
from typing import Any

from tableau_sandbox.batch.errors import GrammarError

_LONGEST_NAME = 255


def parse_json(body: bytes) -> object:
    """Parse a JSON text.

    Raises:
        GrammarError: it is not JSON, repeats a key, or is nested too deeply.
    """
    try:
        return json.loads(
            body.decode("utf-8-sig"), object_pairs_hook=_object, parse_constant=_no_number
        )
    except RecursionError as error:
        raise GrammarError("the JSON is nested too deeply") from error
    except GrammarError:
        # It is a ValueError too, and states already what is wrong.
        raise
    # These include texts that are not UTF-8, and numbers with thousands of digits.
    except ValueError as error:
        raise GrammarError(f"the body is not JSON: {error}") from error


def fields_of(value: object, *, known: Collection[str], what: str) -> dict[str, Any]:
    """Return the fields of a JSON object.

    Raises:
        GrammarError: it is not an object, or has an unknown key.
    """
    if not isinstance(value, dict):
        raise GrammarError(f"{what} must be a JSON object")
    for key in value:
        if key not in known:
            raise GrammarError(f"{what} has the unknown key {key!r}; known: {', '.join(known)}")
    return value


def name_of(value: object, *, what: str) -> str:
    """Return the name of a table, schema or column.

    Raises:
        GrammarError: it is not a valid name.
    """
    if not isinstance(value, str):
        raise GrammarError(f"{what} must be a string")
    if not 0 < len(value) <= _LONGEST_NAME:
        raise GrammarError(f"{what} must have 1 to {_LONGEST_NAME} characters")
    return value


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        raise GrammarError(f"a key is repeated among {', '.join(key for key, _ in pairs)}")
    for text in (*fields, *fields.values()):
        if isinstance(text, str):
            _check_text(text)
    return fields


def _check_text(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise GrammarError(f"{text!a} is not Unicode text") from error
    # hyperd treats it as the end of a statement.
    if "\0" in text:
        raise GrammarError(f"{text!r} contains U+0000")


def _no_number(text: str) -> None:
    raise GrammarError(f"{text} is not JSON")
