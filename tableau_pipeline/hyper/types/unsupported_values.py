"""Which values of Parquet files have no place in Hyper: hyperd's own words may name no column."""

from dataclasses import replace

from tableauhyperapi import Connection, HyperException, HyperProcess

from tableau_pipeline.hyper.process import connect
from tableau_pipeline.hyper.rows import rows
from tableau_pipeline.hyper.tables import TableSource


def unreadable_columns(hyper: HyperProcess, table: TableSource) -> list[str]:
    """A phrase for each column with values that hyperd cannot take; reads the whole table."""
    problems = []
    with connect(hyper) as connection:
        for column in table.columns:
            alone = replace(table, columns=(column,), where=None)
            if reason := _reason(connection, alone):
                problems.append(f'table "{table.name}", column "{column.name}": {reason}')
    return problems


def _reason(connection: Connection, table: TableSource) -> str | None:
    try:
        # Counting alone would not look at the values.
        connection.execute_list_query(
            f"SELECT COUNT(*) FROM (SELECT DISTINCT * FROM {rows(table)} source) found"  # noqa: S608
        )
    except HyperException as error:
        return str(error.main_message).strip().splitlines()[-1]
    return None
