"""Run a query on the published file of a data source."""

from pathlib import Path

from tableauhyperapi import HyperProcess

from tableau_sandbox.hyperd import UnreadableFileError, connect, with_hyperd
from tableau_sandbox.vds.engine.statement import Statement
from tableau_sandbox.vds.engine.values import Value, json_value
from tableau_sandbox.vds.errors import not_emulated
from tableau_sandbox.vds.requests import Query

Row = list[Value]


class FileGoneError(Exception):
    """The file was replaced by another one before hyperd opened it."""


def run(statement: Statement, query: Query, file: Path) -> list[Row]:
    """Return the rows of a query, each in the order of its fields.

    Raises:
        FileGoneError: the file does not exist.
        VdsError: 501000, hyperd cannot compute it.
    """

    def work(hyper: HyperProcess) -> list[list]:
        with connect(hyper, file) as connection:
            return connection.execute_list_query(statement.sql)

    try:
        rows = with_hyperd(work, file)
    except UnreadableFileError as error:
        if not file.exists():
            raise FileGoneError from error
        raise not_emulated(str(error)) from error
    columns = list(zip(statement.columns, query.fields, strict=True))
    return [
        [
            json_value(value, column.data_type, places=field.max_decimal_places)
            for value, (column, field) in zip(row, columns, strict=True)
        ]
        for row in rows
    ]
