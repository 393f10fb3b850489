"""The records of a CSV file, by RFC 4180, each with its first line."""

import csv
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TextIO

from tableau_pipeline.errors import RefusedError
from tableau_pipeline.ingest.options import Options
from tableau_pipeline.ingest.text.encoding import open_text

Record = tuple[int, Sequence[str | None]]


def csv_rows(path: Path, options: Options) -> Iterator[Record]:
    """Yield all records including the header; a blank line is a record without values.

    An empty value without quotes is None; an empty value in quotes is "".

    Raises:
        RefusedError: quotes are not closed or stray, so that the end of a record is unknown; or
            the bytes are not text in the encoding.
    """
    # Python limits a value to 128 KiB, for the whole process.
    csv.field_size_limit(sys.maxsize)
    flags = _Quotes(options) if options.quote else None
    with open_text(path, options.encoding) as text:
        lines = _Lines(text, options)
        reader = _reader(lines, options)
        while True:
            lines.begin_record()
            try:
                values = next(reader)
            except StopIteration:
                return
            except csv.Error as error:
                raise RefusedError(_stray_quote(path, lines, error, options)) from error
            if not lines.end_alike():
                raise RefusedError(
                    f"{path.name}, line {lines.last}: some lines end in a carriage return alone, "
                    "others in a line feed, and a value with one of them must be quoted: quote "
                    "it, or use the same line end everywhere"
                )
            if options.escape:
                _check_escapes(path, lines, options)
            if options.trim_left or options.trim_right:
                values = [_trimmed(value, options) for value in values]
            # Most records have no empty value, and so need no second look at the text.
            if "" not in values:
                yield lines.first, values
            elif flags and options.quote * 2 in lines.text:
                quoted = flags.of(lines.text)
                yield (
                    lines.first,
                    [
                        value if value or is_quoted else None
                        for value, is_quoted in zip(values, quoted, strict=True)
                    ],
                )
            else:
                yield lines.first, [value or None for value in values]


def _reader(lines: Iterable[str], options: Options) -> Iterator[list[str]]:
    return csv.reader(
        lines,
        delimiter=options.separator,
        quotechar=options.quote or None,
        quoting=csv.QUOTE_MINIMAL if options.quote else csv.QUOTE_NONE,
        doublequote=not options.escape,
        escapechar=options.escape or None,
        skipinitialspace=options.trim_left,
        # By default Python accepts a stray quote, and moves text from one value to the next.
        strict=True,
    )


class _Lines:
    """Feeds lines to the reader, and keeps those of the current record.

    `first` and `last` are the numbers of its first and its last line.
    """

    def __init__(self, text: TextIO, options: Options) -> None:
        self._text = text
        self._comment = options.comment
        self.last = 0
        self._end = ""
        self.begin_record()

    def begin_record(self) -> None:
        self._record: list[str] = []
        self.first = self.last + 1

    @property
    def text(self) -> str:
        """The text of the record in the file."""
        return "".join(self._record)

    def end_alike(self) -> bool:
        """Whether this record ends as earlier ones do; line ends in quotes are ignored."""
        # CR LF counts as LF. A lone CR among them is more likely part of a value than an end.
        end = self._record[-1][-1]
        if end not in "\r\n":
            return True
        self._end = self._end or end
        return end == self._end

    def __iter__(self) -> "_Lines":
        return self

    def __next__(self) -> str:
        for line in self._text:
            self.last += 1
            # Inside quotes a line belongs to the value, even if it begins like a comment.
            if self._record or not self._comment or not line.startswith(self._comment):
                if not self._record:
                    self.first = self.last
                self._record.append(line)
                return line
        raise StopIteration


class _Quotes:
    """Determines which values of a well-formed record are in quotes."""

    def __init__(self, options: Options) -> None:
        self._quote = options.quote
        quote, separator = re.escape(options.quote), re.escape(options.separator)
        inner = rf"{re.escape(options.escape)}.|" if options.escape else ""
        blanks = " *" if options.trim_left else ""
        self._value = re.compile(
            rf"{blanks}{quote}(?:{inner}{quote}{quote}|[^{quote}])*{quote}[^{separator}]*"
            rf"|[^{separator}]*",
            re.DOTALL,
        )

    def of(self, record: str) -> Iterator[bool]:
        record, position = record.rstrip("\r\n"), 0
        # An empty last value begins where the record ends.
        while position <= len(record):
            value = self._value.match(record, position)
            if not value:
                return
            yield value.group().lstrip(" ").startswith(self._quote)
            position = value.end() + 1


def _trimmed(value: str, options: Options) -> str:
    if options.trim_left:
        value = value.lstrip(" \t")
    return value.rstrip(" \t") if options.trim_right else value


def _check_escapes(path: Path, lines: _Lines, options: Options) -> None:
    """Refuse other escapes: programs differ in what a backslash before other characters means."""
    known = (options.quote, options.escape, options.separator)
    escaped = re.findall(rf"{re.escape(options.escape)}(.?)", lines.text, re.DOTALL)
    if any(character not in known for character in escaped):
        raise RefusedError(
            f"{path.name}, line {lines.first}: a {options.escape} precedes a character that "
            "needs no escape, which has no defined meaning: remove reader: escape, or write "
            f"{options.escape * 2} in the file"
        )


def _stray_quote(path: Path, lines: _Lines, error: csv.Error, options: Options) -> str:
    remedy = (
        'A quote inside quotes is doubled (""); if this file has \\" instead, set reader: '
        '{escape: "\\\\"}, and if its quotes have no meaning, reader: {quote: ""}'
    )
    if "unexpected end" in str(error):
        return (
            f"{path.name}, line {lines.first}: a quote opens a value and nothing closes it up to "
            f"the end of the file. {remedy}"
        )
    return (
        f"{path.name}, line {lines.last}: a quote ends a value, but neither {options.separator!r} "
        f"nor the end of the line follows ({lines.text.strip()[-80:]!r}). {remedy}"
    )
