"""Find and open the files to read; parse the options of `reader`, which have Spark's names."""

import bz2
import codecs
import glob
import gzip
import logging
import re
import zlib
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from io import BytesIO, TextIOWrapper
from pathlib import Path
from typing import Any, BinaryIO, Literal, TextIO, cast

from pydantic.alias_generators import to_camel

from tableau_pipeline.errors import FilesError

_LOG = logging.getLogger(__name__)
# The most names that a message lists.
_MOST_NAMES = 10
Format = Literal["csv", "json", "parquet"]
_FORMATS: Mapping[str, Format] = {
    ".csv": "csv", ".tsv": "csv", ".json": "json", ".jsonl": "json", ".ndjson": "json",
    ".parquet": "parquet",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """How the text of files is read: the options of `reader`, in snake case.

    Attributes:
        escape: the character before each quote inside quotes; "" if such a quote is doubled
            instead.
        null_value: a further text that means NULL, besides the empty field.
        date_format, timestamp_format: patterns of Java's DateTimeFormatter; "" for ISO 8601.
    """

    sep: str = ","
    quote: str = '"'
    escape: str = ""
    comment: str = ""
    decimal: str = "."
    thousands: str = ""
    header: bool = True
    ignore_leading_white_space: bool = False
    ignore_trailing_white_space: bool = False
    null_value: str = ""
    date_format: str = ""
    timestamp_format: str = ""
    encoding: str = ""


NAMES: Mapping[Format, tuple[str, ...]] = {
    "csv": tuple(to_camel(option.name) for option in fields(ReadOptions)),
    "json": ("encoding", "dateFormat", "timestampFormat"),
    "parquet": ("mergeSchema", "datetimeRebaseMode", "int96RebaseMode"),
}


def check_options(reader: Mapping[str, str], *formats: Format) -> None:
    """Refuse an option if none of these formats has it.

    Raises:
        FilesError: an option is unknown. The message lists the options of the formats.
    """
    allowed = {name.lower(): name for format_ in formats for name in NAMES[format_]}
    for name in reader:
        if name.lower() not in allowed:
            raise FilesError(
                f"reader: {name} is not an option for {' and '.join(formats)} files: the options "
                f"are {', '.join(allowed.values())}",
            )


def text_options(reader: Mapping[str, str], format_: Format, *, tabs: bool = False) -> ReadOptions:
    """Parse the options of `reader` for text files; if `tabs`, the default separator is a tab.

    Raises:
        FilesError: an option is unknown, a value is invalid, or two options contradict each other.
    """
    check_options(reader, format_)
    # Like Spark, ignore the case of names.
    given = {name.lower(): (name, str(value)) for name, value in reader.items()}
    values: dict[str, Any] = {"sep": "\t"} if tabs else {}
    for option in fields(ReadOptions):
        key = option.name.replace("_", "")
        if key in given:
            values[option.name] = _parse(*given[key], option.default)
    # Some users of Spark set escape to the quote character, which declares doubled quotes.
    if values.get("escape") == values.get("quote", '"'):
        del values["escape"]
    options = ReadOptions(**values)
    for first, second in (("decimal", "thousands"), ("sep", "quote")):
        if getattr(options, first) == getattr(options, second):
            raise FilesError(f"reader: {first} and {second} are both {getattr(options, first)!r}")
    return options


def _parse(name: str, text: str, default: object) -> str | bool:
    if isinstance(default, bool):
        if text.lower() not in ("true", "false"):
            raise FilesError(f'reader: {name}: "{text}" is neither true nor false')
        return text.lower() == "true"
    if name.lower() == "encoding":
        try:
            # Open a text stream, which refuses codecs such as base64. A look-up would accept these
            # codecs, although they do not decode to text.
            TextIOWrapper(BytesIO(), encoding=text)
        except LookupError as error:
            raise FilesError(
                f'reader: encoding: "{text}" is not known; known ones include windows-1252, '
                "ISO-8859-1 and UTF-16LE",
            ) from error
        return codecs.lookup(text).name
    if name.lower() in ("nullvalue", "dateformat", "timestampformat"):
        return text
    # As in Spark, a backslash and a t mean a tab, because a tab is hard to type in a config.
    sign = text.replace("\\t", "\t").replace("\\\\", "\\")
    of_numbers = name.lower() in ("decimal", "thousands")
    wrong = r"[\r\n0-9+\-eE]" if of_numbers else r"[\r\n]|[^\0-\x7f]"
    if len(sign) > 1 or (not sign and name.lower() in ("sep", "decimal")) or re.search(wrong, sign):
        raise FilesError(f'reader: {name}: "{text}" is not a single allowed character')
    return sign


@dataclass(frozen=True, slots=True)
class Files:
    """Files of one format and schema.

    Attributes:
        reader: options, such as "sep" or "dateFormat"; `NAMES` lists them.
        columns: the columns as Spark's DDL, "id bigint, day date". None to infer them; the files
            may then be read twice.
    """

    paths: tuple[Path, ...]
    format: Format
    reader: Mapping[str, str] = field(default_factory=dict)
    columns: str | None = None


def matching_files(pattern: str) -> tuple[Path, ...]:
    """Return the file at a path, the files in a folder, or the files that match a pattern.

    Raises:
        FilesError: there is no such file.
    """
    path = Path(pattern)
    # First look for a file with this name, because a name may contain the brackets and stars of
    # patterns.
    if path.is_file():
        return (path.absolute(),)
    is_folder, start = path.is_dir(), path.name[:1]
    matches = sorted(path.iterdir()) if is_folder else map(Path, sorted(glob.glob(pattern)))  # noqa: PTH207
    files = [item.absolute() for item in matches if item.is_file()]
    # Read hidden files only if the pattern itself begins like a hidden name.
    skipped = [
        file for file in files if is_skipped(file.name) and (is_folder or file.name[0] != start)
    ]
    if skipped:
        listed = ", ".join(file.name for file in skipped[:_MOST_NAMES])
        more = ", ..." if len(skipped) > _MOST_NAMES else ""
        _LOG.warning(
            "%s: skipped %s%s, as Spark does; name such a file to read it", path, listed, more
        )
    if files := [file for file in files if file not in skipped]:
        return tuple(files)
    raise FilesError(f'"{pattern}" matches no file; it is relative to {Path.cwd()}')


def is_skipped(name: str) -> bool:
    """Whether a folder or a pattern leaves out this name: a hidden file, or a marker of Spark."""
    return name[0] in "._"


def format_of(paths: Sequence[Path]) -> Format:
    """Return the common format of files by the suffixes of their names; `x.csv.gz` is CSV.

    Raises:
        FilesError: the suffixes determine no format, or more than one.
    """
    first, *others = {_FORMATS.get(ending(path)) for path in paths}
    if first is None or others:
        endings = ", ".join(sorted({path.suffix or path.name for path in paths}))
        raise FilesError(
            f"The suffixes {endings} do not determine one format: set format: csv, json or parquet",
        )
    return first


def ending(path: Path) -> str:
    """Return the suffix that determines a file's format, in lower case; ignore `.gz` and `.bz2`."""
    endings = [suffix.lower() for suffix in path.suffixes]
    if endings and endings[-1] in (".gz", ".bz2"):
        endings.pop()
    return endings[-1] if endings else ""


# Each byte order mark, with the encodings that may begin with the mark. The first of these
# encodings drops the mark. The marks of UTF-32 come before those of UTF-16, because the
# little-endian mark of UTF-32 begins with the mark of UTF-16.
_MARKS = {
    codecs.BOM_UTF32_LE: ("utf-32", "utf-32-le"),
    codecs.BOM_UTF32_BE: ("utf-32", "utf-32-be"),
    codecs.BOM_UTF8: ("utf-8-sig", "utf-8"),
    codecs.BOM_UTF16_LE: ("utf-16", "utf-16-le"),
    codecs.BOM_UTF16_BE: ("utf-16", "utf-16-be"),
}
_GZIP = b"\x1f\x8b"


@contextmanager
def open_text(path: Path, encoding: str | None) -> Generator[TextIO]:
    """Open a file as text; drop the byte order mark, keep line ends, and unpack gzip and bzip2.

    Args:
        encoding: Python's name of the encoding; None for UTF-8, and for encodings with a byte order
            mark.

    Raises:
        RefusedError: the file has another encoding, or is damaged. The message names file and
            remedy.
    """
    try:
        with _open(path) as file:
            name = _encoding_of(path, file.read(4), encoding)
        with _open(path) as file, TextIOWrapper(file, encoding=name, newline="") as text:
            yield text
    except UnicodeDecodeError as error:
        with _open(path) as file, TextIOWrapper(file, name, errors="replace") as text:
            line = next(
                (number for number, content in enumerate(text, 1) if "\ufffd" in content), 1
            )
        raise FilesError(
            f"{path.name}, line {line}: the byte 0x{error.object[error.start]:02X} is not "
            f"{name.removesuffix('-sig').upper()}. Declare its encoding, such as reader: "
            "{encoding: windows-1252}",
        ) from error
    except EOFError as error:
        raise FilesError(f"{path.name} is damaged: its compressed data end early") from error
    except (OSError, zlib.error) as error:
        # An error with a number comes from the operating system, and is unrelated to the content of
        # the file.
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise FilesError(f"{path.name} is damaged: it cannot be unpacked ({error})") from error


def _open(path: Path) -> BinaryIO:
    opens = {".gz": gzip.open, ".bz2": bz2.open}.get(path.suffix.lower(), Path.open)
    return cast("BinaryIO", opens(path, "rb"))


def _encoding_of(path: Path, start: bytes, given: str | None) -> str:
    # No text in a usual encoding begins like a packed file.
    if start.startswith(_GZIP):
        raise FilesError(
            f"{path.name} is packed with gzip: unpack it, or let its name end in .gz",
        )
    marked = next((names for mark, names in _MARKS.items() if start.startswith(mark)), ())
    if given and marked and given not in marked:
        raise FilesError(
            f"{path.name} begins with the byte order mark of {marked[0].removesuffix('-sig')}, so "
            f"it is not {given}: remove encoding",
        )
    # Refuse UTF-16 and UTF-32 without a mark, because Python would assume the byte order of this
    # machine. If no encoding is set, recognize them by zero bytes: Latin letters have zero bytes in
    # UTF-16 and UTF-32, but not in UTF-8.
    if not marked and (given in ("utf-16", "utf-32") or (not given and b"\0" in start)):
        likely = "UTF-16BE" if start[:1] == b"\0" else "UTF-16LE"
        raise FilesError(
            f"{path.name} has no byte order mark and is not UTF-8: set reader: "
            f"{{encoding: {likely}}}",
        )
    # Choose the encoding that drops the mark. Otherwise, the mark would become part of the first
    # name.
    return marked[0] if marked else given or "utf-8"
