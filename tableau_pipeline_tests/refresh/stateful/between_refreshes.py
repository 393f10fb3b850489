"""What may happen between two refreshes, beside changes of rows and the work of other people."""

from dataclasses import dataclass, replace
from typing import Any
from uuid import uuid4

from tableau_pipeline.core.checkpoint import Outcome
from tableau_pipeline.core.journal import Claim, ClaimRelease, Owner, needed, read_history
from tableau_pipeline.refresh.plan import Options
from tableau_pipeline_tests.refresh.stateful.actors import Event
from tableau_pipeline_tests.refresh.stateful.checks.promise import Look, note_meddling, note_rows
from tableau_pipeline_tests.refresh.stateful.events import Kill, Materialize
from tableau_pipeline_tests.refresh.stateful.models.changes import Change
from tableau_pipeline_tests.refresh.stateful.scenarios import Rules, related
from tableau_sandbox.faults import Cut, QueryFault


@dataclass(frozen=True)
class Begin:
    """The models get their first rows."""

    models: tuple[Any, ...]

    def __call__(self, history: Any) -> None:
        declared = history.declaration
        everything = history.scenario.all_tables
        history.declaration = replace(declared, **related(everything, len(everything), chain=False))
        for each in self.models:
            each(history)
        history.declaration = declared


@dataclass(frozen=True)
class Declare:
    """The policy, the window and the guard of a table are declared again."""

    table: int
    rules: Rules

    def __call__(self, history: Any) -> None:
        history.note(f"{self}")
        shapes = {shape.name: shape for shape in history.scenario.shapes}
        tables = list(history.declaration.tables)
        at = self.table % len(tables)
        tables[at] = shapes[tables[at].name].table(self.rules)
        history.declaration = replace(history.declaration, tables=tuple(tables))


@dataclass(frozen=True)
class Relate:
    """More or fewer tables are declared, or other relationships of the same."""

    tables: int
    chain: bool

    def __call__(self, history: Any) -> None:
        history.note(f"{self}")
        known = {table.name: table for table in history.declaration.tables}
        tables = [known.get(table.name) or table for table in history.scenario.all_tables]
        declared = related(tables, self.tables, chain=self.chain)
        history.declaration = replace(history.declaration, **declared)


@dataclass(frozen=True)
class Place:
    """The data source is declared under another name, or in another project.

    Attributes:
        taken: somebody has published another one there.
    """

    name: str
    project: str
    taken: bool = False

    def __call__(self, history: Any) -> None:
        history.note(f"{self}")
        project = history.other_user.project(self.project)
        places = [(each.name, each.project) for each in history.tableau.datasources()]
        if self.taken and (self.name, project) not in places:
            history.other_user.publishes_same_name(self.name, project)
            history.ledger.meddled_at = history.next_moment()
        history.declaration = replace(history.declaration, name=self.name, project=self.project)


@dataclass(frozen=True)
class Adopt:
    """Somebody deletes the data source, and publishes one of their own, which is to be adopted.

    Attributes:
        change: what becomes of its rows or columns; "" for nothing.
        edited: they have worked on its metadata.
        forgotten: no record tells of the first one.
    """

    change: str
    edited: bool
    forgotten: bool

    def __call__(self, history: Any) -> None:
        target = history.found()
        if target is None or history.ledger.in_flight():
            return
        history.note(f"{self}")
        before = Look.at(history, target)
        history.other_user.takes(target, self.change, edited=self.edited)
        note_meddling(history, "takes", before)
        note_rows(history, Look.at(history, history.tableau.datasources()[-1]))
        history.declaration = replace(history.declaration, adopt=True)
        if self.forgotten:
            history.logs["ours"].wipe()


@dataclass(frozen=True)
class Damage:
    """A disk damages what was stored of a model.

    Attributes:
        what: "cut" or "removed" for one of its files, or "manifest".
        newest: of its newest version, not of the published one.
        again: the model is written again, with these changes.
    """

    what: str
    table: int
    file: int
    newest: bool
    again: tuple[Change, ...] = ()

    def __call__(self, history: Any) -> None:
        tables = history.declaration.tables
        model = tables[self.table % len(tables)].model
        number = history.store.number(model)
        if not self.newest:
            known = read_history(history.logs["ours"].records)
            number = known.published_version(model) or number
        history.note(f"{self}: version {number} of {model}")
        history.store.damage(model, number, self.what, file=self.file)
        if self.again:
            Materialize(self.table, self.again, again=True)(history)


@dataclass(frozen=True)
class Attempts:
    """Many refreshes come to nothing, one after another, for days: they change no rows.

    Each leaves a claim. One that is refused ends it; one that is killed does not, but records
    once more the request that the first of them was to send.
    """

    count: int
    killed: bool

    def __call__(self, history: Any) -> None:
        log = history.logs["ours"]
        live = [
            each
            for each in read_history(log.records).open_claims
            if each.owner.run_id not in log.ended
        ]
        if live or history.ledger.in_flight() or log.later_at is not None:
            # They would only wait.
            return
        history.note(f"{self.count} refreshes are {'killed' if self.killed else 'refused'}")
        if self.killed:
            killed = Event("appended intent", 1, Kill())
            history.refresh(history.actor(events=(killed,)), Options(full=True))
            history.tableau.come_to_rest()
        for _ in range(self.count):
            number = read_history(needed(log.records)).number + 1
            claim = Claim(refresh=number, owner=Owner(run_id=f"attempt {number}"))
            log.ended.add(claim.owner.run_id)
            log.records.append(claim)
            if self.killed:
                self._send_nothing(history, log, claim)
            else:
                log.records.append(ClaimRelease(refresh=number, claim=claim.id))

    def _send_nothing(self, history: Any, log: Any, claim: Claim) -> None:
        """Be killed right before the same request is sent again."""
        known = read_history(needed(log.records))
        if not known.intents or any(each.job_id for each in known.intents):
            return
        # Who may not list jobs waits until none of them can run.
        history.tableau.pass_time(0 if history.scenario.admin else 700)
        recovered = known.recovered
        for intent in known.intents:
            lost = intent.model_copy(update={"outcome": intent.outcome or Outcome.LOST})
            log.records.append(lost)
            recovered = recovered.after(lost)
        again = {"refresh": claim.refresh, "step": 1, "request_id": str(uuid4()), "outcome": None}
        again |= {"recorded_at": history.tableau.now, "run_id": claim.owner.run_id}
        log.records += [
            recovered.recorded_by(claim.refresh),
            known.intents[-1].model_copy(update=again),
        ]


@dataclass(frozen=True)
class Collect:
    """Old snapshots are removed."""

    def __call__(self, history: Any) -> None:
        history.note("old snapshots are collected")
        history.store.collect()


@dataclass(frozen=True)
class Pass:
    """Time passes."""

    days: int
    seconds: float

    def __call__(self, history: Any) -> None:
        history.note(f"{self.days} days and {self.seconds} s pass")
        history.tableau.pass_time(self.days * 86400 + self.seconds)


@dataclass(frozen=True)
class BadAnswers:
    """Some answers to questions about rows are old, broken, or of fewer rows."""

    fault: QueryFault | Cut

    def __call__(self, history: Any) -> None:
        history.note(f"the server answers with {self.fault}")
        history.tableau.control.add(self.fault)


@dataclass(frozen=True)
class End:
    """Dagster learns that all runs which were killed have ended; or somebody deletes those runs."""

    def __call__(self, history: Any) -> None:
        history.note("Dagster says that all runs have ended")
        history.end_all()
