"""JSON with its numbers as they are written: an object a line, or an array of objects."""

import json
import re
from collections.abc import Iterator, Sequence
from itertools import islice
from json import JSONDecodeError
from pathlib import Path
from typing import Any, TextIO

import pyarrow as pa
from pyspark.sql import types as T

from tableau_pipeline.errors import RefusedError
from tableau_pipeline.ingest.errors import Chunk, printable
from tableau_pipeline.ingest.options import Options
from tableau_pipeline.ingest.text import open_text
from tableau_pipeline.ingest.values import STRINGS, TIMES, Guess, check_names

# Objects that are converted at once: enough for Arrow to be fast, few enough to fit in memory.
_AT_ONCE = 20_000
_MANY = 'if objects span lines, set reader: {multiLine: "true"}'
_SURROGATE = re.compile("[\ud800-\udfff]")
_BLANK = re.compile(r"[ \t\r\n]*")
# Objects, and problems, with their lines.
_Rows = tuple[list[tuple[int, dict[str, Any]]], list[tuple[int, str]]]


class _Number(str):
    """The text of a JSON number, digit by digit."""

    __slots__ = ()


def json_schema(paths: Sequence[Path], options: Options) -> T.StructType:
    """Return the columns of files, sorted by name.

    Raises:
        RefusedError: two names differ only in case; also as `json_chunks`.
    """
    guesses: dict[str, Guess] = {}
    problem = ""
    for path in paths:
        for rows, problems in _chunks(path, options):
            # They are reported when the rows are read.
            problem = problem or "".join(f". {path.name}, line {n}: {p}" for n, p in problems[:1])
            for name in {name for _, row in rows for name in row}:
                texts = [_json(row[name]) for _, row in rows if row.get(name) is not None]
                guesses.setdefault(name, Guess(options)).see(pa.array(texts, pa.string()))
    if not guesses:
        raise RefusedError(
            f"{paths[0].name} has no objects with values: there are no columns{problem}"
        )
    check_names(sorted(guesses), paths[0].name)
    return T.StructType([T.StructField(name, guesses[name].type) for name in sorted(guesses)])


def json_chunks(
    path: Path, options: Options, schema: T.StructType, seen: set[str]
) -> Iterator[Chunk]:
    """Yield the values of the columns as text; collect the names of the objects in `seen`.

    Raises:
        RefusedError: a document that spans lines is broken, so that the start of the next
            object is unknown; or the bytes are not text in the encoding.
    """
    for rows, problems in _chunks(path, options):
        seen.update(*(row for _, row in rows))
        columns = [
            pa.array([_text(row.get(each.name), each.dataType) for _, row in rows], pa.string())
            for each in schema
        ]
        lines = [line for line, _ in rows]
        yield Chunk(columns, problems, lambda lines=lines: lines)


def check_seen(seen: set[str], columns: Sequence[str]) -> None:
    """Refuse JSON whose names are not those of the columns, or only nearly so.

    Args:
        seen: the names that the objects have.
    """
    absent = [name for name in columns if seen and name not in seen]
    if absent:
        raise RefusedError(
            f'columns declares "{absent[0]}", which no object has; the objects have '
            f"{', '.join(sorted(seen))}"
        )
    folded = {name.casefold(): name for name in columns}
    # Its values would be left out, and the column would be NULL in their place.
    for name in sorted(seen - set(columns)):
        if name.casefold() in folded:
            raise RefusedError(
                f'The objects have "{folded[name.casefold()]}" and "{name}", which differ only in '
                "case: use one spelling"
            )


def _text(value: Any, type_: T.DataType) -> str | None:
    """Return a text as it is if the type is one of texts, other values as JSON."""
    is_text = value is None or (type(value) is str and isinstance(type_, STRINGS + TIMES))
    return value if is_text else _json(value)


def _json(value: Any) -> str:
    """Format a value as JSON, with numbers as they were written."""
    match value:
        case _Number():
            return str(value)
        case dict():
            inner = (f"{_json(name)}:{_json(each)}" for name, each in value.items())
            return f"{{{','.join(inner)}}}"
        case list():
            return f"[{','.join(map(_json, value))}]"
    return json.dumps(value, ensure_ascii=False)


def _chunks(path: Path, options: Options) -> Iterator[_Rows]:
    with open_text(path, options.encoding) as text:
        start = text.read(1)
        while start and start in " \t\r\n":
            start = text.read(1)
    with open_text(path, options.encoding) as text:
        is_document = options.whole or start == "["
        values = _of_document(path, text.read()) if is_document else _of_lines(text)
        while chunk := [*islice(values, _AT_ONCE)]:
            rows, problems = [], []
            for line, value in chunk:
                if isinstance(value, dict):
                    rows.append((line, value))
                elif isinstance(value, _BrokenError):
                    problems.append((line, str(value)))
                else:
                    problems.append((line, f"{printable(_json(value)[:80])} is not an object"))
            yield rows, problems


class _BrokenError(Exception):
    """A text is not JSON."""


def _of_lines(text: TextIO) -> Iterator[tuple[int, Any]]:
    for number, line in enumerate(text, 1):
        if line.strip(" \t\r\n"):
            try:
                yield number, _whole(_DECODER.decode(line), line)
            except ValueError as error:
                yield number, _broken(error, line)


def _of_document(path: Path, text: str) -> Iterator[tuple[int, Any]]:
    line, counted = 1, 0
    position, within = _after_blanks(text, 0), False
    while position < len(text):
        if not within and text[position] == "[":
            within, position = True, _after_blanks(text, position + 1)
            if text[position : position + 1] == "]":
                within, position = False, _after_blanks(text, position + 1)
            continue
        # The line is carried on from object to object: counting from the start would be quadratic.
        line, counted = line + text.count("\n", counted, position), position
        try:
            found, end = _DECODER.raw_decode(text, position)
            found, position = _whole(found, text[position:end]), end
            position = _after_blanks(text, position)
            if within:
                sign = text[position : position + 1]
                if sign and sign not in ",]":
                    raise JSONDecodeError("Expecting ',' or ']'", text, position)
                if sign:
                    within, position = sign == ",", _after_blanks(text, position + 1)
        except ValueError as error:
            raise RefusedError(f"{path.name}, line {line}: {_broken(error, text)}") from error
        yield line, found
    if within:
        raise RefusedError(f"{path.name}, line {line}: the array has no end; is the file complete?")


def _whole(value: Any, text: str) -> Any:
    if "\\u" in text and isinstance(value, dict):
        for name, each in value.items():
            if _SURROGATE.search(_json(each)):
                shown = printable(_json(each)[:80])
                raise ValueError(f'column "{name}": {shown} has half of a character')
    return value


def _after_blanks(text: str, position: int) -> int:
    blank = _BLANK.match(text, position)
    return blank.end() if blank else position


def _broken(error: ValueError, text: str) -> _BrokenError:
    if not isinstance(error, JSONDecodeError):
        return _BrokenError(str(error))
    near = text[max(0, error.pos - 20) : error.pos + 20].strip()
    return _BrokenError(f'invalid JSON near "{printable(near)}" ({error.msg}); {_MANY}')


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f'"{twice}" is repeated in one object')
    return found


_DECODER = json.JSONDecoder(
    parse_int=_Number, parse_float=_Number, parse_constant=_Number, object_pairs_hook=_unique
)
