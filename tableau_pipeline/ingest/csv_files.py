"""CSV by RFC 4180: Python finds where records end and refuses stray quotes, Arrow splits them."""

import codecs
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, NoReturn, TypeVar

import pyarrow as pa
import pyarrow.csv as pa_csv

from tableau_pipeline.errors import FilesError
from tableau_pipeline.ingest.errors import Chunk, printable
from tableau_pipeline.ingest.options import ReadOptions, open_text

_T = TypeVar("_T")
# Twice as many take a fifth more memory, which larger files then fill.
_BLOCK = 1 << 21
_SEPARATORS = (";", "\t", "|", ",")
# The first line by which a file tells Excel its separator.
_OWN_SEPARATOR = re.compile(r'("?)sep=([^\r\n"])\1[\r\n]*', re.IGNORECASE)
_BLANK_LINE = 'a blank line, which may be NULL or no row: write "" for an empty text'
_REMEDY = (
    'A quote inside quotes is doubled (""); if this file has \\" instead, set reader: '
    '{escape: "\\\\"}, and if its quotes have no meaning, reader: {quote: ""}'
)


class _Grammar:
    """The patterns of a file whose lines end in `end`: a carriage return, or a line feed."""

    def __init__(self, options: ReadOptions, end: str) -> None:
        quote, escape, sep = map(re.escape, (options.quote, options.escape, options.sep))
        start = rf"(?<![^{sep}\r\n])"
        escaped = rf"{escape}[{quote}{escape}{sep}]" if escape else ""
        inner = rf"(?:[^{quote}{escape}]++|{escaped or quote * 2})*+"
        # Arrow finds the values; here, all up to the next quote is one step.
        parts, opened, quoted = [rf"[^{quote}{escape}\r\n]++", escaped], "", "(?!)"
        if quote:
            opened, quoted = rf"{start}{quote}{inner}", rf"{quote}{inner}(?:{quote}|\Z)"
            # A quote within a bare value is a character like others.
            parts += [rf"{opened}{quote}(?=[{sep}\r\n])", rf"(?<=[^{sep}\r\n]){quote}"]
        body = rf"(?:{'|'.join(filter(None, parts))})*+"
        record = body + (r"\r(?!\n)" if end == "\r" else r"\r?\n")
        self.options, self.end, self.record = options, end, re.compile(record, re.DOTALL)
        self.records = re.compile(rf"(?:{record})*+", re.DOTALL)
        # Up to what is out of place; a record that may go on; and a value up to its last quote.
        self.body = re.compile(body, re.DOTALL)
        self.open = re.compile(rf"{body}(?:{opened})?\Z", re.DOTALL)
        self.opened = re.compile(opened, re.DOTALL)
        # What is left out: comments, and blanks beside values, but nothing within quotes.
        blank = " " if options.sep == "\t" else r"[ \t]"
        left = f"{blank}*+" * options.ignore_leading_white_space
        left_out = [rf"{start}{left}({quoted})"]
        if options.comment:
            left_out.insert(0, rf"(?<![^\r\n]){re.escape(options.comment)}[^\r\n]*+")
        if left:
            left_out.append(f"{start}{blank}++")
        if options.ignore_trailing_white_space:
            left_out.append(rf"{blank}++(?=[{sep}\r\n])")
        self.left_out = re.compile("|".join(left_out), re.DOTALL) if left_out[1:] else None


class _Block(NamedTuple):
    """Whole records of a file; `line` is the line of the first one."""

    line: int
    text: str
    grammar: _Grammar

    def records(self) -> Iterator[tuple[str, str]]:
        """Yield each record, which may be blank, without its end and with its place."""
        line = self.line
        for found in self.grammar.record.finditer(self.text):
            yield f"line {line}", found.group().rstrip("\r\n")
            line += _line_ends(found.group())


