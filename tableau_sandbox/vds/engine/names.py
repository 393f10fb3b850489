"""Find what a request names in the model of a data source."""

from dataclasses import dataclass

from tableau_sandbox.vds.errors import VdsError, against_the_rules
from tableau_sandbox.vds.functions import DataType
from tableau_sandbox.vds.model import Field, LogicalTable, Model


@dataclass(frozen=True, slots=True)
class Names:
    """The fields and tables of a model, by captions or by names and identifiers.

    Hidden fields are unknown to those who query.
    """

    model: Model
    by_name: bool

    def of_field(self, field: Field) -> str:
        """Return how requests name a field."""
        return field.name if self.by_name else field.caption

    def of_table(self, table: LogicalTable) -> str:
        """Return how requests name a table."""
        return table.id if self.by_name else table.caption

    def types(self) -> dict[str, DataType]:
        """Return the types of the fields by how requests name them."""
        return {self.of_field(field): field.data_type for field in self._visible()}

    def tables(self) -> list[str]:
        """Return how requests name the tables."""
        return [self.of_table(table) for table in self.model.tables]

    def field(self, name: str) -> Field:
        """Return the field that a request names.

        Raises:
            VdsError: 400803, there is none; 404935, there are several.
        """
        found = [field for field in self._visible() if self.of_field(field) == name]
        if not found:
            raise against_the_rules(f"Unknown Field: {name}.")
        if len(found) > 1:
            raise VdsError("404935", f"The field caption '{name}' is not unique.")
        return found[0]

    def table(self, name: str) -> LogicalTable:
        """Return the table that a request names.

        Raises:
            VdsError: 404935, there is not exactly one.
        """
        found = [table for table in self.model.tables if self.of_table(table) == name]
        if len(found) != 1:
            raise VdsError("404935", f"The table caption '{name}' is not unique.")
        return found[0]

    def _visible(self) -> list[Field]:
        return [field for field in self.model.fields if not field.hidden]
