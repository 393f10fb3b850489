"""The options of `reader`, by the names that Spark's readers have for them."""

import codecs
from collections.abc import Mapping
from dataclasses import dataclass

from tableau_pipeline.errors import RefusedError
from tableau_pipeline.ingest.found import Format

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
    "locale": "say decimal, thousands and dateFormat",
    "mode": "say bad_rows: refuse or drop",
    "columnnameofcorruptrecord": "say bad_rows: refuse or drop",
    "linesep": "lines may end in LF, CR LF or CR, without being told",
    "emptyvalue": 'a quoted empty field, "", is the empty string',
    "nanvalue": "a column declared as double takes NaN",
    "positiveinf": "a column declared as double takes Infinity",
    "negativeinf": "a column declared as double takes -Infinity",
    "samplingratio": "types are found from all rows; say columns to spare that",
}


@dataclass(frozen=True, slots=True)
class Options:
    """How the text of files is read.

    Attributes:
        separator: between values; one character.
        quote: around values, doubled within them; empty: quotes are characters like others.
        escape: what stands before a quote within quotes, instead of doubling; usually empty.
        comment: what lines begin with that hold no row; empty: none do.
        null: a text that means NULL, besides the empty field.
        trim_left, trim_right: leave out blanks and tabs at the ends of values.
        whole: a JSON document may span lines.
        decimal, thousands: the signs in numbers; thousands may be empty.
        date, timestamp, timestamp_ntz: patterns as Java's DateTimeFormatter has them; None for
            ISO 8601.
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


def check_options(reader: Mapping[str, str], *formats: Format) -> None:
    """Refuse options that none of these formats has.

    Raises:
        RefusedError: names the option, and what to say instead.
    """
    known = {name.lower(): name for format_ in formats for name in NAMES[format_]}
    for name in reader:
        if name.lower() in known:
            continue
        instead = _INSTEAD.get(name.lower()) if "parquet" not in formats[:1] else None
        names = ", ".join(known.values())
        raise RefusedError(
            f"reader: {name} is no option for {' and '.join(formats)} files: "
            f"{instead or f'the options are {names}'}"
        )


def text_options(reader: Mapping[str, str], format_: Format, *, tabs: bool = False) -> Options:
    """What `reader` says for files of text.

    Args:
        tabs: values are separated by tabs unless `reader` says otherwise.

    Raises:
        RefusedError: an option, or its value, is not known; it says what to say instead.
    """
    check_options(reader, format_)
    given = _Given({name.lower(): value for name, value in reader.items()})
    if given.flag("enforceSchema", default=False):
        raise RefusedError(
            "reader: enforceSchema: true would take columns by their order, whatever the header "
            "says: leave it out, or say header: false for files without one"
        )
    if format_ == "csv" and not given.flag("multiLine", default=True):
        raise RefusedError(
            "reader: multiLine: false is not possible, as line breaks within quotes belong to the "
            'value: leave it out, or say quote: "" if quotes are characters like others'
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
    """Options by their names in lower case, as Spark does not tell case apart either."""

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
        text = text.replace("\\t", "\t").replace("\\\\", "\\")
        is_one = len(text) == 1 and text not in "\r\n"
        if not is_one and not (empty and not text):
            raise RefusedError(f'reader: {names[0]}: "{text}" is not one character')
        return text


def _escape(given: _Given) -> str:
    quote = given.character("quote", default='"', empty=True)
    escape = given.character("escape", default="", empty=True)
    # As Spark's users say that quotes are doubled.
    return "" if escape == quote else escape


def _encoding(name: str | None) -> str | None:
    if name is None:
        return None
    try:
        found = codecs.lookup(name)
        b"".decode(name)
    except LookupError as error:
        raise RefusedError(
            f'reader: encoding: "{name}" is not known; windows-1252, ISO-8859-1 and UTF-16LE are'
        ) from error
    return found.name


def _check_signs(options: Options) -> None:
    signs = [options.decimal, options.thousands]
    if options.decimal == options.thousands:
        raise RefusedError(f'reader: decimal and thousands are both "{options.decimal}"')
    if wrong := [sign for sign in signs if sign and sign in "0123456789+-eE"]:
        raise RefusedError(f'reader: "{wrong[0]}" cannot be a sign within numbers')
    if options.separator == options.quote:
        raise RefusedError(f'reader: sep and quote are both "{options.quote}"')
