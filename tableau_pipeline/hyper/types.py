"""Columns and their types: turn a Spark type into a Hyper type with the same values, or refuse it.

`docs/reference/types.md` lists the types.
"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal
from zoneinfo import ZoneInfo

import pyarrow as pa
from tableauhyperapi import SqlType, TypeTag, escape_name


def string_literal(text: str) -> str:
    """Return a text as a string literal of SQL.

    `tableauhyperapi.escape_string_literal` would not be exact. It writes a control character as one
    to three octal digits, and hyperd reads a digit after them as part of the escape.
    """
    quoted = text.replace("'", "''")
    if "\0" not in text:
        return f"'{quoted}'"
    # hyperd reads U+0000 only as an escape.
    escaped = quoted.replace("\\", "\\\\").replace("\0", "\\000")
    return f"E'{escaped}'"


EXTRACT_SCHEMA = "Extract"
# The name of the column with the hash of each row. This column is not published.
ROW_HASH = "_row_hash"


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a model.

    Attributes:
        type: Spark's name of the type, such as "decimal(10,2)"; or another type that a data source
            declares for the column, such as "timestamp at Europe/Paris" (see `TypePolicy`).
    """

    name: str
    type: str


def json_text(column: str) -> str:
    """Return the name of the column that stores the JSON text of a nested column in a snapshot."""
    return f"_json_of_{column}"


def name_problems(names: Sequence[str]) -> list[str]:
    """Return a phrase for each empty or repeated name; ignore case in names, as Spark does."""
    problems = [
        f"the name of column {at} is empty: name it" for at, name in enumerate(names, 1) if not name
    ]
    return problems + [
        f"columns {', '.join(repr(name) for name in names if name.casefold() == folded)} differ "
        "only in case, or not at all: rename all but one"
        for folded, count in Counter(map(str.casefold, names)).items()
        if count > 1
    ]


# hyperd's default version of the format, which every supported product can open.
LOWEST = 2
NEWEST = 4

# The first products that can open a file; the keys are versions of the file format.
# https://tableau.github.io/hyper-db/docs/hyper-api/hyper_process#default_database_version
PRODUCTS = {
    LOWEST: "Tableau 2020.4.15, 2021.1.12, 2021.2.9, 2021.3.8, 2021.4.4, 2022.1.2 and later",
    3: "Tableau 2022.4.1, Server 2023.1 and later",
    NEWEST: "Tableau 2024.3 and later",
}


# A rule has three parts. The first is a pattern for names of types, as Spark and `TypePolicy` write
# them. The second is the SQL type, with a placeholder for each group of the pattern. The third is
# the family of the type. Hyper can compare only types of the same family.
_RULES = (
    ("boolean", "BOOLEAN", "BOOLEAN"),
    ("tinyint|smallint", "SMALLINT", "NUMBER"),
    ("int", "INTEGER", "NUMBER"),
    ("bigint", "BIGINT", "NUMBER"),
    # Widen 32-bit floats, which is exact. A file with 32-bit floats has a version that older
    # products refuse.
    ("float|double", "DOUBLE PRECISION", "NUMBER"),
    ("float as real", "REAL", "NUMBER"),
    (r"decimal\((\d+),(\d+)\)", "NUMERIC({0},{1})", "NUMERIC"),
    (r"string( collate .+)?|(char|varchar)\(\d+\)|json of .+", "TEXT", "TEXT"),
    ("binary", "BYTES", "BYTES"),
    ("date", "DATE", "MOMENT"),
    # Tableau's datetime has no zone. So an instant becomes the wall clock time in UTC, or in a
    # declared zone.
    ("timestamp|timestamp at .+|timestamp_ntz", "TIMESTAMP", "MOMENT"),
    ("timestamp with time zone", "TIMESTAMPTZ", "INSTANT"),
)

_JSON_REMEDY = "declare nested: json for its JSON text"
_REMEDIES = {
    "array": f"{_JSON_REMEDY}, or explode it into rows",
    "map": _JSON_REMEDY,
    "struct": f"{_JSON_REMEDY}, or select its fields as columns of their own",
    "variant": _JSON_REMEDY,
    "void": "cast it to the type that it should have",
    "interval": "Tableau has no durations: cast it to a number of months or seconds",
}
_WITH_ZONE = "timestamp with time zone"
_AT_ZONE = re.compile(r"timestamp at (.+)")


class UnsupportedTypeError(Exception):
    """Tableau has no type that can hold the values of a column."""


