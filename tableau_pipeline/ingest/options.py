"""Which files are read, and the options of `reader`, under the names that Spark's readers use."""

import codecs
import glob
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import Literal

from tableau_pipeline.errors import RefusedError

Format = Literal["csv", "json", "parquet"]
FORMATS: Mapping[str, Format] = MappingProxyType(
    {".csv": "csv", ".tsv": "csv", ".json": "json", ".jsonl": "json", ".parquet": "parquet"}
)
COMPRESSED = (".gz", ".bz2")
_TEXT = ("encoding", "charset", "multiLine", "dateFormat", "timestampFormat", "timestampNTZFormat")
NAMES: Mapping[Format, tuple[str, ...]] = {
    "csv": (
        *("sep", "delimiter", "header", "quote", "escape", "comment", "nullValue", "inferSchema"),
        *("ignoreLeadingWhiteSpace", "ignoreTrailingWhiteSpace", "enforceSchema"),
        *("decimal", "thousands", *_TEXT),
    ),
    "json": _TEXT,
    "parquet": ("mergeSchema", "datetimeRebaseMode", "int96RebaseMode"),
}
_INSTEAD = {
    "locale": "set decimal, thousands and dateFormat",
    "mode": "set bad_rows: refuse or drop",
    "columnnameofcorruptrecord": "set bad_rows: refuse or drop",
    "linesep": "lines may end in LF, CR LF or CR without any option",
    "emptyvalue": 'a quoted empty field, "", is the empty string',
    "nanvalue": "a column declared as double takes NaN",
    "positiveinf": "a column declared as double takes Infinity",
    "negativeinf": "a column declared as double takes -Infinity",
    "samplingratio": "types are inferred from all rows; declare columns to avoid that",
}


@dataclass(frozen=True, slots=True)
class Options:
    """How the text of files is read.

    Attributes:
        separator: the character between values.
        quote: the character around values, doubled inside them; "" if quotes have no meaning.
        escape: the character before a quote inside quotes, instead of doubling; usually "".
        comment: the first character of lines to skip; "" for none.
        null: a text that means NULL, besides the empty field.
        trim_left, trim_right: remove blanks and tabs at the ends of values.
        whole: a JSON document may span lines.
        decimal, thousands: the separators in numbers; thousands may be "".
        date, timestamp, timestamp_ntz: patterns of Java's DateTimeFormatter; None for ISO 8601.
    """

    separator: str = ","
    quote: str = '"'
    escape: str = ""
    comment: str = ""
    header: bool = True
    infer: bool = True
    encoding: str | None = None
    null: str | None = None
    trim_left: bool = False
    trim_right: bool = False
    whole: bool = False
    decimal: str = "."
    thousands: str = ""
    date: str | None = None
    timestamp: str | None = None
    timestamp_ntz: str | None = None

    @property
    def trims(self) -> bool:
        """Whether blanks are removed."""
        return self.trim_left or self.trim_right


def check_options(reader: Mapping[str, str], *formats: Format) -> None:
    """Refuse options that none of these formats supports.

    Raises:
        RefusedError: names the option and an alternative.
    """
    known = {name.lower(): name for format_ in formats for name in NAMES[format_]}
    for name in reader:
        if name.lower() in known:
            continue
        instead = _INSTEAD.get(name.lower()) if "parquet" not in formats[:1] else None
        names = ", ".join(known.values())
        raise RefusedError(
            f"reader: {name} is not an option for {' and '.join(formats)} files: "
            f"{instead or f'the options are {names}'}"
        )


def text_options(reader: Mapping[str, str], format_: Format, *, tabs: bool = False) -> Options:
    """Parse the options of `reader` for text files.

    Args:
        tabs: values are separated by tabs unless `reader` sets another separator.

    Raises:
        RefusedError: an option, or its value, is not known; the message names an alternative.
    """
    check_options(reader, format_)
    given = _Given({name.lower(): value for name, value in reader.items()})
    if given.flag("enforceSchema", default=False):
        raise RefusedError(
            "reader: enforceSchema: true would match columns by order and ignore the header: "
            "remove it, or set header: false for files without a header"
        )
    if format_ == "csv" and not given.flag("multiLine", default=True):
        raise RefusedError(
            "reader: multiLine: false is not possible, as line breaks inside quotes belong to the "
            'value: remove it, or set quote: "" if quotes have no meaning'
        )
    timestamp = given.text("timestampFormat")
    options = Options(
        separator=given.character("sep", "delimiter", default="\t" if tabs else ","),
        quote=given.character("quote", default='"', empty=True),
        escape=_escape(given),
        comment=given.character("comment", default="", empty=True),
        header=given.flag("header", default=True),
        infer=given.flag("inferSchema", default=True),
        encoding=_encoding(given.text("encoding", "charset")),
        null=given.text("nullValue") or None,
        trim_left=given.flag("ignoreLeadingWhiteSpace", default=False),
        trim_right=given.flag("ignoreTrailingWhiteSpace", default=False),
        whole=given.flag("multiLine", default=False),
        decimal=given.character("decimal", default="."),
        thousands=given.character("thousands", default="", empty=True),
        date=given.text("dateFormat"),
        timestamp=timestamp,
        timestamp_ntz=given.text("timestampNTZFormat") or timestamp,
    )
    _check_signs(options)
    return options


