"""Build the file with the Hyper API's Inserter, row by row, as Tableau's guides show."""

from pathlib import Path

from pyspark.sql import DataFrame
from tableauhyperapi import (
    Connection,
    CreateMode,
    HyperProcess,
    Inserter,
    SqlType,
    TableDefinition,
    TableName,
    Telemetry,
)

from benchmarks.peers.protocol import SCHEMA, TABLE, contend

_TYPES = {
    "bigint": SqlType.big_int(),
    "boolean": SqlType.bool(),
    "date": SqlType.date(),
    "decimal(15,2)": SqlType.numeric(15, 2),
    "int": SqlType.int(),
    "string": SqlType.text(),
}


def _build(frame: DataFrame, folder: Path) -> Path:
    path = folder / "rows.hyper"
    table = TableDefinition(
        TableName(SCHEMA, TABLE),
        [TableDefinition.Column(name, _TYPES[type_]) for name, type_ in frame.dtypes],
    )
    with (
        HyperProcess(Telemetry.DO_NOT_SEND_USAGE_DATA_TO_TABLEAU) as hyper,
        Connection(hyper.endpoint, path, CreateMode.CREATE_AND_REPLACE) as connection,
    ):
        connection.catalog.create_schema(SCHEMA)
        connection.catalog.create_table(table)
        with Inserter(connection, table) as inserter:
            for row in frame.collect():
                inserter.add_row(row)
            inserter.execute()
    return path


if __name__ == "__main__":
    contend(_build)