def hyper_type(column: Column, *, table: str) -> str:
    """Return the SQL type of a column in a `.hyper` file.

    Raises:
        UnsupportedTypeError: Tableau cannot hold the type. The message names table, column and
            remedy.
    """
    if (rule := _rule_for(column.type)) is None:
        # Search only the outermost type: an array of structs is an array.
        family = next((name for name in _REMEDIES if name in column.type.split("<")[0]), None)
        remedy = _REMEDIES.get(family or "", "cast it in the model, or leave the column out")
        raise UnsupportedTypeError(
            f'Table "{table}", column "{column.name}": Tableau cannot hold the type '
            f"{column.type}; {remedy}."
        )
    return rule[0]


def stored_name(column: Column) -> str:
    """Return the name of a column in the Parquet files of its model."""
    return json_text(column.name) if column.type.startswith("json of ") else column.name


def stored_column(column: Column) -> Column:
    """Return the column with the name and type under which its model's Parquet files store it."""
    if column.type.startswith(("json of ", "array<", "map<", "struct<", "variant")):
        return Column(json_text(column.name), "string")
    if zone_of(column):
        return Column(column.name, "timestamp")
    return Column(column.name, column.type.removesuffix(" as real"))


def stored_type(column: Column, type_: str) -> str:
    """Return the SQL type of a column in the Parquet files; `type_` is the type in the extract."""
    # Spark stores instants, which are independent of the zone in which a column shows them.
    return "TIMESTAMPTZ" if zone_of(column) else type_


def value_of(column: Column) -> str:
    """Return SQL for a column's value, taken from the stored column; the caller casts the value."""
    name = escape_name(stored_name(column))
    zone = zone_of(column)
    if zone is None or column.type == _WITH_ZONE:
        return name
    return f"{name} AT TIME ZONE {string_literal(zone)}"


def zone_of(column: Column) -> str | None:
    """Return the zone in which a column shows its instants; None for a column without instants."""
    if column.type in ("timestamp", _WITH_ZONE):
        return "UTC"
    declared = _AT_ZONE.fullmatch(column.type)
    return declared[1] if declared else None


def is_moment(column: Column) -> bool:
    """Whether a column holds dates or timestamps."""
    return _family(column.type) in ("MOMENT", "INSTANT")


def comparable(one: str, other: str) -> bool:
    """Whether Hyper can compare columns of these two Spark types."""
    return _family(one) == _family(other)


def file_version(columns: Iterable[Column]) -> int:
    """Return the lowest possible format version for the columns, which most products can open."""
    version = LOWEST
    for sql, _ in filter(None, (_rule_for(column.type) for column in columns)):
        # Version 2 stores decimals in 64 bits, so a decimal has at most 18 digits.
        digits = re.match(r"NUMERIC\((\d+),", sql)
        needed = 3 if digits and int(digits[1]) > 18 else NEWEST if sql == "REAL" else LOWEST
        version = max(version, needed)
    return version


def _rule_for(type_: str) -> tuple[str, str] | None:
    """Return the SQL type of a Spark type, and its family; None if Hyper has no such type."""
    for spark, hyper, family in _RULES:
        if match := re.fullmatch(spark, type_, re.IGNORECASE | re.DOTALL):
            return hyper.format(*match.groups()), family
    return None


def _family(type_: str) -> str:
    rule = _rule_for(type_)
    return rule[1] if rule else type_


_SQL_TYPES = {
    pa.bool_(): "BOOLEAN",
    pa.int8(): "SMALLINT",
    pa.int16(): "SMALLINT",
    pa.int32(): "INTEGER",
    pa.int64(): "BIGINT",
    # Hyper has no unsigned integers, so an unsigned integer needs the next wider type.
    pa.uint8(): "SMALLINT",
    pa.uint16(): "INTEGER",
    pa.uint32(): "BIGINT",
    pa.uint64(): "NUMERIC(20,0)",
    pa.float64(): "DOUBLE PRECISION",
    pa.string(): "TEXT",
    pa.binary(): "BYTES",
    pa.date32(): "DATE",
    pa.time64("us"): "TIME",
    pa.timestamp("us"): "TIMESTAMP",
    pa.timestamp("us", "UTC"): "TIMESTAMPTZ",
}


class UnsupportedArrowTypeError(Exception):
    """Hyper has no type for an Arrow type."""


def plain_field(field: pa.Field) -> pa.Field:
    """Return the field with a type that hyperd can read and that can hold all values of the field.

    The unit of times becomes microseconds. A cast to the new type fails if a value is finer.

    Raises:
        UnsupportedArrowTypeError: Hyper cannot hold the type. The message names the column and its
            type.
    """
    type_ = _plain_type(field.type)
    if type_ not in _SQL_TYPES and not pa.types.is_decimal128(type_):
        raise UnsupportedArrowTypeError(
            f'column "{field.name}": Hyper cannot hold the Arrow type {field.type}; cast it, or '
            "leave the column out"
        )
    return field.with_type(type_)


