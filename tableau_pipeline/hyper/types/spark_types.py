"""Map Spark types to Hyper types, exactly or not at all; `docs/reference/types.md` lists them."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from tableauhyperapi import escape_name

from tableau_pipeline.hyper.tables import Column, json_text
from tableau_pipeline.hyper.types.literals import string_literal
from tableau_pipeline.hyper.types.versions import LOWEST, needed_version


@dataclass(frozen=True, slots=True)
class Rule:
    """How a Spark type is stored.

    Attributes:
        spark: a pattern for the name that Spark, or a `TypePolicy`, gives the type.
        hyper: the SQL type; `{0}` stands for the first group of the pattern.
        family: Hyper compares types within a family; types without one only with their own
            kind.
    """

    spark: str
    hyper: str
    family: str


RULES = (
    Rule("boolean", "BOOLEAN", "BOOLEAN"),
    Rule("tinyint|smallint", "SMALLINT", "NUMBER"),
    Rule("int", "INTEGER", "NUMBER"),
    Rule("bigint", "BIGINT", "NUMBER"),
    # Widening a 32-bit float is exact; storing it needs a file version that older products refuse.
    Rule("float|double", "DOUBLE PRECISION", "NUMBER"),
    Rule("float as real", "REAL", "NUMBER"),
    Rule(r"decimal\((\d+),(\d+)\)", "NUMERIC({0},{1})", "NUMERIC"),
    Rule(r"string( collate .+)?|(char|varchar)\(\d+\)|json of .+", "TEXT", "TEXT"),
    Rule("binary", "BYTES", "BYTES"),
    Rule("date", "DATE", "MOMENT"),
    # Tableau's datetime has no zone: an instant becomes the wall clock time in UTC, or in a zone.
    Rule("timestamp|timestamp at .+|timestamp_ntz", "TIMESTAMP", "MOMENT"),
    Rule("timestamp with time zone", "TIMESTAMPTZ", "INSTANT"),
)
_PATTERNS = [(re.compile(rule.spark, re.IGNORECASE), rule) for rule in RULES]

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
    """Tableau has no type for the type of a column."""


def hyper_type(column: Column, *, table: str) -> str:
    """Return the SQL type of a column in a `.hyper` file.

    Raises:
        UnsupportedTypeError: names the table, the column, its type and what to do.
    """
    found = _find(column.type)
    if found is None:
        # Only the outermost type matters: an array of structs is an array.
        family = next((name for name in _REMEDIES if name in column.type.split("<")[0]), None)
        remedy = _REMEDIES.get(family or "", "cast it in the model, or leave the column out")
        raise UnsupportedTypeError(
            f'Table "{table}", column "{column.name}": Tableau cannot hold the type '
            f"{column.type}; {remedy}."
        )
    rule, groups = found
    return rule.hyper.format(*groups)


def stored_name(column: Column) -> str:
    """Return the name of the column in a model's Parquet files that holds this column."""
    return json_text(column.name) if column.type.startswith("json of ") else column.name


def stored_type(column: Column, type_: str) -> str:
    """Return the type with which hyperd reads that column; `type_` is its type in the file."""
    # Spark writes instants, whatever zone they are to be shown in.
    return "TIMESTAMPTZ" if zone_of(column) else type_


def value_of(column: Column) -> str:
    """Return the value of a column as SQL over the stored columns, to be cast to its type."""
    name = escape_name(stored_name(column))
    zone = zone_of(column)
    if zone is None or column.type == _WITH_ZONE:
        return name
    return f"{name} AT TIME ZONE {string_literal(zone)}"


def zone_of(column: Column) -> str | None:
    """Return the zone in which an instant is shown; None if the column holds no such instants."""
    if column.type in ("timestamp", _WITH_ZONE):
        return "UTC"
    declared = _AT_ZONE.fullmatch(column.type)
    return declared[1] if declared else None


def is_moment(column: Column) -> bool:
    """Whether a column holds dates or timestamps."""
    found = _find(column.type)
    return found is not None and found[0].family in ("MOMENT", "INSTANT")


def comparable(one: str, other: str) -> bool:
    """Whether Hyper can compare columns of these two Spark types."""
    return _family(one) == _family(other)


def file_version(columns: Iterable[Column]) -> int:
    """Return the lowest format version that can hold the columns, which most products can open."""
    found = filter(None, (_find(column.type) for column in columns))
    types = (rule.hyper.format(*groups) for rule, groups in found)
    return max(map(needed_version, types), default=LOWEST)


def _find(type_: str) -> tuple[Rule, tuple[str, ...]] | None:
    for pattern, rule in _PATTERNS:
        if match := pattern.fullmatch(type_):
            return rule, match.groups()
    return None


def _family(type_: str) -> str:
    found = _find(type_)
    return found[0].family if found else type_