def ahead(items: Iterator[_T]) -> Iterator[_T]:
    """Yield the items; while one is used, a thread makes the next."""

    def following() -> _T | None:
        return next(items, None)

    with ThreadPoolExecutor(1) as thread:
        made = thread.submit(following)
        while (item := made.result()) is not None:
            made = thread.submit(following)
            yield item


def csv_names(path: Path, options: ReadOptions, *, check_sep: bool) -> list[str]:
    """Return the names of the columns by the first record."""
    own = _own_separator(path, options)
    options = own or options
    blocks = _blocks(path, options, skip_line=own is not None)
    records = (record for block in blocks for _, record in block.records())
    if not (first := next(filter(None, records), "")):
        what = "header" if options.header else "rows"
        raise FilesError(f"{path.name} is empty: it has no {what}")
    # It has at most as many values as separators and one more.
    expected = [f"f{number}" for number in range(first.count(options.sep) + 1)]
    read = pa_csv.ReadOptions(autogenerate_column_names=True)
    values = [each[0].as_py() for each in _split(f"{first}\n", options, expected, read, {})]
    # With the wrong separator a whole file would be published as one column of text.
    is_unsure = check_sep and own is None and len(values) == 1
    if others := [each for each in _SEPARATORS if is_unsure and each in first]:
        raise FilesError(
            f"{path.name} has only one column with the separator {options.sep!r}, "
            f'"{first[:80]}": set reader: {{sep: {others[0]!r}}}, or, if that is right, '
            f"reader: {{sep: {options.sep!r}}}",
        )
    if options.header and (twice := [each for each in values if values.count(each) > 1 and each]):
        raise FilesError(
            f'{path.name}: its first line has "{printable(twice[0])}" more than once. If it is a '
            'row, and no header, set reader: {header: "false"}; if it is the header, give each '
            "column a name of its own",
        )
    # Spark's names for unnamed columns; pandas, for example, writes its index without a name.
    names = values if options.header else [None] * len(values)
    return [name or f"_c{number}" for number, name in enumerate(names)]


def csv_chunks(path: Path, options: ReadOptions, width: int) -> Iterator[Chunk]:
    """Yield the rows after the header; a bare empty value is NULL.

    A quote out of place refuses the file, as nothing tells where its record ends.
    """
    names, header = [str(number) for number in range(width)], options.header
    own = _own_separator(path, options)
    options = own or options
    for block in ahead(_blocks(path, options, skip_line=own is not None)):
        counts: dict[int, int] = {}
        read = pa_csv.ReadOptions(column_names=names, use_threads=False)
        columns = _split(block.text, options, names, read, counts)
        skipped = int(header and len(columns[0]) > 0)
        header = header and not skipped
        yield _chunk(block, [each.slice(skipped) for each in columns], counts, skipped)


def _split(
    text: str,
    options: ReadOptions,
    names: list[str],
    read: pa_csv.ReadOptions,
    counts: dict[int, int],
) -> list[pa.Array]:
    """Return the values of records by column; count those of records that have too many or few."""

    def skip(row: Any) -> str:
        counts[row.number - 1] = row.actual_columns
        return "skip"

    if not text.strip("\r\n"):
        return [pa.array([], pa.string()) for _ in names]
    # Arrow takes off one byte order mark; a second one is text.
    data = codecs.BOM_UTF8 + text.encode()
    read.block_size = len(data) + 1
    parse = pa_csv.ParseOptions(
        delimiter=options.sep,
        quote_char=options.quote or False,
        double_quote=not options.escape,
        escape_char=options.escape or False,
        newlines_in_values=True,
        invalid_row_handler=skip,
    )
    convert = pa_csv.ConvertOptions(
        column_types=dict.fromkeys(names, pa.string()),
        null_values=[""],
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
    )
    table = pa_csv.read_csv(pa.BufferReader(data), read, parse, convert)
    return [each.combine_chunks() for each in table.columns]


