"""Spark's types in Hyper, exactly or not at all."""

import re
from collections.abc import Iterable

from tableau_pipeline.hyper.tables import Column

_SIMPLE = {
    "boolean": "BOOLEAN",
    "tinyint": "SMALLINT",
    "smallint": "SMALLINT",
    "int": "INTEGER",
    "bigint": "BIGINT",
    # Widening a 32-bit float is exact; storing one needs a file version that older products refuse.
    "float": "DOUBLE PRECISION",
    "double": "DOUBLE PRECISION",
    "string": "TEXT",
    "binary": "BYTES",
    "date": "DATE",
    # Tableau's datetime has no zone: an instant becomes the wall clock of UTC.
    "timestamp": "TIMESTAMP",
    "timestamp_ntz": "TIMESTAMP",
}

_REMEDIES = {
    "array": "turn it into text with to_json(column), or explode it into rows",
    "map": "turn it into text with to_json(column)",
    "struct": "select its fields as columns of their own",
    "variant": "turn it into text with to_json(column)",
    "void": "cast it to the type that it should have",
    "interval": "Tableau has no durations: cast it to a number of months or seconds",
}

# Hyper compares the members of a family; all other types with their own kind only.
_FAMILIES = {
    **dict.fromkeys(("SMALLINT", "INTEGER", "BIGINT", "DOUBLE PRECISION"), "NUMERIC"),
    "DATE": "TIMESTAMP",
    "TIMESTAMP": "TIMESTAMP",
    "TEXT": "TEXT",
}

_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")
_TEXT = re.compile(r"(char|varchar)\(\d+\)|string collate .+", re.IGNORECASE)
# NUMERIC beyond 18 digits needs version 3 of the file format (Tableau 2022.4.1, Server 2023.1).
_WIDE_DECIMAL = 18


class UnsupportedTypeError(Exception):
    """A column's type has no place in Tableau."""


def hyper_type(column: Column, *, table: str) -> str:
    """The SQL type of a column in a `.hyper` file.

    Raises:
        UnsupportedTypeError: names the table, the column, its type and what to do.
    """
    if column.type in _SIMPLE:
        return _SIMPLE[column.type]
    if decimal := _DECIMAL.fullmatch(column.type):
        return f"NUMERIC({decimal[1]},{decimal[2]})"
    if _TEXT.fullmatch(column.type):
        return "TEXT"
    family = next((name for name in _REMEDIES if name in column.type.split("<")[0]), None)
    remedy = _REMEDIES.get(family or "", "cast it in the model, or leave the column out")
    raise UnsupportedTypeError(
        f'Table "{table}", column "{column.name}": Tableau cannot hold the type {column.type}; '
        f"{remedy}."
    )


def comparable(one: str, other: str) -> bool:
    """Whether Hyper can relate columns of these two types of Spark's."""
    return _family(one) == _family(other)


def _family(type_: str) -> str:
    if _DECIMAL.fullmatch(type_):
        return "NUMERIC"
    if _TEXT.fullmatch(type_):
        return "TEXT"
    return _FAMILIES.get(_SIMPLE.get(type_, type_), type_)


def file_version(columns: Iterable[Column]) -> int:
    """The lowest version of the `.hyper` format that holds them: more products open it."""
    decimals = (_DECIMAL.fullmatch(column.type) for column in columns)
    wide = any(match and int(match[1]) > _WIDE_DECIMAL for match in decimals)
    return 3 if wide else 2