@dataclass(frozen=True, slots=True)
class _Given:
    """Options under lower-case names, as Spark ignores their case."""

    values: Mapping[str, str]

    def text(self, *names: str) -> str | None:
        for name in names:
            if name.lower() in self.values:
                return str(self.values[name.lower()])
        return None

    def flag(self, name: str, *, default: bool) -> bool:
        text = self.text(name)
        if text is None:
            return default
        if text.lower() not in ("true", "false"):
            raise RefusedError(f'reader: {name}: "{text}" is neither true nor false')
        return text.lower() == "true"

    def character(self, *names: str, default: str, empty: bool = False) -> str:
        text = self.text(*names)
        if text is None:
            return default
        # As in Spark, the two characters \t stand for a tab, which is hard to type in a config.
        text = text.replace("\\t", "\t").replace("\\\\", "\\")
        is_one = len(text) == 1 and text not in "\r\n"
        if not is_one and not (empty and not text):
            raise RefusedError(f'reader: {names[0]}: "{text}" is not one character')
        return text


def _escape(given: _Given) -> str:
    quote = given.character("quote", default='"', empty=True)
    escape = given.character("escape", default="", empty=True)
    # Some users of Spark set escape to the quote itself to declare that quotes are doubled.
    return "" if escape == quote else escape


def _encoding(name: str | None) -> str | None:
    if name is None:
        return None
    try:
        found = codecs.lookup(name)
        # The look-up also finds codecs such as base64, which do not decode to text.
        b"".decode(name)
    except LookupError as error:
        raise RefusedError(
            f'reader: encoding: "{name}" is not known; known ones include windows-1252, '
            "ISO-8859-1 and UTF-16LE"
        ) from error
    return found.name


def _check_signs(options: Options) -> None:
    signs = [options.decimal, options.thousands]
    if options.decimal == options.thousands:
        raise RefusedError(f'reader: decimal and thousands are both "{options.decimal}"')
    if wrong := [sign for sign in signs if sign and sign in "0123456789+-eE"]:
        raise RefusedError(f'reader: "{wrong[0]}" cannot be a separator in numbers')
    if options.separator == options.quote:
        raise RefusedError(f'reader: sep and quote are both "{options.quote}"')


@dataclass(frozen=True, slots=True)
class Files:
    """Files of one format and schema.

    Attributes:
        reader: options, such as "sep" or "dateFormat"; `options.py` lists them.
        columns: their types as Spark's DDL, "id bigint, day date"; None to infer them, which
            reads the files twice.
    """

    paths: tuple[Path, ...]
    format: Format
    reader: Mapping[str, str] = field(default_factory=dict)
    columns: str | None = None


def found_files(pattern: str) -> tuple[Path, ...]:
    """Return the files that match a path or pattern; for a folder, the files in it.

    Raises:
        RefusedError: no file matches.
    """
    path = Path(pattern)
    found = sorted(path.iterdir()) if path.is_dir() else map(Path, sorted(glob.glob(pattern)))  # noqa: PTH207
    # Like Spark, this passes over hidden files and markers such as _SUCCESS.
    files = tuple(each.absolute() for each in found if each.is_file() and each.name[0] not in "._")
    # A file's own name may contain brackets or stars, which the pattern would interpret.
    if path.is_file():
        files = (path.absolute(),)
    if not files:
        raise RefusedError(f'"{pattern}" matches no file; it is relative to {Path.cwd()}')
    return files


def files_version(pattern: str) -> str:
    """Return a text that changes whenever a file is added, removed or written again.

    It tells files apart by path, size and time of the last change, and reads none. It covers the
    files that `read_files` reads.

    Raises:
        RefusedError: no file matches.
    """
    files = [(str(path), path.stat()) for path in found_files(pattern)]
    known = [[path, stat.st_size, stat.st_mtime_ns] for path, stat in files]
    digest = hashlib.sha256(json.dumps(known).encode()).hexdigest()[:16]
    newest = datetime.fromtimestamp(max(stat.st_mtime for _, stat in files), UTC)
    several = f"{len(files):,} file{'s' * (len(files) > 1)}"
    return f"{several}, the newest of {newest:%Y-%m-%d %H:%M:%S} UTC (digest {digest})"


def format_of(paths: Sequence[Path]) -> Format:
    """Return the format by the file name suffixes; `x.csv.gz` is CSV.

    Raises:
        RefusedError: the suffixes are unknown, or of several formats.
    """
    first, *others = {FORMATS.get(ending(path)) for path in paths}
    if first is None or others:
        endings = ", ".join(sorted({path.suffix or path.name for path in paths}))
        raise RefusedError(
            f"The suffixes {endings} do not determine one format: set format: csv, json or parquet"
        )
    return first


def ending(path: Path) -> str:
    """Return the last suffix that determines a file's format, in lower case."""
    endings = [each.lower() for each in path.suffixes]
    if endings and endings[-1] in COMPRESSED:
        endings.pop()
    return endings[-1] if endings else ""


def digests(paths: Sequence[Path]) -> dict[Path, str]:
    """Return the SHA-256 of each file's bytes, in hexadecimal."""
    found = {}
    for path in paths:
        with path.open("rb") as file:
            found[path] = hashlib.file_digest(file, "sha256").hexdigest()
    return found
