"""The tables that an action names, and the errors of batches that do not fit them."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from tableauhyperapi import Connection, SchemaName, SqlType, TableName

from tableau_sandbox.batch.grammar import Side


class Code(StrEnum):
    """The kinds of batch errors; numbers are codes that were observed on real servers."""

    NO_SUCH_TABLE = "410012"
    UNREADABLE_FILE = "unreadable file"
    SCHEMA_NEEDED = "schema needed"
    COLUMNS = "columns"
    TYPES = "types"
    REPEATED_KEY = "repeated key"
    ENGINE = "engine"


_SERVER_CLASS = "com.tableausoftware.server.status.reporting.TableauRuntimeException"


class BatchError(RuntimeError):
    """A batch cannot be applied; the data do not change.

    Attributes:
        code: the kind of error.
        message: the error in words.
        action: the position of the action that failed, from 0; None if a file cannot be opened.
    """

    def __init__(self, code: Code, message: str, action: int | None = None):
        super().__init__(message)
        self.code = code
        self.message = message
        self.action = action

    @property
    def note(self) -> str:
        """Format the error for the notes of a job, as real servers do where that is known."""
        if self.code.isdigit():
            return f"{_SERVER_CLASS}: {self.message} (errorCode={self.code})"
        where = "" if self.action is None else f"Action {self.action + 1}: "
        return f"{where}{self.message}"


@dataclass(frozen=True)
class ColumnType:
    """The type of a column; two columns need the same one to exchange values."""

    type: SqlType
    collation: str | None = None

    def __str__(self) -> str:
        collated = f" COLLATE {self.collation}" if self.collation else ""
        return f"{self.type}{collated}"


@dataclass(frozen=True)
class Table:
    """A table of an attached database.

    Attributes:
        side: the database, attached under this name.
        name: the name in SQL.
        types: the types of its columns, by name and in order.
    """

    side: Side
    name: TableName
    types: Mapping[str, ColumnType]

    @property
    def title(self) -> str:
        """The name for messages, without the database, which only the sandbox knows."""
        return f"{self.side} table {self.name.name}"


def find_table(connection: Connection, side: Side, *, schema: str, name: str) -> Table:
    """Find a table of a database; without a schema, in the only one that has tables.

    Raises:
        BatchError: there is none, or the schema is needed to identify it.
    """
    catalog = connection.catalog
    tables = {
        (found.name.unescaped, table.name.unescaped): table
        for found in catalog.get_schema_names(side)
        for table in catalog.get_table_names(SchemaName(side, found.name))
    }
    # Every file also has a schema "public", which is mostly empty.
    schemas = sorted({found for found, _ in tables})
    if not schema and len(schemas) > 1:
        raise BatchError(
            Code.SCHEMA_NEEDED,
            f"The {side} holds tables in several schemas, so '{side}-schema' must name one of"
            f" them: {', '.join(schemas)}.",
        )
    table = tables.get((schema or "".join(schemas), name))
    if table is None:
        raise BatchError(
            Code.NO_SUCH_TABLE,
            f"There was a problem retrieving table information for the {side} table."
            f" Specified table does not exist: {name}.",
        )
    columns = catalog.get_table_definition(table).columns
    types = {each.name.unescaped: ColumnType(each.type, each.collation) for each in columns}
    return Table(side, table, types)
