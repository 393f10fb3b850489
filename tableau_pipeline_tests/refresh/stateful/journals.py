"""A journal in memory, as Dagster's event log on PostgreSQL may behave."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from random import Random

from tableau_pipeline.core.journal import FORMAT, ClaimRelease, Owner, Record, needed, read_record

LATER_RELEASE = "99.1"
# What a release writes whose format this one does not know.
_LATER_RECORD = {"format": FORMAT + 1, "release": LATER_RELEASE, "kind": "claim", "lease": 60}


@dataclass
class Log:
    """The records of one declaration in one instance.

    Attributes:
        name: of whoever publishes: "ours", or another one.
        short: whoever reads gets what a journal has to hand out, and no more.
        ended: run ids of which Dagster says that they have ended.
        wiped: how often somebody wiped the asset.
        placed: the LUID, the name and the project with which a refresh ended well, as declared.
        later_at: the moment when a later release stored a record, which is still there.
    """

    name: str
    instance: str
    key: str
    short: bool
    chance: Random
    records: list[Record] = field(default_factory=list)
    ended: set[str] = field(default_factory=set)
    wiped: int = 0
    placed: tuple[str, str, str] | None = None
    later_at: int | None = None

    def visible(self) -> list[Record]:
        """What there is to be read, in no order.

        Raises:
            RefusedError: a later release wrote some of it.
        """
        if self.later_at is not None:
            read_record(_LATER_RECORD, repair="Restore a backup")
        kept = needed(self.records) if self.short else list(self.records)
        self.chance.shuffle(kept)
        return kept

    def wipe(self) -> None:
        """Forget everything."""
        self.records.clear()
        self.placed = None
        self.wiped += 1


# Told of each step of a call by its name; may raise, and may let others go first.
Point = Callable[[str], None]


@dataclass
class SimulatedJournal:
    """Implements `Journal` for one refresh.

    `kept` hears of every record. One that is on its way is seen by nobody, and may be overtaken by
    those of others.
    """

    log: Log
    owner: Owner
    point: Point
    kept: Callable[[], None]

    @property
    def instance(self) -> str:
        return self.log.instance

    def records(self) -> Sequence[Record]:
        """All that others may have written, too."""
        self.point("read the journal")
        return self.log.visible()

    def append(self, record: Record) -> None:
        """Keep a record."""
        kind = f"{record.kind} with a checkpoint" if _counts(record) else record.kind
        self.point(f"append {kind}")
        self.point(f"appending {kind}")
        self.log.records.append(record)
        self.kept()
        self.point(f"appended {kind}")

    def has_ended(self, owner: Owner) -> bool:
        """What Dagster says."""
        return owner.run_id in self.log.ended

    def lock(self, timeout: float) -> AbstractContextManager[None]:
        """Records alone keep the refreshes apart."""
        return nullcontext()


def _counts(record: Record) -> bool:
    return isinstance(record, ClaimRelease) and record.checkpoint is not None
