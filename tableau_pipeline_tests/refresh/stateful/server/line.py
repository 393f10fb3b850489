"""The line between refreshes and the server: what they ask for, and what becomes of it."""

import re
from dataclasses import dataclass, field
from random import Random
from typing import Any

from tableau_pipeline.sandbox.identity import seeded_luid
from tableau_pipeline.sandbox.store import jobs
from tableau_pipeline.sandbox.store.records import Datasource, Job
from tableau_pipeline_tests.refresh.stateful import oracle, promise
from tableau_pipeline_tests.refresh.stateful.actors import Sending, Trouble
from tableau_pipeline_tests.refresh.stateful.server.tableau import Fate, Moment, Tableau
from tableau_pipeline_tests.refresh.stateful.server.wire import Exchange

_ID = r"[^/]+"
_NAMES = (
    ("POST", "auth/signin", "sign in"),
    ("POST", "auth/signout", "sign out"),
    ("POST", "sites/{id}/datasources", "send a publish"),
    ("PATCH", "sites/{id}/datasources/{id}/data", "send an update"),
    ("GET", "sites/{id}/datasources/{id}", "look"),
    ("GET", "sites/{id}/datasources", "look by name"),
    ("GET", "sites/{id}/datasources/{id}/revisions", "look at revisions"),
    ("GET", "sites/{id}/datasources/{id}/content", "download"),
    ("PUT", "sites/{id}/datasources/{id}", "alter"),
    ("PUT", "sites/{id}/datasources/{id}/tags", "tag"),
    ("DELETE", "sites/{id}/datasources/{id}/tags/{id}", "untag"),
    ("POST", "sites/{id}/fileUploads", "begin an upload"),
    ("PUT", "sites/{id}/fileUploads/{id}", "upload"),
    ("GET", "sites/{id}/jobs", "list jobs"),
    ("GET", "sites/{id}/jobs/{id}", "ask for a job"),
    ("PUT", "sites/{id}/jobs/{id}", "cancel a job"),
    ("GET", "sites/{id}/projects", "look for projects"),
    ("GET", "serverinfo", "ask for the version"),
)
_PATTERNS = [
    (method, re.compile(path.replace("{id}", _ID)), name) for method, path, name in _NAMES
]
SENDING = ("send a publish", "send an update")
_LOOKS = ("look", "look by name")
_WRITES = (*SENDING, "alter", "tag", "untag")
_REFUSALS = {401: "401002", 429: "429000", 500: "500000", 503: "503000", 504: "504000"}


