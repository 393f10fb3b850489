"""The bytes of files as text, and its records: of CSV by RFC 4180, of JSON with numbers as text."""

import bz2
import codecs
import gzip
import json
import re
import zlib
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from io import TextIOWrapper
from json import JSONDecodeError
from pathlib import Path
from typing import Any, BinaryIO, NoReturn, TextIO, cast

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv

from tableau_pipeline.errors import RefusedError
from tableau_pipeline.ingest.errors import BadRows, Number, json_text, printable
from tableau_pipeline.ingest.options import Options

# Byte order marks, and the encodings that begin with each; the first name is shown or decoded with.
_MARKS = {
    # These come first: the little-endian mark of UTF-32 begins with that of UTF-16.
    codecs.BOM_UTF32_LE: ("UTF-32", "utf-32", "utf-32-le"),
    codecs.BOM_UTF32_BE: ("UTF-32", "utf-32", "utf-32-be"),
    codecs.BOM_UTF8: ("utf-8-sig", "utf-8"),
    codecs.BOM_UTF16_LE: ("utf-16", "utf-16-le"),
    codecs.BOM_UTF16_BE: ("utf-16", "utf-16-be"),
}
_UNMARKED = {"utf-16": "UTF-16LE or UTF-16BE", "utf-32": "UTF-32LE or UTF-32BE"}
_GZIP = b"\x1f\x8b"
_SAY_ENCODING = "Declare its encoding, such as reader: {encoding: windows-1252}"
_BLOCK = 1 << 22
_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n|\Z)")
_MANY = 'if objects span lines, set reader: {multiLine: "true"}'
_SURROGATE = re.compile("[\ud800-\udfff]")
_BLANK = re.compile(r"[ \t\r\n]*")


@contextmanager
def open_text(path: Path, encoding: str | None) -> Generator[TextIO]:
    """Open a file as text, without byte order mark, line ends unchanged; unpack gzip and bzip2.

    Args:
        encoding: Python's name of it; None for UTF-8, or UTF-16 with a byte order mark.

    Raises:
        RefusedError: the bytes are in another encoding, or damaged; names file and remedy.
    """
    try:
        with _opened(path) as file:
            name = _encoding(path, file.read(4), encoding)
        with _opened(path) as file, TextIOWrapper(file, encoding=name, newline="") as text:
            # A declared encoding keeps the mark, which would become part of the first name.
            if text.read(1) != "\ufeff":
                text.seek(0)
            yield text
    except UnicodeDecodeError as error:
        raise RefusedError(_wrong_bytes(path, name)) from error
    except EOFError as error:
        raise RefusedError(f"{path.name} is damaged: its compressed data end early") from error
    except (OSError, zlib.error) as error:
        # An error of the operating system has a number, and is not about the file's content.
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise RefusedError(f"{path.name} is damaged: it cannot be unpacked ({error})") from error


def _opened(path: Path) -> BinaryIO:
    match path.suffix.lower():
        case ".gz":
            return cast("BinaryIO", gzip.open(path))
        case ".bz2":
            return cast("BinaryIO", bz2.open(path))
    return path.open("rb")


def _encoding(path: Path, start: bytes, given: str | None) -> str:
    # No text in any of the usual encodings begins so.
    if start.startswith(_GZIP):
        raise RefusedError(
            f"{path.name} is packed with gzip: unpack it, or let its name end in .gz"
        )
    names = next((names for bytes_, names in _MARKS.items() if start.startswith(bytes_)), ())
    mark = names[0] if names else None
    if given:
        # Without a mark Python would assume the byte order of the machine that runs it.
        if given in _UNMARKED and not mark:
            raise RefusedError(
                f"{path.name} has no byte order mark: set reader: {{encoding: {_UNMARKED[given]}}}"
            )
        if mark and given not in names:
            remedy = "set encoding: UTF-32" if mark == "UTF-32" else "remove encoding"
            raise RefusedError(
                f"{path.name} begins with the byte order mark of {_shown(mark)}, so it is not "
                f"{given}: {remedy}"
            )
        return given
    # UTF-8 text has no zero bytes in practice; the others have them in every Latin letter.
    if mark == "UTF-32" or (not mark and b"\0" in start):
        likely = mark or ("UTF-16BE" if start[:1] == b"\0" else "UTF-16LE")
        raise RefusedError(
            f"{path.name} is not UTF-8: it seems to be {likely}. If so, set reader: "
            f"{{encoding: {likely}}}"
        )
    return mark or "utf-8"


def _wrong_bytes(path: Path, encoding: str) -> str:
    """Locate the first wrong byte; the text reader decodes in blocks and cannot."""
    decoder = codecs.getincrementaldecoder(encoding)()
    line, block = 1, b"\n"
    with _opened(path) as file:
        while block:
            block = file.read(1 << 16)
            try:
                line += decoder.decode(block, final=not block).count("\n")
            except UnicodeDecodeError as error:
                line += error.object[: error.start].decode(encoding, errors="ignore").count("\n")
                return (
                    f"{path.name}, line {line}: the byte 0x{error.object[error.start]:02X} is not "
                    f"{_shown(encoding)}. {_SAY_ENCODING}"
                )
    return f"{path.name} is not {_shown(encoding)}. {_SAY_ENCODING}"


