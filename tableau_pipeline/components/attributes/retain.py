from typing import Literal

from pydantic import Field

from tableau_pipeline.components.attributes.base import Attributes
from tableau_pipeline.core.policies import Retain


class RetainAttributes(Attributes):
    """A rolling window: rows older than `days` are not published."""

    column: str = Field(description="A date or timestamp column. Rows where it is NULL are kept.")
    days: int = Field(gt=0, description="Rows older than this many days are not published.")
    as_of: Literal["run", "max"] = Field(
        default="run",
        description="Count the days from today (UTC), or from the latest value in the model.",
    )

    def to_domain(self) -> Retain:
        """Convert these keys to the core's `Retain`."""
        return Retain(self.column, self.days, self.as_of)
