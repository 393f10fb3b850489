"""Check with hyperd whether columns are a key, before anything relies on it."""

from collections.abc import Sequence
from typing import Any

from tableauhyperapi import Connection, HyperProcess, escape_name

from tableau_pipeline.hyper.parquet.rows import names, rows
from tableau_pipeline.hyper.process import connect
from tableau_pipeline.hyper.tables import TableSource

_SAMPLES = 3


def key_problem(hyper: HyperProcess, table: TableSource, key: Sequence[str]) -> str | None:
    """Return why `key` does not identify the rows of `table`, with samples; None if it does."""
    with connect(hyper) as connection:
        return _nulls(connection, table, key) or _repeated(connection, table, key)


def null_problem(hyper: HyperProcess, table: TableSource, columns: Sequence[str]) -> str | None:
    """Return which columns contain NULL, with a sample row; None if none does."""
    with connect(hyper) as connection:
        return _nulls(connection, table, columns)


def shared_key_problem(
    hyper: HyperProcess, table: TableSource, other: TableSource, key: Sequence[str]
) -> str | None:
    """Return which keys of `table` rows of `other` have as well; None if there are none.

    Args:
        key: identifies the rows of each.
    """
    same = " AND ".join(f"source.{name} = other.{name}" for name in map(escape_name, key))
    with connect(hyper) as connection:
        shared = connection.execute_list_query(
            f"SELECT {names(key)}, 2 FROM {rows(table)} source "  # noqa: S608
            f"WHERE EXISTS (SELECT 1 FROM {rows(other)} other WHERE {same}) "
            f"ORDER BY {names(key)} LIMIT {_SAMPLES}"
        )
    return _not_unique(table, key, shared)


def orphans(hyper: HyperProcess, many: str, one: str, on: Sequence[tuple[str, str]]) -> int:
    """Count the rows of `many` without a partner in `one`; rows with a NULL key do not count.

    Args:
        many: a relation, as SQL; like `one`.
        on: pairs (column of `many`, column of `one`).
    """
    pairs = [(escape_name(left), escape_name(right)) for left, right in on]
    same = " AND ".join(f"m.{left} = o.{right}" for left, right in pairs)
    pointing = " AND ".join(f"m.{left} IS NOT NULL" for left, _ in pairs)
    with connect(hyper) as connection:
        count: Any = connection.execute_scalar_query(
            f"SELECT COUNT(*) FROM {many} m WHERE {pointing} "  # noqa: S608
            f"AND NOT EXISTS (SELECT 1 FROM {one} o WHERE {same})"
        )
    return count


def _nulls(connection: Connection, table: TableSource, columns: Sequence[str]) -> str | None:
    missing = " OR ".join(f"{escape_name(column)} IS NULL" for column in columns)
    where = f"FROM {rows(table)} source WHERE {missing}"
    count: Any = connection.execute_scalar_query(f"SELECT COUNT(*) {where}")
    if not count:
        return None
    (sample,) = connection.execute_list_query(f"SELECT * {where} LIMIT 1")
    shown = ", ".join(
        f"{column.name} = {value}"
        for column, value in zip(table.columns, sample, strict=True)
        if value is not None
    )
    return (
        f'table "{table.name}": {" or ".join(columns)} is NULL in {count:,} '
        f"row{'s' * (count > 1)}, "
        f"for instance in the one with {shown or 'nothing else'!s:.200}"
    )


def _repeated(connection: Connection, table: TableSource, key: Sequence[str]) -> str | None:
    repeated = connection.execute_list_query(
        f"SELECT {names(key)}, COUNT(*) FROM {rows(table)} source GROUP BY {names(key)} "  # noqa: S608
        f"HAVING COUNT(*) > 1 ORDER BY {names(key)} LIMIT {_SAMPLES}"
    )
    return _not_unique(table, key, repeated)


def _not_unique(
    table: TableSource, key: Sequence[str], repeated: Sequence[Sequence[Any]]
) -> str | None:
    if not repeated:
        return None
    samples = ", ".join(
        f"{' / '.join(map(_visible, values))} ({count} times)" for *values, count in repeated
    )
    return f'table "{table.name}": {", ".join(key)} is not unique, for instance {samples}'


def _visible(value: object) -> str:
    """Return a text that shows where the value begins and ends."""
    text = str(value)
    return text if text and text == text.strip() else f'"{text}"'