def _shown(encoding: str) -> str:
    return {"utf-8": "UTF-8", "utf-8-sig": "UTF-8", "utf-16": "UTF-16"}.get(encoding, encoding)


class UnusualError(Exception):
    """A CSV file is not as simple as `quick_csv` needs it, or is broken."""


def quick_csv(path: Path, options: Options, width: int) -> Iterator[list[pa.Array]]:
    """Read the rows of a simple CSV file by Arrow, column by column; a bare empty value is NULL.

    Raises:
        UnusualError: `csv_records` has to read the file, from its start.
        RefusedError: the bytes are not text in the encoding.
    """
    signs = options.separator + options.quote
    if options.escape or options.comment or options.trims or not signs.isascii():
        raise UnusualError
    names = [str(number) for number in range(width)]
    parse = pa_csv.ParseOptions(
        delimiter=options.separator,
        quote_char=options.quote or False,
        newlines_in_values=bool(options.quote),
        ignore_empty_lines=width > 1,
    )
    convert = pa_csv.ConvertOptions(
        column_types=dict.fromkeys(names, pa.string()),
        null_values=[""],
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
    )
    has_header = options.header
    with open_text(path, options.encoding) as text:
        for block in _simple_blocks(text, options):
            read = pa_csv.ReadOptions(column_names=names, block_size=len(block) + 1)
            try:
                rows = pa_csv.read_csv(
                    pa.BufferReader(block), read, parse_options=parse, convert_options=convert
                ).combine_chunks()
            except pa.ArrowInvalid as error:
                raise UnusualError from error
            # With one column, this is a blank line.
            if width == 1 and rows.column(0).null_count:
                raise UnusualError
            if len(rows):
                yield [each.chunk(0) for each in rows.slice(int(has_header)).columns]
                has_header = False


def _simple_blocks(text: TextIO, options: Options) -> Iterator[bytes]:
    """Yield whole records in UTF-8, if no quote and no line end is out of place."""
    around = np.frombuffer(f"{options.separator}\r\n{options.quote}".encode(), np.uint8)
    while start := text.read(_BLOCK):
        lines = [start, text.readline()]
        # Within quotes, a value goes on in the next line.
        within = bool(options.quote) and sum(each.count(options.quote) for each in lines) % 2 == 1
        while within:
            lines.append(text.readline())
            within ^= lines[-1].count(options.quote) % 2 == 1
            if not lines[-1] or len(lines) > _BLOCK:
                raise UnusualError
        block = "".join(lines).encode()
        # A carriage return alone may end a line or be part of a value.
        if block.count(b"\r") != block.count(b"\r\n"):
            raise UnusualError
        if options.quote:
            signs = np.frombuffer(b"\n" + block + b"\n", np.uint8)
            # Quotes open and close in turn; a doubled one closes and opens.
            quotes = np.flatnonzero(signs == ord(options.quote))
            beside = np.concatenate([signs[quotes[::2] - 1], signs[quotes[1::2] + 1]])
            if not np.isin(beside, around).all():
                raise UnusualError
        # Arrow takes off one mark; a second one is text. And without a line end, it takes a bare
        # empty value for a quoted one.
        yield codecs.BOM_UTF8 + block + (b"" if block.endswith(b"\n") else b"\n")


def csv_records(path: Path, options: Options) -> Iterator[tuple[int, list[str | None]]]:
    """Yield all records with their first line, the header too; a blank line has no values.

    An empty value without quotes is None; an empty value in quotes is "".

    Raises:
        RefusedError: quotes are not closed or stray, so that the end of a record is unknown; or
            the bytes are not text in the encoding.
    """
    field, common_end = _field(options), ""
    buffer, at, line, is_all = "", 0, 1, False
    with open_text(path, options.encoding) as text:
        while at < len(buffer) or not is_all:
            is_comment = bool(options.comment) and buffer.startswith(options.comment, at)
            values, position, end = _record(buffer, at, field, options)
            if is_comment and (found := _LINE.match(buffer, at)):
                position = found.end()
            is_stray = end is None and _is_stray(buffer, position, options)
            if not is_all and (position == len(buffer) or (end is None and not is_stray)):
                more = text.read(max(_BLOCK, len(buffer) - at))
                buffer, at, is_all = buffer[at:] + more, 0, not more
                continue
            if is_comment:
                end = ""
            elif end is None:
                _refuse(path, line, buffer[at:], position=position - at, options=options)
            record = buffer[at:position]
            lines = record.count("\n") + record.count("\r") - record.count("\r\n")
            if not is_comment:
                # CR LF counts as LF. A lone CR among them is more likely part of a value.
                common_end = common_end or end[-1:]
                if end and end[-1] != common_end:
                    raise RefusedError(
                        f"{path.name}, line {line + lines - 1}: some lines end in a carriage "
                        "return alone, others in a line feed, and a value with one of them must "
                        "be quoted: quote it, or use the same line end everywhere"
                    )
                yield line, values if values != [None] else []
            line, at = line + lines, position


