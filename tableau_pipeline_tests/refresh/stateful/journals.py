"""The journals of a history: the product's own journals, on an object store in memory."""

from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from random import Random
from typing import Any

from tableau_pipeline.core.deployment import MAIN, Deployment, JournalPlace, folder_of
from tableau_pipeline.core.hold import end_hold, hold_of
from tableau_pipeline.core.identity import root_of
from tableau_pipeline.core.journal import FORMAT, Claim, ClaimRelease, History, Owner, Record
from tableau_pipeline.core.journal_store import StoredJournal, owner_here
from tableau_pipeline.objects.storage import Entry
from tableau_pipeline.objects.stores import StoreError

LATER_RELEASE = "99.1"
# A record of a later release, in a format that this release does not know.
_LATER_RECORD = f'{{"format": {FORMAT + 1}, "release": "{LATER_RELEASE}", "lease": 60}}'
# How many of the newest objects a listing may lack.
_LAG = 3


class MemoryStore:
    """Implements `Storage` in memory, like an object store.

    Attributes:
        objects: by key, the content of each object and the time of its last change.
        lags: whether listings may lack the newest objects.
        on_put: called after an object was created, before the writer knows of it.
        fault: the next write gets no answer; True: it is stored; False: it is lost; None: no fault.
    """

    url = "s3://journal"

    def __init__(self, clock: Callable[[], datetime], chance: Random) -> None:
        self.objects: dict[str, tuple[bytes, float]] = {}
        self.lags = False
        self.on_put: Callable[[], None] = lambda: None
        self.fault: bool | None = None
        self._clock, self._chance = clock, chance

    def put(self, key: str, content: bytes) -> bool:
        arrives, self.fault = self.fault, None
        is_new = key not in self.objects and arrives is not False
        if is_new:
            self.replace(key, content)
        if arrives is not None:
            raise StoreError(f"Writing {self.url}/{key} failed: the store does not answer")
        if is_new:
            self.on_put()
        return is_new

    def replace(self, key: str, content: bytes) -> None:
        # Keep the newest object at the end, where `list` may leave objects out.
        self.objects.pop(key, None)
        self.objects[key] = content, self._clock().timestamp()

    def read(self, key: str) -> bytes | None:
        return self.objects.get(key, (None, 0.0))[0]

    def list(self, prefix: str) -> Iterator[Entry]:
        lag = self._chance.choice([0, 0, 1, _LAG]) if self.lags else 0
        listed = [*self.objects.items()]
        for key, (_, modified) in listed[: len(listed) - lag]:
            if key.startswith(prefix):
                yield Entry(key, modified)

    def delete(self, key: str) -> bool:
        return self.objects.pop(key, None) is not None