@dataclass
class Line:
    """Carries the requests of the refresh that runs.

    Attributes:
        luid: of the data source that some refresh of ours created last.
        sendings: all jobs of ours, by their ids.
        tamperings: what others did to the data since it was last seen to be right.
        handled: when somebody else did anything.
        left: what it held when a sending of ours had last taken effect.
        counts: how many rows each table may have had, ever; so `schemas`.
    """

    tableau: Tableau
    chance: Random
    history: Any = None
    luid: str = ""
    sendings: dict[str, Sending] = field(default_factory=dict)
    tamperings: list[Any] = field(default_factory=list)
    handled: int = 0
    left: Any = None
    counts: dict[str, set[int]] = field(default_factory=dict)
    schemas: list[Any] = field(default_factory=list)
    _before: Any = None

    def __post_init__(self) -> None:
        self.tableau.fate, self.tableau.told = self._fate, self._told

    def ours(self) -> Datasource | None:
        """The data source that refreshes created, or else the one that has its name."""
        found = self.tableau.datasources()
        for each in found:
            if each.luid == self.luid:
                return each
        declared = self.history.declaration
        for each in found:
            if (each.name, each.project_name) == (declared.name, declared.project):
                return each
        return None

    def in_flight(self) -> list[Sending]:
        """What we have sent and what has not ended."""
        return [each for each in self.sendings.values() if not each.ended]

    def carry(self, exchange: Exchange) -> None:
        """Carry a request there and back, if nothing comes between."""
        history, name = self.history, name_of(exchange)
        actor = history.actors[-1]
        self.tableau.pass_time(self.chance.choice((0, 0.02, 0.3)))
        history.point(f"before {name}")
        if (trouble := self._trouble(actor)) and not _answers(exchange, trouble):
            return
        if name in SENDING:
            promise.check_may_send(history, actor)
        if name in _WRITES:
            actor.writes += 1
        self.tableau.carry(exchange)
        if name in _LOOKS and exchange.status == 200:
            actor.looked, actor.saw = history.next_moment(), history.holds()
        history.point(f"after {name}")
        if trouble := self._trouble(actor):
            _answers(exchange, trouble)

    def _trouble(self, actor: Any) -> Trouble | None:
        trouble, actor.trouble = actor.trouble, None
        return trouble

    def _fate(self, job: Job) -> Fate:
        if self.history.world.slow:
            return Fate(self.chance.choice((0, 5, 100)), self.chance.choice((0, 10, 120)))
        return Fate(self.chance.choice((0, 0, 1.5)), self.chance.choice((0, 0.4, 3)))

    def _told(self, moment: Moment, job: Job) -> None:
        history = self.history
        history.next_moment()
        if moment != "ending":
            history.tell(f"job {job.luid[:4]} of {job.kind} is {moment}{_ending(job)}")
        if moment == "queued" and job.user == seeded_luid("user", "worker") and history.actors:
            actor = history.actors[-1]
            made = Sending(actor, job.luid, job.kind, actor.wanted, actor.saw)
            self._note(made)
            promise.check_alone(history, made)
            self.sendings[job.luid] = made
            actor.sendings.append(made)
        sending = self.sendings.get(job.luid)
        if moment == "ending":
            self._before = promise.Look.of(history)
        if sending and moment == "ending":
            sending.before = history.holds()
        if sending is None and moment == "done":
            promise.note_hand(history, job.kind, self._before)
        if sending and moment == "done":
            sending.ended = True
            if job.status == jobs.SUCCESS:
                sending.landed = True
                self._landed(job)
                promise.check_effect(history, sending)
        if sending and sending.actor in history.actors and moment != "ending":
            history.happen(sending.actor, f"job {moment}")

    def _note(self, made: Sending) -> None:
        """Remember what the data source may hold from now on."""
        declaration = made.actor.declaration
        for table in declaration.tables:
            count = len(made.wanted[declaration.published_name(table.name)]) - 1
            self.counts.setdefault(table.name, set()).add(count)
        self.schemas.append(oracle.schema(declaration, made.actor.contents))

    def _landed(self, job: Job) -> None:
        """Whatever our publish has made or changed is ours from now on."""
        publication = job.parameters.get("publication")
        for each in self.tableau.datasources():
            if publication and (each.name, each.project) == (
                publication["name"],
                publication["project"],
            ):
                self.luid = each.luid


def name_of(exchange: Exchange) -> str:
    """What a request asks for, in words."""
    for method, pattern, name in _PATTERNS:
        if exchange.method == method and pattern.fullmatch(exchange.path):
            return name
    return f"{exchange.method} {exchange.path}"


def _ending(job: Job) -> str:
    return f": {job.status} {job.notes or ''}" if job.completed_at else ""


def _answers(exchange: Exchange, trouble: Trouble) -> bool:
    """Let trouble take the place of the answer; returns whether the request is still carried on."""
    if trouble.status is None:
        raise ConnectionResetError("the line is dead")
    code = _REFUSALS[trouble.status]
    exchange.status = trouble.status
    exchange.answer = (
        '<?xml version="1.0"?><tsResponse xmlns="http://tableau.com/api">'
        f'<error code="{code}"><summary>Trouble</summary><detail>Trouble.</detail></error>'
        "</tsResponse>"
    ).encode()
    exchange.answer_headers = (("Content-Type", "application/xml"),)
    return False
