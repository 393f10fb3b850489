"""Read CSV by RFC 4180: Python finds the ends of records, and Arrow splits them into values."""

import codecs
import re
from collections.abc import Collection, Iterator
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
# The number of characters to read at once. Twice as many would take a fifth more memory for large
# files.
_BLOCK = 1 << 21
_SEPARATORS = (";", "\t", "|", ",")
# A first line that declares the separator of the file to Excel.
_SEPARATOR_LINE = re.compile(r'("?)sep=([^\r\n"])\1[\r\n]*', re.IGNORECASE)
_BLANK_LINE = 'a blank line, which may be NULL or no row: write "" for an empty text'
_REMEDY = (
    'A quote inside quotes is doubled (""); if this file has \\" instead, set reader: '
    '{escape: "\\\\"}, and if its quotes have no meaning, reader: {quote: ""}'
)


class _Grammar:
    """The patterns of a CSV file.

    The lines end in `end`: a lone carriage return; or a line feed, perhaps after a carriage return.
    """

    def __init__(self, options: ReadOptions, end: str) -> None:
        quote, escape, sep = map(re.escape, (options.quote, options.escape, options.sep))
        start = rf"(?<![^{sep}\r\n])"
        escaped = rf"{escape}[{quote}{escape}{sep}]" if escape else ""
        inner = _all_of(rf"[^{quote}{escape}]++|{escaped or quote * 2}")
        # These patterns match all text up to the next quote in one step. Arrow later splits the
        # text into values.
        parts, opened, quoted = [rf"[^{quote}{escape}\r\n]++", escaped], "", "(?!)"
        if quote:
            opened, quoted = rf"{start}{quote}{inner}", rf"{quote}{inner}(?:{quote}|\Z)"
            # A quote inside an unquoted value is an ordinary character.
            parts += [rf"{opened}{quote}(?=[{sep}\r\n])", rf"(?<=[^{sep}\r\n]){quote}"]
        body = _all_of("|".join(filter(None, parts)))
        record = body + (r"\r(?!\n)" if end == "\r" else r"\r?+\n")
        self.options, self.end, self.record = options, end, re.compile(record, re.DOTALL)
        self.records = re.compile(_all_of(record), re.DOTALL)
        # Three patterns: a record up to an error, a record that may continue, and a value in quotes
        # without the closing quote.
        self.body = re.compile(body, re.DOTALL)
        self.open = re.compile(rf"{body}(?:{opened})?\Z", re.DOTALL)
        self.opened = re.compile(opened, re.DOTALL)
        # The text to leave out: comments, and blanks around values. Text within quotes stays.
        blank = " " if options.sep == "\t" else r"[ \t]"
        leading = f"{blank}*+" * options.ignore_leading_white_space
        left_out = [rf"{start}{leading}({quoted})"]
        if options.comment:
            left_out.insert(0, rf"(?<![^\r\n]){re.escape(options.comment)}[^\r\n]*+")
        if leading:
            left_out.append(f"{start}{blank}++")
        if options.ignore_trailing_white_space:
            left_out.append(rf"{blank}++(?=[{sep}\r\n])")
        self.left_out = re.compile("|".join(left_out), re.DOTALL) if left_out[1:] else None


def _all_of(pattern: str) -> str:
    """Repeat a pattern as often as possible, without backtracking, which would take memory."""
    # The atomic group avoids a bug of Python before 3.11.5, which matches wrongly or hangs:
    # gh-106052.
    return f"(?>{pattern})*+"


class _Block(NamedTuple):
    """Whole records of a file.

    Attributes:
        line: the line number of the first record.
        comments: the places of comments; `text` has blank lines at these places.
    """

    line: int
    text: str
    grammar: _Grammar
    comments: Collection[str]

    def records(self) -> Iterator[tuple[str, str]]:
        """Yield the place and the text of each record, which may be blank; leave out line ends."""
        line = self.line
        for match in self.grammar.record.finditer(self.text):
            yield f"line {line}", match.group().rstrip("\r\n")
            line += _line_ends(match.group())


def prefetched(items: Iterator[_T]) -> Iterator[_T]:
    """Yield the items; a thread gets the next item while the caller uses the current item."""

    def following() -> _T | None:
        return next(items, None)

    with ThreadPoolExecutor(1) as thread:
        future = thread.submit(following)
        while (item := future.result()) is not None:
            future = thread.submit(following)
            yield item


