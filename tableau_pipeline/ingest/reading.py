"""The good rows of files as a Spark DataFrame, and what was wrong with the others."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pyspark.sql import DataFrame

from tableau_pipeline.errors import RefusedError
from tableau_pipeline.ingest.bad_rows import BadRows
from tableau_pipeline.ingest.found import digests


@dataclass(frozen=True, slots=True)
class Reading:
    """What was read.

    Attributes:
        digests: of each file, taken before it was read; none of what was not read from files.
        bad: rows that are not in the frame.
        otherwise: reads the same files by other means, should Spark fail at them only when the
            rows are asked for; None if there are no other means.
    """

    frame: DataFrame
    digests: Mapping[Path, str] = field(default_factory=dict)
    bad: BadRows | None = None
    otherwise: Callable[[], "Reading"] | None = None

    @property
    def bad_rows(self) -> int:
        """How many rows could not be read as the columns' types."""
        return self.bad.total if self.bad else 0

    @property
    def sample(self) -> str:
        """Some of them, by file, line, column and value."""
        return "; ".join(self.bad.told) if self.bad else ""

    def check_rows(self) -> None:
        """See that all rows could be read.

        Raises:
            RefusedError: tells how many could not, the first of them, and the remedies.
        """
        if self.bad and self.bad.total:
            raise RefusedError(self.bad.message(self.frame.schema))

    def check_unchanged(self) -> None:
        """See that the files are still those that were read.

        Raises:
            RefusedError: one of them has changed since.
        """
        if digests(tuple(self.digests)) != self.digests:
            raise RefusedError(
                "A file changed while it was read: publish it again once it is whole"
            )
