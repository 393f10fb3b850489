"""One refresh as a history runs it: its records, its requests, and the events that happen to it."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import date, datetime
from fnmatch import fnmatchcase
from typing import Any

from tableau_pipeline.core.declaration import Declaration
from tableau_pipeline.core.journal import Owner
from tableau_pipeline.core.snapshot import Snapshot
from tableau_pipeline_tests.refresh.stateful.checks.expected import expected_rows
from tableau_pipeline_tests.refresh.stateful.journals import PublisherJournal
from tableau_pipeline_tests.refresh.stateful.models.snapshots import Store
from tableau_pipeline_tests.refresh.stateful.models.tables import Content
from tableau_pipeline_tests.refresh.stateful.server.contents import Item, Rows
from tableau_pipeline_tests.refresh.support.asked import Asked

# A function that gets the name of each point that a refresh reaches. The function may raise, and
# may run other refreshes first.
Point = Callable[[str], None]


class Killed(BaseException):
    """The process of a refresh was killed."""


@dataclass(frozen=True)
class TimedEvent:
    """An event, and the point of a refresh at which it happens.

    Attributes:
        at: a pattern for the names of points.
        nth: the event happens at the nth point that matches, counted from 1.
        event: a function of the history and the refresh.
    """

    at: str
    nth: int
    event: Callable[[Any, Any], None]

    def __str__(self) -> str:
        return f"{self.event} at {self.at!r} number {self.nth}"


@dataclass(frozen=True)
class NetworkFault:
    """A network fault of a call: the answer has this status, or the connection breaks."""

    status: int | None = None


@dataclass
class Request:
    """A publish or an update that a refresh sent: a job of the server.

    Attributes:
        job: the id of the job.
        kind: the kind of the job.
        expected: the rows that the data source must hold once the refresh is done.
        base: the rows at the last look of the refresh; None if there was no data source.
        looked_at: the moment of that look.
        took_effect: the job succeeded.
    """

    refresh: "Refresh"
    job: str
    kind: str
    expected: Rows
    base: Rows | None
    looked_at: int
    took_effect: bool = False


@dataclass
class Refresh:
    """A refresh that runs, is paused or has ended. The product reads snapshots through this object.

    Attributes:
        owner: the run of the refresh, as claims name it.
        events: the events that happen to it, each with its point.
        of_other_environment: it belongs to another environment; its requests are not recorded.
        killed: its process is gone; from then on nothing that it does has an effect.
        paused: its process is stopped, and so is its heartbeat.
        fault: the network fault of its present call; `had_fault`: it has had a fault at some time.
        point_count: the points that it has reached.
        change_count: its calls that may have changed something on the server.
        record_count: the records that it has appended.
        wiped: how often records had been lost when it began.
        looked_at: the moment of its last look at the data source; `seen_rows`: the rows then.
        edited_at: the time when it changed tags, the name or the project; None after its next look.
        read_at: the moment when it last read the journal.
        last_call: its last call since it read the journal; "" for no call.
        request_id: the request id of its last update; None after a publish, or before any request.
        holds_claim: its claim is stored and not closed; `has_claimed`: it has held a claim at some
            time.
        overtaken_at: the moment when another refresh had taken the claim, because this refresh
            counted as ended.
        users_acted: another user changed the data source while it ran.
        touched_by_users: the items of metadata that other users set while it ran.
        disturbed: any of its events happened.
        replaced: the users' items that it replaced, as its declaration allows.
        lost_edits: it took over a data source, and the server dropped users' edits.
        decisions: its decisions and reasons; it decides again after a change by another user.
        versions: the versions of models that it builds on.
        day: the day from which its windows count.
    """

    owner: Owner
    journal: PublisherJournal
    declaration: Declaration
    store: Store
    clock: Callable[[], datetime]
    events: list[TimedEvent]
    options: Asked = field(default_factory=Asked)
    of_other_environment: bool = False
    killed: bool = False
    paused: bool = False
    fault: NetworkFault | None = None
    had_fault: bool = False
    point_count: int = 0
    change_count: int = 0
    record_count: int = 0
    wiped: int = 0
    looked_at: int = 0
    seen_rows: Rows | None = None
    edited_at: datetime | None = None
    read_at: int = 0
    last_call: str = ""
    request_id: object = None
    holds_claim: bool = False
    has_claimed: bool = False
    overtaken_at: int | None = None
    requests: list[Request] = field(default_factory=list)
    users_acted: bool = False
    touched_by_users: set[Item] = field(default_factory=set)
    disturbed: bool = False
    replaced: list[Item] = field(default_factory=list)
    lost_edits: bool = False
    decisions: list[tuple[str, str]] = field(default_factory=list)
    versions: dict[str, int] = field(default_factory=dict)
    day: date | None = None
    _matches: dict[int, int] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.owner.run_id

    @property
    def contents(self) -> dict[str, Content]:
        """The contents of the models: of the versions that were read, otherwise of the newest."""
        return {
            table.model: self.store.contents[
                table.model, self.versions.get(table.model) or self.store.number(table.model)
            ]
            for table in self.declaration.tables
        }

    @property
    def expected(self) -> Rows:
        """The rows that the refresh must publish."""
        return expected_rows(self.declaration, self.contents, self.day or self.clock().date())

    def newest(self, asset_key: str) -> Snapshot | None:
        """The newest version of a model. The refresh builds on it from then on."""
        self.versions[asset_key] = self.store.number(asset_key)
        return self.store.newest(asset_key)

    def version(self, asset_key: str, number: int) -> Snapshot | None:
        """A version of a model. If the options pin versions, the refresh publishes this version."""
        if self.options.is_pinned:
            self.versions[asset_key] = number
        return self.store.version(asset_key, number)

    def now(self) -> datetime:
        """The time by the clock of the refresh. The first call fixes the day of rolling windows."""
        now = self.clock()
        self.day = self.day or now.date()
        return now

    def due(self, point: str) -> list[TimedEvent]:
        """The events that happen at a point. Each event happens once."""
        events = []
        for number, event in enumerate(self.events):
            if fnmatchcase(point, event.at):
                self._matches[number] = self._matches.get(number, 0) + 1
                if self._matches[number] == event.nth:
                    events.append(event)
        self.disturbed |= bool(events)
        return events