def csv_names(path: Path, options: ReadOptions, *, check_sep: bool) -> list[str]:
    """Return the names of the columns in the first record; without a header, `_c0`, `_c1` etc.

    Raises:
        FilesError: the file is empty, its separator seems wrong, or a name is repeated.
    """
    declared = _declared_separator(path, options)
    options = declared or options
    blocks = _blocks(path, options, skip_line=declared is not None)
    records = (record for block in blocks for _, record in block.records())
    if not (first := next(filter(None, records), "")):
        missing = "header" if options.header else "rows"
        raise FilesError(f"{path.name} is empty: it has no {missing}")
    # A record with n separators has at most n + 1 values.
    expected = [f"f{number}" for number in range(first.count(options.sep) + 1)]
    read_options = pa_csv.ReadOptions(autogenerate_column_names=True)
    values = [
        column[0].as_py() for column in _split(f"{first}\n", options, expected, read_options, {})
    ]
    # Refuse a separator that seems wrong: the whole file would be published as one column of text.
    is_unsure = check_sep and declared is None and len(values) == 1
    if candidates := [sep for sep in _SEPARATORS if is_unsure and sep in first]:
        raise FilesError(
            f"{path.name} has only one column with the separator {options.sep!r}, "
            f'"{first[:80]}": set reader: {{sep: {candidates[0]!r}}}, or, if that is right, '
            f"reader: {{sep: {options.sep!r}}}",
        )
    if options.header and (
        repeated := [name for name in values if values.count(name) > 1 and name]
    ):
        raise FilesError(
            f'{path.name}: its first line has "{printable(repeated[0])}" more than once. If it is '
            'a row, and no header, set reader: {header: "false"}; if it is the header, give each '
            "column a name of its own",
        )
    # Unnamed columns get the names that Spark gives them. For example, pandas writes an unnamed
    # index.
    names = values if options.header else [None] * len(values)
    return [name or f"_c{number}" for number, name in enumerate(names)]


def csv_chunks(path: Path, options: ReadOptions, width: int) -> Iterator[Chunk]:
    """Yield the rows after the header; an empty value without quotes is NULL.

    If a quote is misplaced, the whole file is refused, because the record may then end anywhere.
    """
    names, header = [str(number) for number in range(width)], options.header
    declared = _declared_separator(path, options)
    options = declared or options
    for block in prefetched(_blocks(path, options, skip_line=declared is not None)):
        counts: dict[int, int] = {}
        read_options = pa_csv.ReadOptions(column_names=names, use_threads=False)
        columns = _split(block.text, options, names, read_options, counts)
        skipped = int(header and len(columns[0]) > 0)
        header = header and not skipped
        yield _chunk(block, [column.slice(skipped) for column in columns], counts, skipped)


def _split(
    text: str,
    options: ReadOptions,
    names: list[str],
    read: pa_csv.ReadOptions,
    counts: dict[int, int],
) -> list[pa.Array]:
    """Return the values of records by column; leave out records with too many or too few values.

    Args:
        counts: receives the number of values of each left-out record; the keys are the records'
            positions.
    """

    def skip(row: Any) -> str:
        counts[row.number - 1] = row.actual_columns
        return "skip"

    if not text.strip("\r\n"):
        return [pa.array([], pa.string()) for _ in names]
    # Add a byte order mark for Arrow to remove. Otherwise, Arrow would remove a mark that is text.
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
    return [column.combine_chunks() for column in table.columns]


def _chunk(block: _Block, columns: list[pa.Array], counts: dict[int, int], skipped: int) -> Chunk:
    def places() -> list[str]:
        # Arrow skips blank lines.
        filled = [place for place, record in block.records() if record]
        return [place for number, place in enumerate(filled) if number not in counts][skipped:]

    width, problems = len(columns), []
    records = [entry for entry in block.records() if entry[1]] if counts else []
    for number, count in counts.items():
        place, record = records[number]
        values = f"{count} value{'s' * (count > 1)} for {width} column{'s' * (width > 1)}"
        problems.append((place, f'{values}, "{printable(record[:80])}"'))
    if width == 1:
        problems += [
            (place, _BLANK_LINE)
            for place, record in block.records()
            if not record and place not in block.comments
        ]
    return Chunk(columns, problems, places)


