"""What our refreshes have sent, what became of it, and what others have done beside it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from random import Random
from typing import Any

from tableau_pipeline_tests.refresh.stateful.actors import Sending
from tableau_pipeline_tests.refresh.stateful.checks import metadata, oracle, promise
from tableau_pipeline_tests.refresh.stateful.checks.observer import Look, Tampering, note_meddling
from tableau_pipeline_tests.refresh.stateful.server.contents import Place, Published
from tableau_sandbox.simulation import Datasource, Fate, Job, Moment, Simulation


@dataclass
class Ledger:
    """Hears of all jobs of the server.

    Attributes:
        luid: of the data source that a sending of ours has made or changed last.
        sendings: all jobs of ours, by their ids.
        left: what each data source held when a sending of ours had last taken effect; `meant` is
            what that sending was to leave.
        tamperings: what others did to the data since it was last seen to be right.
        edits: from when to when edits of ours, of tags or places, may have moved the time stamp.
        meddled_at: the moment when somebody else did anything.
        people: by LUID and place, what people have set, "" if they took it away, and the moment;
            None if that is not known, or no longer there.
        agreed: by LUID and place, what was declared when a refresh last settled it.
        first: what a person had set when it was first declared so.
        counts: how many rows each table may have had, ever; so `schemas`.
    """

    tableau: Simulation
    chance: Random
    history: Any = None
    luid: str = ""
    sendings: dict[str, Sending] = field(default_factory=dict)
    left: dict[str, Published | None] = field(default_factory=dict)
    meant: dict[str, Published] = field(default_factory=dict)
    tamperings: list[Tampering] = field(default_factory=list)
    edits: list[tuple[datetime, datetime]] = field(default_factory=list)
    meddled_at: int = 0
    people: dict[tuple[str, Place], tuple[str | None, int]] = field(default_factory=dict)
    agreed: dict[tuple[str, Place], str] = field(default_factory=dict)
    first: set[tuple[str, Place]] = field(default_factory=set)
    counts: dict[str, set[int]] = field(default_factory=dict)
    schemas: list[Any] = field(default_factory=list)
    _before: Look | None = None

    def __post_init__(self) -> None:
        self.tableau.fate, self.tableau.on_job = self._fate, self._on_job

    def ours(self) -> Datasource | None:
        """The data source that refreshes left, or else the one that has its name."""
        declared = self.history.declaration
        found = [e for e in self.tableau.datasources() if e.luid not in self.history.elsewhere]
        named = [each for each in found if _place(each) == (declared.name, declared.project)]
        return next((each for each in found if each.luid == self.luid), next(iter(named), None))

    def note_people(self, luid: str, places: Mapping[Place, str | None]) -> None:
        """Note what people have set in a data source."""
        moment = self.history.next_moment()
        self.people |= {(luid, place): (value, moment) for place, value in places.items()}

    def in_flight(self) -> list[Sending]:
        """What we have sent and what has not ended."""
        unfinished = {job.luid for job in self.tableau.unfinished()}
        return [each for job, each in self.sendings.items() if job in unfinished]

    def target(self, job: Job) -> Datasource | None:
        """The data source that a job changes; None if there is none yet, or no longer."""
        wanted = job.parameters.get("publication") or job.parameters["datasource"]
        for each in self.tableau.datasources():
            if each.luid == wanted.get("id"):
                return each
            if (each.name, each.project) == (wanted["name"], wanted.get("project")):
                return each
        return None

    def _fate(self, job: Job) -> Fate:
        if self.history.scenario.slow:
            return Fate(self.chance.choice((0, 5, 100)), self.chance.choice((0, 10, 120)))
        return Fate(self.chance.choice((0, 0, 1.5)), self.chance.choice((0, 0.4, 3)))

    def _on_job(self, moment: Moment, job: Job) -> None:
        history, ours = self.history, job.user == self.tableau.user("worker")
        history.next_moment()
        if moment == "ending":
            self._before = Look.at(history, self.target(job))
            return
        history.note(f"job {job.luid[:4]} of {job.kind} is {moment}{_ending(job)}")
        if moment == "queued" and ours:
            self._queued(job)
        if moment == "done" and ours:
            self._done(job)
        elif moment == "done" and self._before:
            note_meddling(history, job.kind, self._before)
        sending = self.sendings.get(job.luid)
        if sending and sending.actor in history.actors:
            history.happen(sending.actor, f"job {moment}")

    def _queued(self, job: Job) -> None:
        actor = self.history.actors[-1]
        made = Sending(actor, job.luid, job.kind, actor.wanted, actor.saw, actor.looked)
        promise.check_sending(self.history, made, self.target(job))
        self.sendings[job.luid] = made
        actor.sendings.append(made)
        for table in actor.declaration.tables:
            count = len(made.wanted[actor.declaration.published_name(table.name)]) - 1
            self.counts.setdefault(table.name, set()).add(count)
        self.schemas.append(oracle.schema(actor.declaration, actor.contents))

    def _done(self, job: Job) -> None:
        sending, target = self.sendings[job.luid], self.target(job)
        if job.status != "Success" or target is None or self._before is None:
            return
        self.luid, sending.landed = target.luid, True
        after = Look.at(self.history, target)
        promise.check_effect(self.history, sending, before=self._before, after=after)
        metadata.check_work(self.history, sending, self._before, after, job)
        if after.holds == sending.wanted:
            self.tamperings = []
        self.left[target.luid], self.meant[target.luid] = after.holds, sending.wanted


def _place(datasource: Datasource) -> tuple[str, str]:
    return datasource.name, datasource.project_name


def _ending(job: Job) -> str:
    return f": {job.status} {job.notes or ''}" if job.completed_at else ""
