"""What a data source looks like to those who query it: logical tables, fields, relationships."""

from dataclasses import dataclass
from enum import StrEnum

from tableau_sandbox.vds.functions import DataType


class ColumnClass(StrEnum):
    """Where the values of a field come from."""

    COLUMN = "COLUMN"
    BIN = "BIN"
    GROUP = "GROUP"
    CALCULATION = "CALCULATION"


@dataclass(frozen=True, slots=True)
class LogicalTable:
    """A table of the model.

    Attributes:
        id: its identifier in the data source.
        caption: its name for people.
        stored: its schema and name in the `.hyper` file; None if no single table there has its
            rows.
    """

    id: str
    caption: str
    stored: tuple[str, str] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """A field of the model.

    Attributes:
        name: unique in the data source.
        caption: its name for people.
        data_type: the type of its values.
        table: the identifier of its logical table; "" if it belongs to none.
        column: its column in the `.hyper` file; None if it has none there.
        column_class: where its values come from.
        formula: the formula of a calculation.
        role: "dimension" or "measure" if the data source says so.
        kind: "nominal", "ordinal" or "quantitative" if the data source says so.
        hidden: whether people do not see it.
    """

    name: str
    caption: str
    data_type: DataType
    table: str
    column: str | None
    column_class: ColumnClass = ColumnClass.COLUMN
    formula: str | None = None
    role: str | None = None
    kind: str | None = None
    hidden: bool = False


@dataclass(frozen=True, slots=True)
class FieldPair:
    """Two fields that are compared, by their names in brackets."""

    operator: str
    first: str
    second: str


@dataclass(frozen=True, slots=True)
class Relationship:
    """How two logical tables are related; all pairs must hold."""

    first: str
    second: str
    pairs: tuple[FieldPair, ...]


@dataclass(frozen=True, slots=True)
class Model:
    """The model of a data source."""

    tables: tuple[LogicalTable, ...]
    fields: tuple[Field, ...]
    relationships: tuple[Relationship, ...]

    def table(self, identifier: str) -> LogicalTable | None:
        """Return the table with this identifier."""
        return next((each for each in self.tables if each.id == identifier), None)
