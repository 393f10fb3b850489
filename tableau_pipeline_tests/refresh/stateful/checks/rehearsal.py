"""What `plan` tells is what the next run does, if nothing happens in between."""

from dataclasses import dataclass, replace
from typing import Any

from tableau_pipeline.core.checkpoint import PublishMode
from tableau_pipeline.errors import RefusedError
from tableau_pipeline.metadata.merge import CERTIFIED, NOTE
from tableau_pipeline.refresh.decide import Publish
from tableau_pipeline.refresh.planning import Planned
from tableau_pipeline.refresh.preview import Preview, preview_of
from tableau_pipeline.refresh.report import Refreshed
from tableau_pipeline_tests.refresh.stateful.actors import Actor
from tableau_pipeline_tests.refresh.stateful.checks.metadata import words
from tableau_pipeline_tests.refresh.stateful.checks.observer import Look
from tableau_pipeline_tests.refresh.stateful.checks.promise import require
from tableau_pipeline_tests.refresh.stateful.checks.refusals import ANSWERED
from tableau_pipeline_tests.refresh.stateful.checks.verdict import Outcome
from tableau_pipeline_tests.refresh.support.asked import Asked

# What comes with a new calculation; and what depends on a comparison that no dry run makes.
_UNTOLD = {"caption of Margin", "type of Margin", words(CERTIFIED), words(NOTE)}


@dataclass(frozen=True)
class Rehearsal:
    """What a dry run has told.

    Attributes:
        told: its decision and reason; None if it failed.
        planned: None if it failed.
        preview_of: what `plan` makes of its report.
        settled: how things were before and after it, if nothing was on its way.
    """

    told: tuple[str, str] | None
    planned: Planned | None
    preview_of: Preview | None
    settled: tuple[Any, ...] | None

    @classmethod
    def of(cls, history: Any, publisher: str, options: Asked) -> "Rehearsal":
        before = _settled(history)
        actor = history.actor(publisher=publisher)
        outcome = history.refresh(actor, replace(options, dry_run=True))
        planned = outcome if isinstance(outcome, Planned) else None
        found = preview_of(actor.declaration, planned) if planned else None
        settled = (*before, actor.day) if before and before == _settled(history) else None
        return cls(_told(outcome), planned, found, settled)

    def check(self, history: Any, actor: Actor, outcome: Outcome) -> None:
        """Whether the run that followed has done this."""
        # After a late time stamp, say, it publishes once more, which no dry run can tell.
        done = actor.decided[0] if actor.sendings else _told(outcome)
        # A run that could not find out what an earlier one has left has not decided at all.
        if done is None or self.settled is None or actor.day != self.settled[-1]:
            return
        unread = any(each in done[1] for each in history.store.damaged)
        if self.told and self.told[0].startswith("publish") and done[0] == "refused" and unread:
            # A dry run does not read the rows of a file that it does not build.
            return
        require(self.told == done, f"a dry run told {self.told}, but the run did {done}")
        # What it decided later, nobody could preview.
        if self.preview_of and isinstance(outcome, Refreshed) and len(actor.decided) == 1:
            self._check_rows(self.preview_of, outcome, fact=actor.declaration.fact_table)
            self._check_metadata(history, self.preview_of, outcome.plan)

    def _check_metadata(self, history: Any, told: Preview, plan: Any) -> None:
        """Whether exactly what was told of what people see has become another."""
        assert self.settled is not None
        before, after = self.settled[0], Look.at(history, history.found())
        is_bare = isinstance(plan, Publish) and not plan.merged
        drops = plan.mode is not PublishMode.REPLACE if is_bare else False
        drops |= is_bare and history.scenario.quirks["replace"] == "like-overwrite"
        if drops or not before.datasource or before.datasource.luid != after.datasource.luid:
            return
        changed = {
            words(place)
            for place in {*before.shows, *after.shows} - {CERTIFIED, NOTE}
            if before.shows.get(place) != after.shows.get(place)
            and (place[0] != "field" or place[2] in after.holds.get(place[1], [()])[0])
        }
        said = {note.text for note in told.notes if note.topic == "metadata"}
        said = {text.partition(" becomes ")[0] for text in said} - _UNTOLD
        require(said == changed, f"`plan` told that {said} change, but {changed} have")

    def _check_rows(self, told: Preview, report: Refreshed, *, fact: str) -> None:
        """Whether each table got the rows that it was to get, and as many bytes were sent."""
        assert self.planned is not None
        tables, rows = report.tables, report.checkpoint.rows
        desired = {name: each.content.rows for name, each in self.planned.desired.items()}
        said = [self.planned.tables, desired, told.rows, told.inserted, told.deleted, told.size]
        sums = [sum(getattr(e, what) for e in tables.values()) for what in ("inserted", "deleted")]
        # The file of a full publish is not built to measure it.
        size = told.size if told.kind == "publish" else report.sent
        done = [tables, rows, rows[fact], *sums, size]
        require(said == done, f"`plan` told {said}, but the run did {done}")


def _settled(history: Any) -> tuple[Any, ...] | None:
    """What a decision depends on beside the records; None if that may change by itself."""
    control = history.tableau.control
    if history.tableau.unfinished() or control.faults():
        return None
    return (Look.at(history, history.found()),)


def _told(outcome: Outcome) -> tuple[str, str] | None:
    match outcome:
        case Refreshed() | Planned():
            return outcome.decision, outcome.reason
        # What the server refuses shows only when it is asked.
        case RefusedError() if not ANSWERED.search(str(outcome)):
            return "refused", str(outcome)
        case _:
            return None
