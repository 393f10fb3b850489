from typing import Literal

from pydantic import Field

from tableau_pipeline.components.attributes.base import Attributes
from tableau_pipeline.core.policies import Retain


class RetainAttributes(Attributes):
    """A rolling window: rows older than `days` are not published."""

    column: str = Field(description="A date or a timestamp; rows without one are kept.")
    days: int = Field(gt=0, description="Rows more than this many days back are not published.")
    as_of: Literal["run", "max"] = Field(
        default="run", description="Counted from today (UTC), or from the model's latest value."
    )

    def declared(self) -> Retain:
        """The same, as a refresh wants it."""
        return Retain(self.column, self.days, self.as_of)
