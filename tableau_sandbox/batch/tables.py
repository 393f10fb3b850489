"""Find the tables that an action names, and refuse batches that do not fit the tables.

Columns need exact names, equal types, and comparisons that servers support. Hyper itself would
silently convert between almost any types.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from tableauhyperapi import Connection, SchemaName, SqlType, TableName, TypeTag

from tableau_sandbox.batch.grammar import Comparison, Condition, Side, columns_of, comparisons

_EQUALITY = ("eq", "neq", "is")
_ORDER = ("gt", "lt", "gte", "lte")
_NEVER = frozenset({TypeTag.UNSUPPORTED, TypeTag.INTERVAL, TypeTag.TABGEOGRAPHY, TypeTag.JSON})
_TEXTS = frozenset({TypeTag.TEXT, TypeTag.VARCHAR, TypeTag.CHAR})
_OF_CONSTANTS = {
    "boolean": frozenset({TypeTag.BOOL}),
    "integer": frozenset({TypeTag.SMALL_INT, TypeTag.INT, TypeTag.BIG_INT}),
    "double": frozenset({TypeTag.DOUBLE, TypeTag.NUMERIC, TypeTag.FLOAT}),
    "string": _TEXTS,
    "datetime": frozenset({TypeTag.DATE, TypeTag.TIMESTAMP, TypeTag.TIMESTAMP_TZ}),
}


class Code(StrEnum):
    """The kinds of batch errors. A number is an error code that real servers returned."""

    NO_SUCH_TABLE = "410012"
    UNREADABLE_FILE = "unreadable file"
    SCHEMA_NEEDED = "schema needed"
    COLUMNS = "columns"
    TYPES = "types"
    REPEATED_KEY = "repeated key"
    ENGINE = "engine"


_SERVER_CLASS = "com.tableausoftware.server.status.reporting.TableauRuntimeException"


class BatchError(RuntimeError):
    """A batch cannot be applied; the published data stay as they are.

    Attributes:
        code: the kind of error.
        message: the error in words.
        action: the position of the failed action, from 0; None if a file cannot be opened.
    """

    def __init__(self, code: Code, message: str, action: int | None = None):
        super().__init__(message)
        self.code = code
        self.message = message
        self.action = action

    @property
    def note(self) -> str:
        """The error as a note of the job, in the form of real servers if that form is known."""
        if self.code.isdigit():
            return f"{_SERVER_CLASS}: {self.message} (errorCode={self.code})"
        where = "" if self.action is None else f"Action {self.action + 1}: "
        return f"{where}{self.message}"


@dataclass(frozen=True)
class ColumnType:
    """The type of a column. Values pass only between columns of equal types."""

    type: SqlType
    collation: str | None = None

    def __str__(self) -> str:
        collated = f" COLLATE {self.collation}" if self.collation else ""
        return f"{self.type}{collated}"


@dataclass(frozen=True)
class Table:
    """A table of an attached database.

    Attributes:
        side: the alias under which the database is attached.
        name: the name in SQL.
        types: the types of the columns by name, in the order of the columns.
    """

    side: Side
    name: TableName
    types: Mapping[str, ColumnType]

    @property
    def title(self) -> str:
        """The name for messages. It omits the database, whose name has no meaning to clients."""
        return f"{self.side} table {self.name.name}"


def find_table(connection: Connection, side: Side, *, schema: str, name: str) -> Table:
    """Find a table of a database; without a schema, look in the only schema that has tables.

    Raises:
        BatchError: the table does not exist, or several schemas have tables and none is given.
    """
    catalog = connection.catalog
    tables = {
        (found.name.unescaped, table.name.unescaped): table
        for found in catalog.get_schema_names(side)
        for table in catalog.get_table_names(SchemaName(side, found.name))
    }
    # Every file also has a schema "public", which is usually empty.
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


def check_condition(condition: Condition, *, target: Table, source: Table | None) -> None:
    """Check the comparisons of a condition against the columns of its tables.

    Raises:
        BatchError: a column does not exist, or the comparison does not apply to its type.
    """
    tables = {Side.TARGET: target, Side.SOURCE: source}
    for comparison in comparisons(condition):
        columns = comparison.columns.items()
        types = [_type(tables[side], name) for side, name in columns]
        problem = _problem(comparison, types)
        if problem:
            names = " and ".join(f'{side} column "{name}"' for side, name in columns)
            raise BatchError(Code.TYPES, f"'{comparison.op}' cannot compare {names}: {problem}.")


def inserted_columns(target: Table, source: Table, condition: Condition) -> list[str]:
    """Return the columns whose values a new row gets from the source.

    Args:
        target: the table that gets the row.
        source: the table that provides the row.
        condition: the condition of the action. If a source column occurs only in the condition, its
            value is not inserted.

    Raises:
        BatchError: the source lacks a column, or has an additional one or one of another type.
    """
    missing = [name for name in target.types if name not in source.types]
    if missing:
        raise BatchError(Code.COLUMNS, f"The {source.title} lacks {_names(missing)}.")
    return updated_columns(target, source, condition)


def updated_columns(target: Table, source: Table, condition: Condition) -> list[str]:
    """Return the columns whose values a changed row gets from the source; all other columns stay.

    Raises:
        BatchError: the source has an additional column, has a column of another type, or shares no
            column with the target.
    """
    used = columns_of(condition, Side.SOURCE)
    extra = [name for name in source.types if name not in target.types and name not in used]
    if extra:
        raise BatchError(Code.COLUMNS, f"The {target.title} lacks {_names(extra)}.")
    common = [name for name in target.types if name in source.types]
    for name in common:
        if target.types[name] != source.types[name]:
            raise BatchError(
                Code.TYPES,
                f'The types of column "{name}" differ: {target.types[name]} in the {target.title},'
                f" {source.types[name]} in the {source.title}.",
            )
    if not common:
        raise BatchError(Code.COLUMNS, f"The {source.title} has no column of the {target.title}.")
    return common


def check_deleting_columns(source: Table, condition: Condition) -> None:
    """Refuse a source with columns that the condition does not use.

    Raises:
        BatchError: the source has such a column.
    """
    used = columns_of(condition, Side.SOURCE)
    unused = [name for name in source.types if name not in used]
    if unused:
        raise BatchError(
            Code.COLUMNS,
            f"The {source.title} has columns to which the condition does not refer:"
            f" {_names(unused)}.",
        )


def _type(table: Table | None, column: str) -> ColumnType:
    if table is None or column not in table.types:
        title = "source table" if table is None else table.title
        raise BatchError(Code.COLUMNS, f'The {title} has no column "{column}".')
    return table.types[column]


def _problem(comparison: Comparison, types: list[ColumnType]) -> str | None:
    first, constant = types[0], comparison.const
    if constant is not None:
        if constant.v is None:
            return None
        if first.type.tag not in _OF_CONSTANTS[constant.type]:
            return f"its type {first} does not match constants of the type {constant.type}"
    elif first != types[1]:
        return f"their types {first} and {types[1]} differ"
    if comparison.op not in _operators(first):
        return f"the type {first} does not allow this comparison"
    return None


def _operators(type_: ColumnType) -> tuple[str, ...]:
    if type_.type.tag in _NEVER:
        return ()
    if type_.collation or type_.type.tag is TypeTag.BYTES:
        return _EQUALITY
    has = ("has",) if type_.type.tag in _TEXTS else ()
    return _EQUALITY + _ORDER + has


def _names(columns: Iterable[str]) -> str:
    return ", ".join(f'"{name}"' for name in columns)