def _declared_separator(path: Path, options: ReadOptions) -> ReadOptions | None:
    """Return the options with the separator that the first line declares; None if it has none."""
    with open_text(path, options.encoding) as text:
        match = _SEPARATOR_LINE.fullmatch(text.readline(10))
    if not match:
        return None
    if match[2] == options.quote or not match[2].isascii():
        raise FilesError(
            f"{path.name}, line 1: {match[2]!r} cannot be a separator: remove that line, and set "
            "reader: {sep: ...}",
        )
    return replace(options, sep=match[2])


def _blocks(path: Path, options: ReadOptions, *, skip_line: bool) -> Iterator[_Block]:
    line, rest, grammar = 1 + skip_line, "", None
    comments = set[str]()
    with open_text(path, options.encoding) as text:
        if skip_line:
            text.readline()
        while True:
            # End each block at the end of a line, so that a carriage return and its line feed stay
            # together.
            more = text.read(max(_BLOCK, len(rest))) + text.readline()
            if not more and not rest:
                return
            if grammar is None:
                of_returns = _Grammar(options, "\r")
                grammar = of_returns if of_returns.record.match(more) else _Grammar(options, "\n")
            # Add a missing last line end. Otherwise, Arrow would read an empty last value as a
            # quoted value.
            rest += more or grammar.end
            rest = _without_left_out(rest, line, grammar, comments)
            match = grammar.records.match(rest)
            if match and (at := match.end()):
                block = _Block(line, rest[:at], grammar, comments)
                yield block
                comments = set[str]()
                line, rest = line + _line_ends(block.text), rest[at:]
            if rest and not (more and grammar.open.match(rest)):
                _refuse(path, line, rest, grammar)


def _without_left_out(text: str, line: int, grammar: _Grammar, comments: set[str]) -> str:
    """Return a text without comments and without the blanks to ignore.

    Args:
        line: the line number of the text's first line.
        comments: receives the places of comments.
    """
    comment = grammar.options.comment
    if not grammar.left_out:
        return text
    if not comment:
        return grammar.left_out.sub(r"\1", text)
    at = 0

    def kept(match: re.Match[str]) -> str:
        nonlocal at, line
        if match[1] is None and match.group().startswith(comment):
            line, at = line + _line_ends(text[at : match.start()]), match.start()
            comments.add(f"line {line}")
        return match[1] or ""

    return grammar.left_out.sub(kept, text)


def _line_ends(text: str) -> int:
    # Count CR LF as one line end, and also count a lone carriage return as a line end.
    alone = text.count("\r") - text.count("\r\n") if "\r" in text else 0
    return text.count("\n") + alone


def _refuse(path: Path, line: int, text: str, grammar: _Grammar) -> NoReturn:
    """Refuse a text; describe the error in the text's first record.

    Raises:
        FilesError: always. The message names the line, the problem and the remedy.
    """
    match = grammar.body.match(text)
    start = match.end() if match else 0
    opened = grammar.opened.match(text, start)
    stop = opened.end() if opened else start
    character, sep = text[stop : stop + 1], grammar.options.sep
    following = text[stop + 1 : stop + 2]
    is_first = line == 1 and not _line_ends(text[:stop])
    if (
        is_first
        and character == grammar.options.quote
        and following != sep
        and following in _SEPARATORS
    ):
        # In the first line, a wrong separator is more likely than a misplaced quote.
        problem = (
            f"{following!r} follows a value in quotes, and the separator is {sep!r}: set reader: "
            f"{{sep: {following!r}}}. {_REMEDY}"
        )
    elif not character:
        stop = start
        problem = f"a quote opens a value, and no quote closes it before the file ends. {_REMEDY}"
    elif character in "\r\n":
        problem = (
            "some lines end in a carriage return alone, others in a line feed, and a value with "
            "one of them must be quoted: quote it, or use the same line end everywhere"
        )
    else:
        excerpt = text[max(0, stop - 60) : stop + 20].strip()
        problem = (
            f"a quote ends a value, but neither {sep!r} nor the end of the line follows; or the "
            "escape character (reader: escape) is before a character that needs no escape "
            f"({excerpt!r}). "
            f"{_REMEDY}"
        )
    raise FilesError(f"{path.name}, line {line + _line_ends(text[:stop])}: {problem}")
