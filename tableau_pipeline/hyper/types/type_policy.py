"""How a data source publishes types for which Tableau has no single equivalent."""

import re
from dataclasses import dataclass
from typing import Literal
from zoneinfo import ZoneInfo

from tableau_pipeline.hyper.tables import Column

Nested = Literal["refuse", "json"]

_NESTED = re.compile(r"(array|map|struct)<.*|variant", re.DOTALL)


@dataclass(frozen=True, slots=True)
class TypePolicy:
    """The choices of a data source for some of Spark's types.

    Attributes:
        timestamps: how to publish instants (Spark's `timestamp`), as Tableau's datetime has no
            zone: the wall clock time in UTC or in a zone, or Hyper's TIMESTAMP WITH TIME ZONE.
            Values of `timestamp_ntz` are already wall clock times.
        nested: refuse arrays, maps, structs and variants, or publish them as JSON text.
        floats: widen 32-bit floats, which is exact, or keep them, which needs version 4 of the
            file format.
    """

    timestamps: Literal["utc", "with_time_zone"] | ZoneInfo = "utc"
    nested: Nested = "refuse"
    floats: Literal["double", "real"] = "double"

    def apply(self, column: Column) -> Column:
        """Return the column with the type that the policy declares for it."""
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
