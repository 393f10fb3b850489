"""Write a new `.hyper` file, which appears under its name only when it is complete."""

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tableauhyperapi import Connection, HyperProcess, TableName, escape_name

from tableau_pipeline.hyper.atomic import atomic_path
from tableau_pipeline.hyper.parquet.rows import names
from tableau_pipeline.hyper.process import connect
from tableau_pipeline.hyper.saving import saved
from tableau_pipeline.hyper.tables import Column
from tableau_pipeline.hyper.types.spark_types import hyper_type

# The name of the new file within the connection that writes it.
NEW = "new_file"


@contextmanager
def new_file(hyper: HyperProcess, path: Path, *, version: int) -> Generator[Connection]:
    """Open a connection whose database `NEW` becomes the file at `path` if the block succeeds.

    Args:
        version: the version of the file format.

    Raises:
        RefreshError: no space is left on its disk.
    """
    with atomic_path(path) as unfinished:
        connection, database = connect(hyper), escape_name(str(unfinished))
        with saved(hyper, unfinished, connection, name=path.name, database=NEW):
            connection.execute_command(f"CREATE DATABASE {database} WITH VERSION {version}")
            connection.execute_command(f"ATTACH DATABASE {database} AS {NEW}")
            yield connection


def create_table(
    connection: Connection, table: TableName, columns: Sequence[Column], *, key: Sequence[str] = ()
) -> None:
    """Create a table in the new file; `key` becomes its assumed primary key, if it is not empty.

    Raises:
        UnsupportedTypeError: names the table, the column, its type and what to do.
    """
    definitions = []
    for column in columns:
        type_ = hyper_type(column, table=table.name.unescaped)
        required = " NOT NULL" if column.name in key else ""
        definitions.append(f"{escape_name(column.name)} {type_}{required}")
    if key:
        definitions.append(f"ASSUMED PRIMARY KEY ({names(key)})")
    connection.catalog.create_schema_if_not_exists(table.schema_name)
    connection.execute_command(f"CREATE TABLE {table} ({', '.join(definitions)})")