def _chunk(block: _Block, columns: list[pa.Array], counts: dict[int, int], skipped: int) -> Chunk:
    def places() -> list[str]:
        # Arrow passes over blank lines.
        found = [place for place, record in block.records() if record]
        return [place for number, place in enumerate(found) if number not in counts][skipped:]

    width, problems = len(columns), []
    records = [each for each in block.records() if each[1]] if counts else []
    for number, count in counts.items():
        place, record = records[number]
        values = f"{count} value{'s' * (count > 1)} for {width} column{'s' * (width > 1)}"
        problems.append((place, f'{values}, "{printable(record[:80])}"'))
    if width == 1:
        problems += [(place, _BLANK_LINE) for place, record in block.records() if not record]
    return Chunk(columns, problems, places)


def _own_separator(path: Path, options: ReadOptions) -> ReadOptions | None:
    """Return the options with the separator that the first line tells; None if it tells none."""
    with open_text(path, options.encoding) as text:
        found = _OWN_SEPARATOR.fullmatch(text.readline(10))
    if not found:
        return None
    if found[2] == options.quote or not found[2].isascii():
        raise FilesError(
            f"{path.name}, line 1: {found[2]!r} cannot be a separator: remove that line, and set "
            "reader: {sep: ...}",
        )
    return replace(options, sep=found[2])


def _blocks(path: Path, options: ReadOptions, *, skip_line: bool) -> Iterator[_Block]:
    line, rest, grammar = 1 + skip_line, "", None
    with open_text(path, options.encoding) as text:
        if skip_line:
            text.readline()
        while True:
            # A block ends with a line, so it never parts a carriage return from its line feed.
            more = text.read(max(_BLOCK, len(rest))) + text.readline()
            if not more and not rest:
                return
            if grammar is None:
                old = _Grammar(options, "\r")
                grammar = old if old.record.match(more) else _Grammar(options, "\n")
            # Without a line end, Arrow takes a bare empty value for a quoted one.
            rest += more or grammar.end
            rest = grammar.left_out.sub(r"\1", rest) if grammar.left_out else rest
            found = grammar.records.match(rest)
            if found and (at := found.end()):
                block = _Block(line, rest[:at], grammar)
                yield block
                line, rest = line + _line_ends(block.text), rest[at:]
            if rest and not (more and grammar.open.match(rest)):
                _refuse(path, line, rest, grammar)


def _line_ends(text: str) -> int:
    # CR LF counts as one, and so does a carriage return alone.
    alone = text.count("\r") - text.count("\r\n") if "\r" in text else 0
    return text.count("\n") + alone


def _refuse(path: Path, line: int, text: str, grammar: _Grammar) -> NoReturn:
    """Say what is out of place in the first record of a text."""
    found = grammar.body.match(text)
    at = found.end() if found else 0
    opened = grammar.opened.match(text, at)
    stop = opened.end() if opened else at
    sign, sep = text[stop : stop + 1], grammar.options.sep
    other = text[stop + 1 : stop + 2]
    is_first = line == 1 and not _line_ends(text[:stop])
    if is_first and sign == grammar.options.quote and other != sep and other in _SEPARATORS:
        # In the first line, quotes are rarely out of place.
        problem = (
            f"{other!r} follows a value in quotes, and the separator is {sep!r}: set reader: "
            f"{{sep: {other!r}}}. {_REMEDY}"
        )
    elif not sign:
        stop = at
        problem = f"a quote opens a value and nothing closes it up to the file's end. {_REMEDY}"
    elif sign in "\r\n":
        problem = (
            "some lines end in a carriage return alone, others in a line feed, and a value with "
            "one of them must be quoted: quote it, or use the same line end everywhere"
        )
    else:
        shown = text[max(0, stop - 60) : stop + 20].strip()
        problem = (
            f"a quote ends a value, but neither {sep!r} nor the end of the line follows, or the "
            f"sign of reader: escape escapes a character that needs none ({shown!r}). {_REMEDY}"
        )
    raise FilesError(f"{path.name}, line {line + _line_ends(text[:stop])}: {problem}")
