"""The record of the requests that our refreshes sent, and of the changes by other users.

The record follows all jobs of the server. It checks each job of our refreshes when the job is
queued, and when the job is done.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from random import Random
from typing import Any

from tableau_pipeline.outcome import Accept
from tableau_pipeline_tests.refresh.stateful.checks import expected, metadata, sending
from tableau_pipeline_tests.refresh.stateful.checks.visibility import (
    State,
    UserChange,
    note_users_change,
)
from tableau_pipeline_tests.refresh.stateful.refreshes import Request
from tableau_pipeline_tests.refresh.stateful.server.contents import Item, Rows
from tableau_sandbox.simulation import Datasource, Fate, Job, Moment, Simulation


@dataclass
class Requests:
    """The requests of our refreshes, their effects, and the changes by other users.

    An item is a piece of metadata, such as the caption of a column. Pairs consist of a LUID and an
    item.

    Attributes:
        luid: the LUID of the data source that our last request made or changed.
        sent: our requests, by the id of their job.
        rows_left: by LUID, the rows after our last request took effect.
        rows_expected: by LUID, the rows that our last request had to leave.
        user_changes: changes of data by other users since a check last found the right data.
        edits: the periods in which our edits of tags or places may have moved the time stamp.
        users_acted_at: the moment when another user last did anything.
        set_by_users: by pair, the value that a user set, and when. The value is "" for a removal.
            It is None if the value is not known, or is no longer there.
        settled: by pair, the declared value when a refresh last left no conflict about the item.
        set_before_declared: pairs whose value a user set before the same value was declared.
        row_counts: by table, all numbers of rows that the table has had.
        schemas: the schemas of all requests.
    """

    tableau: Simulation
    chance: Random
    history: Any = None
    luid: str = ""
    sent: dict[str, Request] = field(default_factory=dict)
    rows_left: dict[str, Rows | None] = field(default_factory=dict)
    rows_expected: dict[str, Rows] = field(default_factory=dict)
    user_changes: list[UserChange] = field(default_factory=list)
    edits: list[tuple[datetime, datetime]] = field(default_factory=list)
    users_acted_at: int = 0
    set_by_users: dict[tuple[str, Item], tuple[str | None, int]] = field(default_factory=dict)
    settled: dict[tuple[str, Item], str] = field(default_factory=dict)
    set_before_declared: set[tuple[str, Item]] = field(default_factory=set)
    row_counts: dict[str, set[int]] = field(default_factory=dict)
    schemas: list[Any] = field(default_factory=list)
    _before: State | None = None

    def __post_init__(self) -> None:
        self.watch()

    def watch(self) -> None:
        """Follow the jobs of the server from now on, and decide how long they take."""
        self.tableau.fate, self.tableau.on_job = self._fate, self._on_job

    def data_source(self) -> Datasource | None:
        """The data source that our last request changed, or else the one at the declared place."""
        declared, elsewhere = self.history.declaration, self.history.luids_elsewhere
        candidates = [d for d in self.tableau.datasources() if d.luid not in elsewhere]
        place = declared.name, declared.project
        named = next((d for d in candidates if _place(d) == place), None)
        return next((d for d in candidates if d.luid == self.luid), named)

    def note_set_by_users(self, luid: str, values: Mapping[Item, str | None]) -> None:
        """Note the values that users set in a data source."""
        moment = self.history.next_moment()
        self.set_by_users |= {(luid, item): (value, moment) for item, value in values.items()}

    def note_origin_unknown(self, luid: str, items: Iterable[Item]) -> None:
        """Note that no record shows who has set these items of a data source.

        Even an item with the declared value may be a user's. Such an item stays after the
        declaration has dropped it.
        """
        self.note_set_by_users(luid, dict.fromkeys(items))
        self.set_before_declared |= {(luid, item) for item in items}

    def in_flight(self) -> list[Request]:
        """Our requests whose jobs have not ended and may still have an effect."""
        unfinished = {job.luid for job in self.tableau.unfinished() if not self._is_vain(job)}
        return [request for job, request in self.sent.items() if job in unfinished]

    def _is_vain(self, job: Job) -> bool:
        """Whether a job would create a data source whose name is taken by now."""
        publication = job.parameters.get("publication", {})
        return publication.get("mode") == "createnew" and self.target(job) is not None

    def target(self, job: Job) -> Datasource | None:
        """The data source that a job changes; None if there is no such data source now."""
        target = job.parameters.get("publication") or job.parameters["datasource"]
        for datasource in self.tableau.datasources():
            if datasource.luid == target.get("id"):
                return datasource
            if (datasource.name, datasource.project) == (target["name"], target.get("project")):
                return datasource
        return None

    def _fate(self, job: Job) -> Fate:
        if self.history.scenario.slow:
            return Fate(self.chance.choice((0, 5, 100)), self.chance.choice((0, 10, 120)))
        return Fate(self.chance.choice((0, 0, 1.5)), self.chance.choice((0, 0.4, 3)))

    def _on_job(self, moment: Moment, job: Job) -> None:
        history, ours = self.history, job.user == self.tableau.user("worker")
        history.next_moment()
        if moment == "ending":
            self._before = State.of(history, self.target(job))
            return
        history.note(f"job {job.luid[:4]} of {job.kind} is {moment}{_result(job)}")
        if moment == "queued" and ours:
            self._queued(job)
        if moment == "done" and ours:
            self._done(job)
        elif moment == "done" and self._before:
            note_users_change(history, job.kind, self._before)
        request = self.sent.get(job.luid)
        if request and request.refresh in history.running:
            history.trigger(request.refresh, f"job {moment}")

    def _queued(self, job: Job) -> None:
        refresh = self.history.running[-1]
        request = Request(
            refresh, job.luid, job.kind, refresh.expected, refresh.seen_rows, refresh.looked_at
        )
        sending.check_request(self.history, request, self.target(job))
        self.sent[job.luid] = request
        refresh.requests.append(request)
        for table in refresh.declaration.tables:
            count = len(request.expected[refresh.declaration.published_name(table.name)]) - 1
            self.row_counts.setdefault(table.name, set()).add(count)
        self.schemas.append(expected.schema(refresh.declaration, refresh.contents))

    def _done(self, job: Job) -> None:
        request, target = self.sent[job.luid], self.target(job)
        if job.status != "Success" or target is None or self._before is None:
            return
        after = State.of(self.history, target)
        if self._before.datasource is None:
            self._note_brought(after)
        self.luid, request.took_effect = target.luid, True
        sending.check_effect(self.history, request, before=self._before, after=after)
        metadata.check_edits(self.history, request, self._before, after, job)
        if Accept.TAKEOVER in request.refresh.options.accept:
            # The former deployment will think that a user has removed the items that this publish
            # drops. The refresh may fail before it sets its own items.
            self.note_origin_unknown(target.luid, self._before.metadata.keys() - after.metadata)
        if after.rows == request.expected:
            self.user_changes = []
        self.rows_left[target.luid], self.rows_expected[target.luid] = after.rows, request.expected

    def _note_brought(self, created: State) -> None:
        """Note the users' edits that a merging publish has copied into a new data source.

        The data source is new because a user has removed the old one, or has moved it while a
        refresh takes it over.
        """
        assert created.datasource
        name = created.datasource.name
        old = {self.luid, *(d.luid for d in self.tableau.datasources() if d.name == name)}
        old -= self.history.luids_elsewhere
        edits = {
            item: value for (luid, item), (value, _) in self.set_by_users.items() if luid in old
        }
        kept = {item: value for item, value in created.metadata.items() if edits.get(item) == value}
        self.note_set_by_users(created.datasource.luid, kept)


def _place(datasource: Datasource) -> tuple[str, str]:
    return datasource.name, datasource.project_name


def _result(job: Job) -> str:
    return f": {job.status} {job.notes or ''}" if job.completed_at else ""
