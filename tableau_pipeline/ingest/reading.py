"""The good rows of files as a Spark DataFrame, and the errors of the bad ones."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pyspark.sql import DataFrame

from tableau_pipeline.errors import RefusedError
from tableau_pipeline.ingest.bad_rows import BadRows
from tableau_pipeline.ingest.found import digests


@dataclass(frozen=True, slots=True)
class Reading:
    """The result of reading files.

    Attributes:
        digests: of each file, taken before it was read; empty if the rows are not from files.
        bad: the rows that are not in the frame.
        otherwise: reads the same files by other means, in case Spark fails only when it reads
            the rows; None if there are no other means.
    """

    frame: DataFrame
    digests: Mapping[Path, str] = field(default_factory=dict)
    bad: BadRows | None = None
    otherwise: Callable[[], "Reading"] | None = None

    @property
    def bad_rows(self) -> int:
        """The number of rows that do not fit the types of the columns."""
        return self.bad.total if self.bad else 0

    @property
    def sample(self) -> str:
        """Some of the bad rows, by file, line, column and value."""
        return "; ".join(self.bad.examples) if self.bad else ""

    def check_rows(self) -> None:
        """Check that all rows could be read.

        Raises:
            RefusedError: reports the number of bad rows, the first of them, and the remedies.
        """
        if self.bad and self.bad.total:
            raise RefusedError(self.bad.message(self.frame.schema))

    def check_unchanged(self) -> None:
        """Check that the files have not changed since they were read.

        Raises:
            RefusedError: one of them has changed.
        """
        if digests(tuple(self.digests)) != self.digests:
            raise RefusedError(
                "A file changed while it was read: publish it again once it is complete"
            )
