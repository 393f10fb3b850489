"""Read JSON files with one object per line or an array of objects; numbers stay as written."""

import json
import re
from collections.abc import Iterator, Sequence
from itertools import islice
from json import JSONDecodeError
from pathlib import Path
from types import NoneType
from typing import Any, TextIO

import pyarrow as pa

from tableau_pipeline.errors import FilesError
from tableau_pipeline.hyper.types import Column
from tableau_pipeline.ingest.columns import Columns, check_names
from tableau_pipeline.ingest.errors import Chunk, printable
from tableau_pipeline.ingest.options import ReadOptions, open_text
from tableau_pipeline.ingest.values import Guess, is_text, is_time

# The number of objects to convert at once: enough for Arrow to be fast, few enough for the memory.
_CHUNK = 20_000
# The most levels of nested arrays and objects; Python's own limit is somewhat higher.
_MOST_LEVELS = 200
_TOO_DEEP = f"arrays or objects are nested more than {_MOST_LEVELS} times"
_BLANKS = " \t\r\n"
_START = re.compile(rf"[{_BLANKS}]*\[[{_BLANKS}]*(\]?)[{_BLANKS}]*")
_NEXT = re.compile(rf"[{_BLANKS}]*(,|\])[{_BLANKS}]*")
_SURROGATE = re.compile("[\ud800-\udfff]")


class _Number(str):
    """A JSON number as the text in the file."""

    __slots__ = ()


def json_columns(paths: Sequence[Path], options: ReadOptions) -> Columns:
    """Infer the columns of files, sorted by name; refuse names that differ only in case."""
    guesses: dict[str, Guess] = {}
    problem = ""
    for path in paths:
        for objects, problems in _chunks(path, options):
            # Keep only the first problem, for the error below: `json_chunks` yields all problems.
            problem = problem or "".join(f". {path.name}, {': '.join(p)}" for p in problems[:1])
            for name in {key for _, row in objects for key in row}:
                texts = [_json(row[name]) for _, row in objects if row.get(name) is not None]
                guesses.setdefault(name, Guess(options)).see(pa.array(texts, pa.string()))
    first = paths[0].name
    if not guesses:
        raise FilesError(f"{first} has no objects with values: there are no columns{problem}")
    check_names(sorted(guesses), first)
    return Columns(tuple(Column(name, guesses[name].type) for name in sorted(guesses)))


def json_chunks(
    path: Path, options: ReadOptions, columns: Sequence[Column], seen: set[str]
) -> Iterator[Chunk]:
    """Yield the values of the columns as text; add all names in the objects to `seen`."""
    for objects, problems in _chunks(path, options):
        seen.update(*(row for _, row in objects))
        arrays = []
        for column in columns:
            # In text and time columns, take a text unchanged; format all other values as JSON.
            takes_texts = is_text(column.type) or is_time(column.type)
            plain = (str, NoneType) if takes_texts else (NoneType,)
            values = [row.get(column.name) for _, row in objects]
            texts = [value if type(value) in plain else _json(value) for value in values]
            arrays.append(pa.array(texts, pa.string()))
        yield Chunk(arrays, problems, lambda objects=objects: [place for place, _ in objects])


def check_names_seen(seen: set[str], columns: Sequence[str]) -> None:
    """Refuse the objects if a column is in none of them, or if a column has two spellings.

    Raises:
        FilesError: values would be lost. The message lists the columns and the names in the
            objects.
    """
    folded = {name.casefold() for name in columns}
    misspelled = {name for name in seen - set(columns) if name.casefold() in folded}
    if seen and (misspelled := misspelled | (set(columns) - seen)):
        raise FilesError(
            f"The columns are {', '.join(columns)}, and the objects have "
            f'{", ".join(sorted(seen))}: spell "{min(misspelled)}" alike in columns and in all '
            "objects",
        )


def _json(value: Any) -> str:
    """Format a value as JSON, with numbers as they were written."""
    match value:
        case _Number():
            return str(value)
        case dict():
            inner = (f"{_json(name)}:{_json(item)}" for name, item in value.items())
            return f"{{{','.join(inner)}}}"
        case list():
            return f"[{','.join(map(_json, value))}]"
    return json.dumps(value, ensure_ascii=False)


def _chunks(
    path: Path, options: ReadOptions
) -> Iterator[tuple[list[tuple[str, dict[str, Any]]], list[tuple[str, str]]]]:
    """Yield chunks of objects and of problems, each with its place, such as "line 3"."""
    with open_text(path, options.encoding) as text:
        first = next((line for line in text if line.strip(_BLANKS)), "")
        text.seek(0)
        is_array = first.lstrip(_BLANKS).startswith("[")
        values = _array_values(path, text.read()) if is_array else _line_values(text)
        while chunk := [*islice(values, _CHUNK)]:
            objects, problems = [], []
            for place, value in chunk:
                if isinstance(value, dict):
                    objects.append((place, value))
                elif isinstance(value, ValueError):
                    problems.append((place, str(value)))
                else:
                    problems.append((place, f"{printable(_json(value)[:80])} is not an object"))
            yield objects, problems


def _line_values(text: TextIO) -> Iterator[tuple[str, Any]]:
    for number, line in enumerate(text, 1):
        if line.strip(_BLANKS):
            try:
                yield f"line {number}", _checked(_DECODER.decode(line), line)
            except RecursionError:
                yield f"line {number}", ValueError(_TOO_DEEP)
            except ValueError as error:
                problem = f"{_problem(error)}; objects may span lines only in an array"
                yield f"line {number}", ValueError(problem)


def _array_values(path: Path, text: str) -> Iterator[tuple[str, Any]]:
    # Decode one object at a time, because all objects together take far more memory than the text.
    number, at, match = 0, 0, _START.match(text)
    try:
        while match and match[1] != "]":
            number += 1
            value, at = _DECODER.raw_decode(text, match.end())
            yield f"object {number}", _checked(value, text[match.end() : at])
            match = _NEXT.match(text, at)
        if not match or match.end() < len(text):
            raise JSONDecodeError("the array has no end, or text follows its end", text, at)
    except RecursionError as error:
        raise FilesError(f"{path.name}, object {number}: {_TOO_DEEP}") from error
    except ValueError as error:
        raise FilesError(f"{path.name}, object {number}: {_problem(error)}") from error


def _problem(error: ValueError) -> str:
    if not isinstance(error, JSONDecodeError):
        return str(error)
    near = printable(error.doc[max(0, error.pos - 20) : error.pos + 20].strip())
    return f'invalid JSON near "{near}" ({error.msg})'


def _checked(value: Any, text: str) -> Any:
    if text.count("[") + text.count("{") > _MOST_LEVELS and _depth(value) > _MOST_LEVELS:
        raise RecursionError
    if "\\u" in text and isinstance(value, dict):
        for name, item in value.items():
            shown = _json(item)
            if _SURROGATE.search(f"{name}{shown}"):
                problem = f'column "{name}": {shown[:80]} has half of a character'
                raise ValueError(printable(problem))
    return value


def _depth(value: Any) -> int:
    """Count the levels of nested arrays and objects, without recursion."""
    depth, level = 0, [value]
    while level := [item for item in level if isinstance(item, (dict, list))]:
        depth += 1
        level = [
            inner for item in level for inner in (item.values() if isinstance(item, dict) else item)
        ]
    return depth


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f'"{max(names, key=names.count)}" is repeated in one object')
    return values


_DECODER = json.JSONDecoder(
    parse_int=_Number, parse_float=_Number, parse_constant=_Number, object_pairs_hook=_unique
)