def arrow_sql_type(type_: pa.DataType) -> str:
    """Return the SQL type for an Arrow type that `plain_field` has chosen."""
    if pa.types.is_decimal128(type_):
        return f"NUMERIC({type_.precision},{type_.scale})"
    return _SQL_TYPES[type_]


def _plain_type(type_: pa.DataType) -> pa.DataType:
    if pa.types.is_dictionary(type_):
        return _plain_type(type_.value_type)
    if pa.types.is_large_string(type_) or pa.types.is_string_view(type_):
        return pa.string()
    if pa.types.is_large_binary(type_) or pa.types.is_fixed_size_binary(type_):
        return pa.binary()
    # Widen 32-bit floats, which keeps their values. Hyper stores 32-bit floats only in version 4 of
    # its file format.
    if pa.types.is_floating(type_):
        return pa.float64()
    if pa.types.is_date(type_):
        return pa.date32()
    if pa.types.is_time(type_):
        return pa.time64("us")
    if pa.types.is_timestamp(type_):
        return pa.timestamp("us", "UTC" if type_.tz else None)
    # A column with only NULLs fits into any type.
    if pa.types.is_null(type_):
        return pa.string()
    if pa.types.is_decimal32(type_) or pa.types.is_decimal64(type_):
        return pa.decimal128(type_.precision, type_.scale)
    return type_


# The SQL names of types for which the Hyper API uses another name; the keys are the API's names.
_SQL_NAMES = {
    "BOOL": "BOOLEAN",
    "SMALL_INT": "SMALLINT",
    "INT": "INTEGER",
    "BIG_INT": "BIGINT",
    "FLOAT": "REAL",
    "DOUBLE": "DOUBLE PRECISION",
    "TIMESTAMP_TZ": "TIMESTAMPTZ",
    "TABLEAU.TABGEOGRAPHY": "GEOGRAPHY",
}


def sql_type(type_: SqlType, collation: str | None = None) -> str:
    """Return the SQL name of a type, such as "NUMERIC(10,2)" or 'TEXT COLLATE "en_US_CI"'.

    If the Hyper API does not know the type, return "UNSUPPORTED(number)".
    """
    name = str(type_).replace(" ", "")
    if type_.tag is TypeTag.UNSUPPORTED:
        name = f"{name}({type_.internal_oid})"
    return _SQL_NAMES.get(name, name) + (f' COLLATE "{collation}"' if collation else "")


# For each Hyper type, the Spark type to use in new models. It is one of the Spark types that become
# this Hyper type.
_SPARK_TYPES = {hyper: spark.split("|")[-1] for spark, hyper, _ in _RULES}
_SPARK_TYPES |= {"REAL": "float", "TIMESTAMPTZ": "timestamp"}


def spark_type(sql_type: str) -> str | None:
    """Return a Spark type that is published as this SQL type; None if there is no such type."""
    if sql_type.startswith("NUMERIC("):
        return sql_type.replace("NUMERIC", "decimal")
    # The length and the collation of a text type are not published.
    is_text = sql_type.startswith(("TEXT", "CHAR", "VARCHAR"))
    return "string" if is_text else _SPARK_TYPES.get(sql_type)


Nested = Literal["refuse", "json"]

_NESTED = re.compile(r"(array|map|struct)<.*|variant", re.DOTALL)


@dataclass(frozen=True, slots=True)
class TypePolicy:
    """How a data source publishes some of Spark's types.

    Attributes:
        timestamps: how to publish instants (Spark's `timestamp`), because Tableau's datetime has no
            zone. Instants become wall clock times in UTC or in a zone, or Hyper's TIMESTAMP WITH
            TIME ZONE. Values of `timestamp_ntz` already are wall clock times, so they stay
            unchanged.
        nested: whether to refuse arrays, maps, structs and variants, or to publish JSON text.
        floats: whether to widen 32-bit floats or to keep them. Widening is exact; keeping them
            needs version 4 of the file format.
    """

    timestamps: Literal["utc", "with_time_zone"] | ZoneInfo = "utc"
    nested: Nested = "refuse"
    floats: Literal["double", "real"] = "double"

    def apply(self, column: Column) -> Column:
        """Return the column with the type that the policy declares for it."""
        type_ = column.type
        if type_ == "timestamp" and self.timestamps == "with_time_zone":
            type_ = _WITH_ZONE
        elif type_ == "timestamp" and isinstance(self.timestamps, ZoneInfo):
            type_ = f"timestamp at {self.timestamps.key}"
        elif type_ == "float" and self.floats == "real":
            type_ = "float as real"
        elif self.nested == "json" and _NESTED.fullmatch(type_):
            type_ = f"json of {type_}"
        return Column(column.name, type_)
