"""Read a `.hyper` file, by SQL and as Arrow."""

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
from tableauhyperapi import Connection, HyperException, HyperProcess, TableName

from tableau_pipeline.hyper.process import connect, hyper_process
from tableau_pipeline.hyper.types import sql_type, string_literal


class HyperFileError(Exception):
    """A `.hyper` file cannot be opened."""


@dataclass(frozen=True, slots=True)
class TableInfo:
    """A table of a file; `columns` maps names to SQL types."""

    name: TableName
    columns: dict[str, str]
    rows: int


@dataclass(frozen=True, slots=True)
class HyperFile:
    """An open file. Tables are named `TableName("Extract", "Extract")`.

    Attributes:
        connection: for everything else that SQL can do.
    """

    connection: Connection

    def tables(self) -> list[TableInfo]:
        """Return the tables of all schemas."""
        found = []
        for name in self.table_names():
            rows = self.connection.execute_scalar_query(f"SELECT COUNT(*) FROM {name}")  # noqa: S608
            found.append(TableInfo(name, self.columns(name), int(str(rows))))
        return found

    def table_names(self) -> list[TableName]:
        """Return the names of the tables of all schemas, sorted."""
        catalog = self.connection.catalog
        found = (catalog.get_table_names(schema) for schema in catalog.get_schema_names())
        return sorted((name for tables in found for name in tables), key=str)

    def columns(self, table: TableName) -> dict[str, str]:
        """Return the SQL types of a table's columns, by name and in order."""
        definition = self.connection.catalog.get_table_definition(table)
        return {
            column.name.unescaped: sql_type(column.type, column.collation)
            for column in definition.columns
        }

    @contextmanager
    def reading(self, what: TableName | str) -> Generator[pa.RecordBatchReader]:
        """Read the rows of a table or a query, batch by batch, within the block."""
        query = f"SELECT * FROM {what}" if isinstance(what, TableName) else what  # noqa: S608
        with TemporaryDirectory() as folder:
            # Through a file, hyperd hands over the rows without Python handling each.
            file = Path(folder) / "rows.arrows"
            target = string_literal(str(file))
            self.connection.execute_command(f"COPY ({query}) TO {target} WITH (FORMAT arrowstream)")
            with pa.OSFile(str(file), "rb") as source, pa.ipc.open_stream(source) as reader:
                yield reader.cast(pa.schema([_usual(field) for field in reader.schema]))

    def read(self, what: TableName | str) -> pa.Table:
        """Read all rows of a table or a query; without ORDER BY in no particular order."""
        with self.reading(what) as reader:
            return reader.read_all()


def _usual(field: pa.Field) -> pa.Field:
    """Return a column as other programs write it: hyperd has dates in ms, and the zone "Utc"."""
    if pa.types.is_date(field.type):
        return field.with_type(pa.date32())
    if pa.types.is_timestamp(field.type) and field.type.tz:
        return field.with_type(pa.timestamp("us", "UTC"))
    return field


@contextmanager
def open_hyper(path: Path | str, *, hyper: HyperProcess | None = None) -> Generator[HyperFile]:
    """Open a `.hyper` file to read it.

    Args:
        hyper: the hyperd to use. Default: the one that this process shares.

    Raises:
        HyperFileError: the file does not exist, is not a .hyper file, is damaged, or is in use.
    """
    path = Path(path).absolute()
    if path.suffix != ".hyper":
        raise HyperFileError(f"{path}: the name must end in .hyper")
    try:
        connection = connect(hyper or hyper_process(), path)
    except HyperException as error:
        # 'error opening database "x": could not load database: <the reason>: DatabaseId: ...'
        words = str(error.main_message).partition("could not load database: ")[2]
        reason = words.partition(": DatabaseId")[0] or str(error.main_message)
        raise HyperFileError(f"{path}: {reason}") from error
    with connection:
        yield HyperFile(connection)


def table_columns(hyper: HyperProcess, path: Path) -> dict[TableName, dict[str, str]]:
    """Return the SQL types of the columns of each table of a file, by name and in order."""
    with open_hyper(path, hyper=hyper) as file:
        return {table: file.columns(table) for table in file.table_names()}


def read_table(hyper: HyperProcess, path: Path, table: TableName) -> pa.Table:
    """Read the rows of a table, in no particular order."""
    with open_hyper(path, hyper=hyper) as file:
        return file.read(table)