def _quoted(options: Options) -> re.Pattern[str]:
    """Return the pattern of a value in quotes, with what is between them as its group."""
    quote, escape = re.escape(options.quote), re.escape(options.escape)
    inner = rf"[^{quote}{escape}]|{_escaped(options) or quote * 2}"
    return re.compile(rf"{' *+' * options.trim_left}{quote}((?:{inner})*+){quote}", re.DOTALL)


def _escaped(options: Options) -> str:
    quote, separator, escape = map(re.escape, (options.quote, options.separator, options.escape))
    return rf"{escape}[{quote}{escape}{separator}]" if escape else ""


def _field(options: Options) -> re.Pattern[str]:
    """Return the pattern of a value and what ends it; its groups are quoted, bare and end."""
    quote, separator, escape = map(re.escape, (options.quote, options.separator, options.escape))
    known = f"|{_escaped(options)}" if escape else ""
    bare = rf"{' *+' * options.trim_left}((?:[^{separator}\r\n{escape}]{known})*+)"
    if quote:
        value = rf"(?:{_quoted(options).pattern}|(?!{' *+' * options.trim_left}{quote}){bare})"
    else:
        value = rf"(\Z.)?{bare}"
    return re.compile(rf"{value}({separator}|\r\n|\r|\n|\Z)", re.DOTALL)


def _is_stray(buffer: str, position: int, options: Options) -> bool:
    """Whether something follows the quote that ends a value."""
    found = _quoted(options).match(buffer, position) if options.quote else None
    return found is not None and found.end() < len(buffer)


def _record(
    buffer: str, at: int, field: re.Pattern[str], options: Options
) -> tuple[list[str | None], int, str | None]:
    """Return the values of a record, and where and how it ends.

    The end is None if it is broken there, or goes on beyond the buffer.
    """
    values: list[str | None] = []
    while found := field.match(buffer, at):
        quoted, bare, end = found.groups()
        value = (bare or "") if quoted is None else quoted
        if options.escape:
            value = re.sub(rf"{re.escape(options.escape)}(.)", r"\1", value, flags=re.DOTALL)
        elif quoted:
            value = value.replace(options.quote * 2, options.quote)
        if options.trim_left:
            value = value.lstrip(" \t")
        if options.trim_right:
            value = value.rstrip(" \t")
        values.append(value if value or quoted is not None else None)
        at = found.end()
        if end != options.separator:
            return values, at, end
    return values, at, None


def _refuse(path: Path, line: int, text: str, *, position: int, options: Options) -> NoReturn:
    """Say why the value at this position of a record is none."""
    rest = _LINE.match(text, position)
    escape, known = re.escape(options.escape), re.escape(options.quote + options.separator)
    if rest and escape and re.search(rf"(?<!{escape}){escape}[^{known}{escape}]", rest.group()):
        raise RefusedError(
            f"{path.name}, line {line}: a {options.escape} precedes a character that "
            "needs no escape, which has no defined meaning: remove reader: escape, or write "
            f"{options.escape * 2} in the file"
        )
    remedy = (
        'A quote inside quotes is doubled (""); if this file has \\" instead, set reader: '
        '{escape: "\\\\"}, and if its quotes have no meaning, reader: {quote: ""}'
    )
    if not (found := _quoted(options).match(text, position)):
        raise RefusedError(
            f"{path.name}, line {line}: a quote opens a value and nothing closes it up to "
            f"the end of the file. {remedy}"
        )
    end = _LINE.match(text, found.end())
    shown = text[: end.end() if end else None].strip()[-80:]
    raise RefusedError(
        f"{path.name}, line {line + len(text[: found.end()].splitlines()) - 1}: a quote ends a "
        f"value, but neither {options.separator!r} nor the end of the line follows ({shown!r}). "
        f"{remedy}"
    )


def json_objects(
    path: Path, options: Options, bad: BadRows
) -> Iterator[tuple[int, dict[str, Any]]]:
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
    with open_text(path, options.encoding) as text:
        is_document = options.whole or start == "["
        for line, found in _of_document(path, text.read()) if is_document else _of_lines(text):
            if isinstance(found, dict):
                yield line, found
            else:
                problem = (
                    str(found)
                    if isinstance(found, _BrokenError)
                    else f"{printable(json_text(found)[:80])} is not an object"
                )
                bad.add(f"{path.name}, line {line}", problem)


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
            if _SURROGATE.search(json_text(each)):
                shown = printable(json_text(each)[:80])
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
    parse_int=Number, parse_float=Number, parse_constant=Number, object_pairs_hook=_unique
)
