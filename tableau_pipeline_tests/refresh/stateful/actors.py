"""Refreshes as a history sees them: where they are, and what is to happen to them there."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from datetime import date, datetime
from fnmatch import fnmatchcase
from random import Random
from typing import Any

from tableau_pipeline.core.declaration import Declaration
from tableau_pipeline.core.journal import FORMAT, ClaimRelease, Owner, Record, needed, read_record
from tableau_pipeline.core.snapshot import Snapshot
from tableau_pipeline_tests.refresh.stateful.checks import oracle
from tableau_pipeline_tests.refresh.stateful.models.snapshots import Store
from tableau_pipeline_tests.refresh.stateful.models.tables import Content
from tableau_pipeline_tests.refresh.stateful.server.contents import Place, Published
from tableau_pipeline_tests.refresh.support.asked import Asked

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
        self.records.clear()
        self.placed = None
        self.wiped += 1


# Told of each step of a call by its name; may raise, and may let others go first.
Point = Callable[[str], None]


@dataclass
class SimulatedJournal:
    """Implements `Journal` for one refresh.

    A record that is on its way is seen by nobody, and may be overtaken by those of others.
    """

    actor: "Actor"
    point: Point

    @property
    def owner(self) -> Owner:
        return self.actor.owner

    @property
    def instance(self) -> str:
        return self.actor.log.instance

    def records(self) -> Sequence[Record]:
        """All that others may have written, too."""
        self.point("read the journal")
        return self.actor.log.visible()

    def append(self, record: Record) -> None:
        kind = f"{record.kind} with a checkpoint" if _counts(record) else record.kind
        self.point(f"append {kind}")
        self.point(f"appending {kind}")
        self.actor.log.records.append(record)
        self.actor.records += 1
        self.point(f"appended {kind}")

    def has_ended(self, owner: Owner) -> bool:
        return owner.run_id in self.actor.log.ended

    def lock(self, timeout: float) -> AbstractContextManager[None]:
        """Records alone keep the refreshes apart."""
        return nullcontext()


def _counts(record: Record) -> bool:
    return isinstance(record, ClaimRelease) and record.checkpoint is not None


class Killed(BaseException):
    """The process is gone."""


@dataclass(frozen=True)
class Event:
    """Attributes:
    at: a pattern for the names of points; the `nth` of them that a refresh comes to counts.
    """

    at: str
    nth: int
    what: Callable[[Any, Any], None]

    def __str__(self) -> str:
        return f"{self.what} at {self.at!r} number {self.nth}"


@dataclass(frozen=True)
class NetworkFault:
    """What the wire does to a request: the connection breaks, or this status is answered."""

    status: int | None = None


@dataclass
class Sending:
    """A job of ours: what the data source held when we looked last, and what it is to hold.

    Attributes:
        wanted: what it is to hold once the refresh is done.
        base: what it held; None if there was none.
        looked: the moment of that look.
    """

    actor: "Actor"
    job: str
    kind: str
    wanted: Published
    base: Published | None
    looked: int
    landed: bool = False


@dataclass
class Actor:
    """A refresh that runs, or is paused, or has come to its end; it reads snapshots through this.

    Attributes:
        owner: as the journal knows it.
        apart: it belongs to another environment, so that nothing is known of what it sends.
        dead: its process is gone: whatever it does has no effect.
        fault: what becomes of its request; `had_fault` if anything ever did.
        changes: how many of its requests may have changed something; `records` it has appended.
        wiped: how often the asset had been wiped when it began.
        looked: the moment of its last look at the data source; `saw` is what that held.
        edited_at: when it changed tags, the name or the project, if it has not looked since.
        read: the moment when it read the journal last.
        claimed: its claim was stored, and is not closed; `has_claimed` if one ever was.
        overtaken: the moment when another one went on, since this one is said to have ended.
        meddled: somebody else did something while it ran; `touched` are the places that they set.
        disturbed: anything at all happened to it.
        replaced: places that people had set and that it has replaced, as its declaration allows.
        lost_work: it took over a data source, and the server dropped the work of people in it.
        decided: its decisions and their reasons; it decides again if it meets somebody else.
        versions: of the models, that it builds on; and the `day` from which its windows count.
    """

    owner: Owner
    log: Log
    declaration: Declaration
    store: Store
    clock: Callable[[], datetime]
    events: list[Event]
    options: Asked = field(default_factory=Asked)
    apart: bool = False
    dead: bool = False
    fault: NetworkFault | None = None
    had_fault: bool = False
    points: int = 0
    changes: int = 0
    records: int = 0
    wiped: int = 0
    looked: int = 0
    saw: Published | None = None
    edited_at: datetime | None = None
    read: int = 0
    claimed: bool = False
    has_claimed: bool = False
    overtaken: int | None = None
    sendings: list[Sending] = field(default_factory=list)
    meddled: bool = False
    touched: set[Place] = field(default_factory=set)
    disturbed: bool = False
    replaced: list[Place] = field(default_factory=list)
    lost_work: bool = False
    decided: list[tuple[str, str]] = field(default_factory=list)
    versions: dict[str, int] = field(default_factory=dict)
    day: date | None = None
    _met: dict[int, int] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.owner.run_id

    @property
    def contents(self) -> dict[str, Content]:
        """What the models hold, as far as it has looked; else what they hold by now."""
        return {
            table.model: self.store.contents[
                table.model, self.versions.get(table.model) or self.store.number(table.model)
            ]
            for table in self.declaration.tables
        }

    @property
    def wanted(self) -> Published:
        return oracle.wanted(self.declaration, self.contents, self.day or self.clock().date())

    def newest(self, asset_key: str) -> Snapshot | None:
        """The newest version of a model, on which it builds from then on."""
        self.versions[asset_key] = self.store.number(asset_key)
        return self.store.newest(asset_key)

    def version(self, asset_key: str, number: int) -> Snapshot | None:
        """A version of a model; of metadata alone, the published one is published again."""
        if self.options.metadata_only:
            self.versions[asset_key] = number
        return self.store.version(asset_key, number)

    def now(self) -> datetime:
        """The present by its own clock; it is to be of one day for all that it does."""
        now = self.clock()
        self.day = self.day or now.date()
        return now

    def due(self, point: str) -> list[Event]:
        """What happens at this point, once."""
        found = []
        for number, event in enumerate(self.events):
            if fnmatchcase(point, event.at):
                self._met[number] = self._met.get(number, 0) + 1
                if self._met[number] == event.nth:
                    found.append(event)
        self.disturbed |= bool(found)
        return found
