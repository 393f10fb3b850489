"""Are these columns a key? Asked of hyperd, before anything is built on the answer."""

from collections.abc import Sequence

from tableauhyperapi import HyperProcess, escape_name

from tableau_pipeline.hyper.build import parquet
from tableau_pipeline.hyper.process import connect
from tableau_pipeline.hyper.tables import TableSource

_SAMPLES = 3


def key_problem(hyper: HyperProcess, table: TableSource, key: Sequence[str]) -> str | None:
    """Why `key` does not identify the rows of `table`, with samples; None when it does."""
    if not table.files:
        return None
    columns = ", ".join(escape_name(column) for column in key)
    null = " OR ".join(f"{escape_name(column)} IS NULL" for column in key)
    source = parquet(table.files)
    with connect(hyper) as connection:
        nulls = connection.execute_scalar_query(
            f"SELECT COUNT(*) FROM {source} WHERE {null}"  # noqa: S608
        )
        repeated = connection.execute_list_query(
            f"SELECT {columns}, COUNT(*) FROM {source} GROUP BY {columns} "  # noqa: S608
            f"HAVING COUNT(*) > 1 ORDER BY {columns} LIMIT {_SAMPLES}"
        )
    described = ", ".join(key)
    if nulls:
        return f'table "{table.name}": {described} is NULL in {nulls:,} row{"s" * (nulls > 1)}'
    if repeated:
        samples = ", ".join(
            f"{' / '.join(str(value) for value in values)} ({count} times)"
            for *values, count in repeated
        )
        return f'table "{table.name}": {described} is not unique, for instance {samples}'
    return None
