"""The journal: a refresh reads there what earlier ones recorded, and records its own work."""

from collections.abc import Generator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Protocol

from filelock import FileLock, Timeout

from tableau_pipeline.core.checkpoint import Owner, Record
from tableau_pipeline.errors import RefreshError


class Journal(Protocol):
    """The append-only records of one data source, in Dagster's event log or in a file."""

    @property
    def instance(self) -> str:
        """The id of the deployment whose records these are."""

    @property
    def owner(self) -> Owner:
        """The owner of the records that this process writes."""

    def records(self) -> Sequence[Record]:
        """Return the records that may still matter, in a bounded number of reads.

        The order is not defined: a record that was stored late may come before others.

        Raises:
            RefusedError: another release wrote one that this release does not understand.
        """

    def append(self, record: Record) -> None:
        """Store a record; it is durable once this returns."""

    def has_ended(self, owner: Owner) -> bool:
        """Whether an owner is known not to run any more."""

    def lock(self, timeout: float) -> AbstractContextManager[None]:
        """Hold a lock during the block, where records alone do not keep refreshes apart.

        Raises:
            RefreshError: another process has held it for more than `timeout` seconds.
        """


@contextmanager
def held(lock: FileLock, *, by: str, timeout: float) -> Generator[None]:
    """Hold a lock file during the block, as `Journal.lock` promises it.

    Args:
        by: who else may hold it, for messages.
    """
    Path(lock.lock_file).parent.mkdir(parents=True, exist_ok=True)
    try:
        acquired = lock.acquire(timeout=timeout)
    except Timeout:
        raise RefreshError(
            f"{by} has held {lock.lock_file} for more than {timeout:.0f} s. Look for a process "
            "that hangs, and stop it."
        ) from None
    with acquired:
        yield
