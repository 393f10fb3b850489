"""What `plan` tells is what the next run does, if nothing happens in between."""

from dataclasses import dataclass, replace
from typing import Any

from tableau_pipeline.errors import RefusedError
from tableau_pipeline.foresee import Foreseen, foreseen
from tableau_pipeline.refresh.plan import Options
from tableau_pipeline.refresh.report import Report
from tableau_pipeline_tests.refresh.stateful.actors import Actor
from tableau_pipeline_tests.refresh.stateful.checks.observer import Look
from tableau_pipeline_tests.refresh.stateful.checks.promise import require
from tableau_pipeline_tests.refresh.stateful.checks.refusals import ANSWERED
from tableau_pipeline_tests.refresh.stateful.checks.verdict import Outcome


@dataclass(frozen=True)
class Rehearsal:
    """What a dry run has told.

    Attributes:
        told: its decision and reason; None if it failed.
        report: None if it was refused, or failed.
        foreseen: what `plan` makes of its report.
        settled: how things were before and after it, if nothing was on its way.
    """

    told: tuple[str, str] | None
    report: Report | None
    foreseen: Foreseen | None
    settled: tuple[Any, ...] | None

    @classmethod
    def of(cls, history: Any, publisher: str, options: Options) -> "Rehearsal":
        """Let it run."""
        before = _settled(history)
        actor = history.actor(publisher=publisher)
        outcome = history.refresh(actor, replace(options, dry_run=True))
        report = outcome if isinstance(outcome, Report) else None
        found = foreseen(actor.declaration, report) if report else None
        settled = (*before, actor.day) if before and before == _settled(history) else None
        return cls(_told(outcome), report, found, settled)

    def check(self, history: Any, actor: Actor, outcome: Outcome) -> None:
        """Whether the run that followed has done this."""
        # After a late time stamp, say, it publishes once more, which no dry run can tell.
        done = actor.decided[0] if actor.sendings else _told(outcome)
        # A run that could not find out what an earlier one has left has not decided at all.
        if done is None or self.settled is None or actor.day != self.settled[-1]:
            return
        require(self.told == done, f"a dry run told {self.told}, but the run did {done}")
        # What it decided later, nobody could foresee.
        if self.foreseen and isinstance(outcome, Report) and len(actor.decided) == 1:
            self._check_rows(self.foreseen, outcome)
            self._check_tables(outcome)

    def _check_tables(self, done: Report) -> None:
        """Whether each table got the rows that it was to get, for the reason that was told."""
        assert self.report is not None
        assert done.checkpoint is not None
        require(
            self.report.tables == done.tables,
            f"`plan` told {self.report.tables}, but the run did {done.tables}",
        )
        holds = {name: each.content.rows for name, each in self.report.desired.items()}
        require(
            holds == done.checkpoint.rows,
            f"`plan` told {holds}, but it holds {done.checkpoint.rows}",
        )

    def _check_rows(self, told: Foreseen, report: Report) -> None:
        """Whether it has sent as many rows and bytes."""
        assert report.checkpoint is not None
        changes = report.tables.values()
        done = {
            "rows": sum(report.checkpoint.rows.values()),
            "inserted": sum(each.inserted for each in changes),
            "deleted": sum(each.deleted for each in changes),
        }
        # The file of a full publish is not built to measure it.
        if told.kind != "publish":
            done["size"] = report.sent
        said = {name: getattr(told, name) for name in done}
        require(said == done, f"`plan` told {said}, but the run did {done}")


def _settled(history: Any) -> tuple[Any, ...] | None:
    """What a decision depends on beside the records; None if that may change by itself."""
    control = history.tableau.control
    if history.tableau.unfinished() or control.faults():
        return None
    return (Look.at(history, history.found()),)


def _told(outcome: Outcome) -> tuple[str, str] | None:
    match outcome:
        case Report():
            return outcome.decision, outcome.reason
        # What the server refuses shows only when it is asked.
        case RefusedError() if not ANSWERED.search(str(outcome)):
            return "refuse", str(outcome)
        case _:
            return None
