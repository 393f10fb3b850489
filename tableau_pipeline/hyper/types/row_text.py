"""SQL for rows as text, from which hyperd computes hashes and checksums."""

from collections.abc import Sequence

from tableauhyperapi import escape_name

from tableau_pipeline.hyper.tables import ROW_HASH, Column
from tableau_pipeline.hyper.types.spark_types import hyper_type

_HASH = escape_name(ROW_HASH)


def value_text(column: Column) -> str:
    """Return SQL for a value as text; bytes become hex, as they need not be valid text.

    Raises:
        UnsupportedTypeError: Tableau has no type for the column.
    """
    value, type_ = escape_name(column.name), hyper_type(column, table="")
    if type_ == "BYTES":
        return f"encode({value}, 'hex')"
    text = f"CAST({value} AS TEXT)"
    if type_ in ("DOUBLE PRECISION", "REAL"):
        # hyperd stores only one of 0.0 and -0.0 in a column that has both.
        return f"CASE WHEN {value} = 0 THEN '0' ELSE {text} END"
    return text


def row_text(columns: Sequence[Column]) -> str:
    """Return SQL for a row as text, which differs for rows that differ."""
    return " || ".join(map(_part, columns))


def with_row_hash(relation: str, columns: Sequence[Column]) -> str:
    """Return a subquery with these columns of a relation, and a BIGINT hash of each row."""
    kept = ", ".join(escape_name(column.name) for column in columns)
    hashed = f"(SELECT {kept}, sha256({row_text(columns)}) AS {_HASH} FROM {relation}) hashed"  # noqa: S608
    # The last byte of the eight carries the sign.
    number = f"{number_of(_HASH, 7)} + (CAST(get_byte({_HASH}, 7) AS BIGINT) - 128) * {256**7}"
    return f"(SELECT {kept}, {number} AS {_HASH} FROM {hashed})"  # noqa: S608


def number_of(hash_: str, size: int) -> str:
    """Return SQL for the first bytes of a hash as a whole number; at most 7 bytes."""
    return " + ".join(
        f"CAST(get_byte({hash_}, {number}) AS BIGINT) * {256**number}" for number in range(size)
    )


def _part(column: Column) -> str:
    text = value_text(column)
    if hyper_type(column, table="") == "TEXT":
        # Other texts contain no semicolon; with its length, this one may.
        return f"COALESCE(LENGTH({text}) || '=' || {text}, '-') || ';'"
    return f"COALESCE({text}, '-') || ';'"
