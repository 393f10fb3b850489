"""Find Parquet values that Hyper cannot hold: hyperd's own errors may not name the column."""

from dataclasses import replace

from tableauhyperapi import HyperException, HyperProcess

from tableau_pipeline.hyper.parquet.rows import rows
from tableau_pipeline.hyper.process import connect
from tableau_pipeline.hyper.tables import TableSource


def unreadable_columns(hyper: HyperProcess, table: TableSource) -> list[str]:
    """Return a phrase for each column with values that hyperd refuses; reads the whole table."""
    problems = []
    for column in table.columns:
        # The condition goes too, because it may name one of the other columns.
        alone = replace(table, columns=(column,), where=None)
        if reason := _reason(hyper, alone):
            problems.append(f'table "{table.name}", column "{column.name}": {reason}')
    return problems


def _reason(hyper: HyperProcess, table: TableSource) -> str | None:
    try:
        with connect(hyper) as connection:
            # A plain count would not read the values.
            connection.execute_list_query(
                f"SELECT COUNT(*) FROM (SELECT DISTINCT * FROM {rows(table)} source) found"  # noqa: S608
            )
    except HyperException as error:
        return str(error.main_message).strip().splitlines()[-1]
    return None
