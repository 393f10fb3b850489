"""A journal that nothing but its records keeps refreshes apart in, as in Dagster."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace

from tableau_pipeline.core.journal import Owner, Record


def nothing() -> None:
    """Do nothing."""


@dataclass
class SharedJournal:
    """Implements `core.journal.Journal` for one of several runs that write the same records.

    Attributes:
        ended: runs that are over, as Dagster says.
        before_append: is called before each record that is stored.
    """

    run: str
    stored: list[Record] = field(default_factory=list)
    ended: set[str] = field(default_factory=set)
    before_append: Callable[[], None] = nothing
    instance: str = "shared"

    @property
    def owner(self) -> Owner:
        return Owner(run_id=self.run)

    def of(self, run: str) -> "SharedJournal":
        """The same records, as another run sees them."""
        return replace(self, run=run, before_append=nothing)

    def records(self) -> Sequence[Record]:
        return tuple(self.stored)

    def append(self, record: Record) -> None:
        self.before_append()
        self.stored.append(record)

    def has_ended(self, owner: Owner) -> bool:
        return owner.run_id in self.ended

    def lock(self, timeout: float) -> AbstractContextManager[None]:
        return nullcontext()
