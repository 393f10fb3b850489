"""The names that a query may use."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from tableau_sandbox.vds.errors import against_the_rules, not_emulated
from tableau_sandbox.vds.filters import FieldReference, Reference
from tableau_sandbox.vds.formulas import formula_type, parse_formula, resolve
from tableau_sandbox.vds.functions import APPLICABLE, DataType, Function, result_type
from tableau_sandbox.vds.schema import Schema


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownNames:
    """The names that a query may use, and what a version of the service does with them.

    Attributes:
        types: the types of the fields of the data source, by captions or names, as the request
            asks.
        tables: the captions or identifiers of its tables.
        schema: the version.
    """

    types: Mapping[str, DataType]
    tables: Collection[str]
    schema: Schema

    def type_of(self, reference: Reference) -> DataType:
        """Return the type of the values of what a filter refers to.

        Raises:
            VdsError: see `type_of_field` and `type_of_formula`.
        """
        if isinstance(reference, FieldReference):
            return self.type_of_field(reference.caption, reference.function)
        return self.type_of_formula(reference.formula)

    def type_of_field(self, caption: str, function: Function | None = None) -> DataType:
        """Return the type of the values of a field, or of a function of it.

        Raises:
            VdsError: 400803, there is no such field, or the function does not apply to it; 501000,
                the sandbox does not know whether it does.
        """
        if caption not in self.types:
            raise against_the_rules(f"Unknown Field: {caption}.")
        data_type = self.types[caption]
        if function is None:
            return data_type
        if not APPLICABLE[data_type]:
            raise not_emulated(f"{function} of the type {data_type}")
        if function not in APPLICABLE[data_type]:
            raise against_the_rules(
                f"The function {function} does not apply to the field {caption!a} of the type"
                f" {data_type}."
            )
        return result_type(function, data_type)

    def type_of_formula(self, formula: str) -> DataType:
        """Return the type of the values of a calculation.

        Raises:
            VdsError: 400800, the calculation is invalid.
        """
        resolved = resolve(
            parse_formula(formula), columns=self.types, tables=self.tables, schema=self.schema
        )
        return formula_type(resolved, columns=self.types)
