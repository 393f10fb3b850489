"""The objects of a JSON file, each with its line; numbers keep their text."""

import json
import re
from collections.abc import Iterator
from json import JSONDecodeError
from pathlib import Path
from typing import Any

from tableau_pipeline.errors import RefusedError
from tableau_pipeline.ingest.bad_rows import BadRows, printable
from tableau_pipeline.ingest.options import Options
from tableau_pipeline.ingest.text.encoding import open_text

_MANY = 'if objects span lines, set reader: {multiLine: "true"}'
_BLANK = re.compile(r"[ \t\r\n]*")


class Number(str):
    """The text of a JSON number, digit by digit."""

    __slots__ = ()


def json_rows(path: Path, options: Options, bad: BadRows) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield one object per line or, if the file begins with "[", those of an array.

    A line that is not an object is counted in `bad`. With `multiLine`, objects may span lines and
    follow each other.

    Raises:
        RefusedError: a document that spans lines is broken, so that the start of the next
            object is unknown; or the bytes are not text in the encoding.
    """
    with open_text(path, options.encoding) as text:
        start = text.read(1)
        while start and start in " \t\r\n":
            start = text.read(1)
        is_document = options.whole or start == "["
    with open_text(path, options.encoding) as text:
        if is_document:
            yield from _of_document(path, text.read(), bad)
        else:
            for number, line in enumerate(text, 1):
                if line.strip(" \t\r\n"):
                    try:
                        found = _DECODER.decode(line)
                    except ValueError as error:
                        bad.add(f"{path.name}, line {number}", f"{_broken(error, line)}; {_MANY}")
                        continue
                    if row := _object(found, path, number, bad):
                        yield number, row[0]


def _of_document(path: Path, text: str, bad: BadRows) -> Iterator[tuple[int, dict[str, Any]]]:
    line, counted = 1, 0
    position = _after_blanks(text, 0)
    within = False
    while position < len(text):
        if not within and text[position] == "[":
            within, position = True, _after_blanks(text, position + 1)
            if text[position : position + 1] == "]":
                within, position = False, _after_blanks(text, position + 1)
            continue
        # The line is carried on from object to object: counting from the start would be quadratic.
        line, counted = line + text.count("\n", counted, position), position
        try:
            found, position = _DECODER.raw_decode(text, position)
            position = _after_blanks(text, position)
            within, position = _next(text, position, within=within)
        except ValueError as error:
            raise RefusedError(f"{path.name}, line {line}: {_broken(error, text)}") from error
        if row := _object(found, path, line, bad):
            yield line, row[0]
    if within:
        raise RefusedError(f"{path.name}, line {line}: the array has no end; is the file complete?")


def _next(text: str, position: int, *, within: bool) -> tuple[bool, int]:
    """Return whether the next object is in the same array, and where it begins."""
    if not within:
        return False, position
    sign = text[position : position + 1]
    if sign == ",":
        return True, _after_blanks(text, position + 1)
    if sign == "]":
        return False, _after_blanks(text, position + 1)
    if not sign:
        raise ValueError("the array has no end; is the file complete?")
    raise JSONDecodeError("Expecting ',' or ']'", text, position)


def _after_blanks(text: str, position: int) -> int:
    blank = _BLANK.match(text, position)
    return blank.end() if blank else position


def _object(found: Any, path: Path, line: int, bad: BadRows) -> tuple[dict[str, Any]] | None:
    if isinstance(found, dict):
        # The tuple is true even for an object without keys, which is a row of NULLs.
        return (found,)
    bad.add(f"{path.name}, line {line}", f"{printable(json_text(found)[:80])} is not an object")
    return None


def json_text(value: Any) -> str:
    """Format a value as JSON, with numbers as they were written."""
    match value:
        case Number():
            return str(value)
        case dict():
            inner = (f"{json_text(name)}:{json_text(each)}" for name, each in value.items())
            return f"{{{','.join(inner)}}}"
        case list():
            return f"[{','.join(map(json_text, value))}]"
    return json.dumps(value, ensure_ascii=False)


def _broken(error: ValueError, text: str) -> str:
    if not isinstance(error, JSONDecodeError):
        return str(error)
    near = text[max(0, error.pos - 20) : error.pos + 20].strip()
    return f'invalid JSON near "{printable(near)}" ({error.msg})'


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f'"{twice}" is repeated in one object')
    return found


_DECODER = json.JSONDecoder(
    parse_int=Number, parse_float=Number, parse_constant=Number, object_pairs_hook=_unique
)
