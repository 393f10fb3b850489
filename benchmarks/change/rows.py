"""Work on rows of lineitem in Arrow."""

from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc


def plain(schema: pa.Schema) -> pa.Schema:
    """Return the schema with strings in place of string views, which Arrow cannot filter."""
    return pa.schema(
        [
            field.with_type(pa.string()) if pa.types.is_string_view(field.type) else field
            for field in schema
        ]
    )


def with_quantity(rows: pa.Table, *, more: int, where: pa.Array | None = None) -> pa.Table:
    """Add `more` to the quantity of the rows, or only of the rows that `where` selects."""
    quantity = rows["l_quantity"]
    added = pc.call_function("add", [quantity, pa.scalar(Decimal(more), quantity.type)])
    added = added.cast(quantity.type)
    if where is not None:
        added = pc.call_function("if_else", [where, added, quantity])
    index = rows.schema.get_field_index("l_quantity")
    return rows.set_column(index, rows.schema.field(index), added)
