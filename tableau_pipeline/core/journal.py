"""Where a refresh reads what earlier ones left, and records what it is about to do."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from tableau_pipeline.core.checkpoint import Owner, Record


class Journal(Protocol):
    """The append-only records of one data source, in Dagster's event log or in a file."""

    @property
    def instance(self) -> str:
        """Names the deployment whose records these are; another one has another name."""

    @property
    def owner(self) -> Owner:
        """Who writes."""

    def records(self) -> Sequence[Record]:
        """The newest closing with a checkpoint, and all records that may have come since.

        They are in no order: one that was stored late may come before others.
        """

    def append(self, record: Record) -> None:
        """Keep a record; it is safe once this returns."""

    def has_ended(self, owner: Owner) -> bool:
        """Whether an owner can be seen not to run any more."""

    def lock(self, timeout: float) -> AbstractContextManager[None]:
        """Where records alone do not keep refreshes apart, a lock does as long as the block runs.

        Raises:
            RefreshError: somebody has held it for more than `timeout` seconds.
        """