@dataclass
class PublisherJournal:
    """The records of one declaration in one deployment.

    Attributes:
        name: the name of the publisher: a key of `history.PUBLISHERS`.
        ended: the ids of the runs and scripts that have ended. Dagster knows which runs have
            ended, but not which scripts.
        forgotten: the ids of the runs that Dagster does not know any more.
        wiped: how often records were lost.
        placed: LUID, declared name and declared project at the end of the last successful refresh.
        filters: the row filters that its last refresh saw, as items of metadata.
        later_at: the moment when a later release stored a record; None without such a record.
        beating: the refreshes whose heartbeats go on.
        saved: the backups, which are earlier states of the records.
    """

    name: str
    store: MemoryStore
    place: JournalPlace
    key: str
    ended: set[str] = field(default_factory=set)
    forgotten: set[str] = field(default_factory=set)
    wiped: int = 0
    placed: tuple[str, str, str] | None = None
    filters: frozenset[tuple[str, ...]] = frozenset()
    later_at: int | None = None
    beating: list[Any] = field(default_factory=list)
    saved: list[dict[str, tuple[bytes, float]]] = field(default_factory=list)

    @classmethod
    def of(cls, name: str, store: MemoryStore, instance: str, key: str) -> "PublisherJournal":
        """Return the journal of a publisher. `instance` is the id of its deployment in tags."""
        id_ = instance.removesuffix(f"@{root_of(key)}")
        place = JournalPlace(store, MAIN if id_ == "ours" else id_)  # ty: ignore
        if place.recorded() is None:
            place.keep(Deployment(id=id_, place=place.where))
        return cls(name, store, place, key)

    @property
    def instance(self) -> str:
        return self.as_seen_by(owner_here("")).instance

    def as_seen_by(self, owner: Owner) -> StoredJournal:
        """Return the product's journal for an owner."""
        return StoredJournal(self.place, self.key, owner, self.ask)

    def history(self) -> History:
        """All records, without the delay of a listing."""
        lags, self.store.lags = self.store.lags, False
        try:
            return self.as_seen_by(owner_here("")).history()
        finally:
            self.store.lags = lags

    def ask(self, owner: Owner) -> bool | None:
        """Ask Dagster whether an owner has ended; None if Dagster does not know the owner."""
        if owner.run_id.startswith("script") or owner.run_id in self.forgotten:
            return None
        return owner.run_id in self.ended

    @property
    def is_held(self) -> bool:
        """Whether a hold stops the refreshes of the data source."""
        return hold_of(self.place, self._seen_key) is not None

    def release(self) -> None:
        """End the hold of the data source."""
        end_hold(self.place, self._seen_key)

    @property
    def _seen_key(self) -> str:
        return self.as_seen_by(owner_here("")).key

    def beat(self) -> None:
        """Let the heartbeats of the refreshes that run reach the store."""
        for refresh in self.beating:
            if not (refresh.killed or refresh.paused):
                self.store.replace(f"{self._folder}heartbeat", b"")

    def save(self) -> None:
        """Make a backup of the records, if this release can read all of them."""
        if self.later_at is None:
            self.saved.append(self._objects)

    def restore(self, number: int) -> None:
        """Replace the records by a backup."""
        state = self.saved[number % len(self.saved)]
        self.wipe()
        self.store.objects |= state

    def wipe(self) -> None:
        """Lose all records."""
        for key in self._objects:
            self.store.delete(key)
        self.placed, self.later_at, self.filters = None, None, frozenset()
        self.wiped += 1

    def upgrade_another(self, moment: int) -> None:
        """Let a later release store a record."""
        number = self.history().number + 1
        self.store.put(f"{self._folder}{number:09}.json", _LATER_RECORD.encode())
        self.later_at = moment

    def upgrade(self) -> None:
        """Drop the record of the later release, which has no content that matters."""
        for key, (content, _) in self._objects.items():
            if content == _LATER_RECORD.encode():
                self.store.delete(key)
        self.later_at = None

    @property
    def _folder(self) -> str:
        deployment = self.place.deployment()
        assert deployment
        return f"{folder_of(deployment, self.key)}/"

    @property
    def _objects(self) -> dict[str, tuple[bytes, float]]:
        items = self.store.objects.items()
        return {key: value for key, value in items if key.startswith(self._folder)}


class SimulatedJournal(StoredJournal):
    """The product's journal for one refresh. Events can happen before and after its steps."""

    def __init__(self, refresh: Any, point: Callable[[str], None]) -> None:
        journal: PublisherJournal = refresh.journal
        super().__init__(journal.place, journal.key, refresh.owner, journal.ask)
        self.refresh, self.point, self.journal = refresh, point, journal

    def history(self) -> History:
        self.point("read the journal")
        return super().history()

    def latest(self, since: History) -> History:
        self.point("read the journal")
        return super().latest(since)

    def create(self, record: Record, *, after: History) -> History | None:
        kind = f"{record.kind} with a checkpoint" if _has_checkpoint(record) else record.kind
        self.point(f"append {kind}")
        store = self.journal.store
        on_put, store.on_put = store.on_put, lambda: self.point(f"created {kind}")
        try:
            created = super().create(record, after=after)
        finally:
            store.on_put = on_put
        if created:
            self.refresh.record_count += 1
            self.point(f"appended {kind}")
        return created

    def has_ended(self, claim: Claim) -> bool:
        self.journal.beat()
        return super().has_ended(claim)

    @contextmanager
    def heartbeat(self) -> Generator[None]:
        """Count the refresh as running. `PublisherJournal.beat` replaces the product's thread."""
        self.journal.beating.append(self.refresh)
        try:
            yield
        finally:
            self.journal.beating.remove(self.refresh)


def _has_checkpoint(record: Record) -> bool:
    return isinstance(record, ClaimRelease) and record.checkpoint is not None
