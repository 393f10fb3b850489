"""What a data source makes of the types for which Tableau has no single right place."""

import re
from dataclasses import dataclass
from typing import Literal
from zoneinfo import ZoneInfo

from tableau_pipeline.hyper.tables import Column

Nested = Literal["refuse", "json"]

_NESTED = re.compile(r"(array|map|struct)<.*|variant", re.DOTALL)


@dataclass(frozen=True, slots=True)
class TypePolicy:
    """What a data source makes of some of Spark's types.

    Attributes:
        timestamps: of instants (Spark's `timestamp`), as Tableau's datetime has no zone: the wall
            clock of UTC, that of a zone, or Hyper's own TIMESTAMP WITH TIME ZONE. Others,
            Spark's `timestamp_ntz`, are wall clocks already.
        nested: arrays, maps, structs and variants are refused, or held as their JSON text.
        floats: 32-bit floats are widened, which is exact, or kept; that needs version 4 of the
            file format.
    """

    timestamps: Literal["utc", "with_time_zone"] | ZoneInfo = "utc"
    nested: Nested = "refuse"
    floats: Literal["double", "real"] = "double"

    def declared(self, column: Column) -> Column:
        """The column, with what is made of it as its type."""
        return Column(column.name, self._type(column.type))

    def _type(self, type_: str) -> str:
        if type_ == "timestamp" and self.timestamps == "with_time_zone":
            return "timestamp with time zone"
        if type_ == "timestamp" and isinstance(self.timestamps, ZoneInfo):
            return f"timestamp at {self.timestamps.key}"
        if type_ == "float" and self.floats == "real":
            return "float as real"
        if self.nested == "json" and _NESTED.fullmatch(type_):
            return f"json of {type_}"
        return type_
