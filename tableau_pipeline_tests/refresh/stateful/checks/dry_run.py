"""The check of dry runs: the next run does what `plan` has said, if nothing happens in between."""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from tableau_pipeline.core.checkpoint import PublishMode
from tableau_pipeline.errors import RefusedError
from tableau_pipeline.metadata.merge import CERTIFIED, NOTE
from tableau_pipeline.refresh.decide import Publish
from tableau_pipeline.refresh.planning import Planned
from tableau_pipeline.refresh.preview import Preview, preview_of
from tableau_pipeline.refresh.report import Refreshed
from tableau_pipeline_tests.refresh.stateful.checks.metadata import words
from tableau_pipeline_tests.refresh.stateful.checks.outcome import Outcome
from tableau_pipeline_tests.refresh.stateful.checks.refusals import ANSWERED
from tableau_pipeline_tests.refresh.stateful.checks.require import require
from tableau_pipeline_tests.refresh.stateful.checks.visibility import State
from tableau_pipeline_tests.refresh.stateful.refreshes import Refresh
from tableau_pipeline_tests.refresh.support.asked import Asked

# Notes on a new calculation, and on what depends on a comparison that no dry run makes.
_NOT_COMPARED = {"caption of Margin", "type of Margin", words(CERTIFIED), words(NOTE)}


@dataclass(frozen=True)
class DryRun:
    """The report of a dry run.

    Attributes:
        decision: its decision and reason; None if it failed.
        planned: its report; None if it failed.
        preview: what `plan` shows of its report.
        situation: the state of the data source before and after it, and the day; None if these
            differ, or if they may still change by themselves.
    """

    decision: tuple[str, str] | None
    planned: Planned | None
    preview: Preview | None
    situation: tuple[Any, ...] | None

    @classmethod
    def of(cls, history: Any, publisher: str, options: Asked) -> "DryRun":
        """Run one before a refresh with these options."""
        before = _situation(history)
        refresh = history.new_refresh(publisher=publisher)
        outcome = history.run(refresh, replace(options, dry_run=True))
        planned = outcome if isinstance(outcome, Planned) else None
        preview = preview_of(refresh.declaration, planned) if planned else None
        situation = (*before, refresh.day) if before and before == _situation(history) else None
        return cls(_decision(outcome), planned, preview, situation)

    def check(self, history: Any, refresh: Refresh, outcome: Outcome) -> None:
        """Check that the run that followed did the same.

        Raises:
            CheckFailed: it did something else.
        """
        # Its first decision counts: no dry run can know that it decides again, such as after a late
        # time stamp.
        done = refresh.decisions[0] if refresh.requests else _decision(outcome)
        # A run that could not find out the outcome of an earlier request has not decided at all.
        if done is None or self.situation is None or refresh.day != self.situation[-1]:
            return
        damaged = any(path in done[1] for path in history.store.damaged)
        publishes = self.decision and self.decision[0].startswith("publish")
        if publishes and done[0] == "refused" and damaged:
            # A dry run does not read the rows of a file that it does not build.
            return
        require(self.decision == done, f"a dry run decided {self.decision}, but the run did {done}")
        # No dry run can preview a second decision.
        if self.preview and isinstance(outcome, Refreshed) and len(refresh.decisions) == 1:
            self._check_rows(self.preview, outcome, fact=refresh.declaration.fact_table)
            self._check_metadata(history, self.preview, outcome.plan)

    def _check_metadata(self, history: Any, preview: Preview, plan: Any) -> None:
        """Check that exactly the announced items of metadata changed."""
        assert self.situation is not None
        before, after = self.situation[0], State.of(history, history.data_source())
        is_bare = isinstance(plan, Publish) and not plan.merged
        drops = plan.mode is not PublishMode.REPLACE if is_bare else False
        drops |= is_bare and history.scenario.quirks["replace"] == "like-overwrite"
        if drops or not before.datasource or before.datasource.luid != after.datasource.luid:
            return
        changed = {
            words(item)
            for item in {*before.metadata, *after.metadata} - {CERTIFIED, NOTE}
            if before.metadata.get(item) != after.metadata.get(item)
            and (item[0] != "field" or item[2] in after.rows.get(item[1], [()])[0])
        }
        notes = {note.text for note in preview.notes if note.topic == "metadata"}
        announced = {text.partition(" becomes ")[0] for text in notes} - _NOT_COMPARED
        # The usual role of a column is the same with and without a declaration.
        announced -= {text for text in announced - changed if text.startswith("role of ")}
        require(announced == changed, f"`plan` said that {announced} change, but {changed} have")

    def _check_rows(self, preview: Preview, report: Refreshed, *, fact: str) -> None:
        """Check the announced rows of each table, and the bytes sent."""
        assert self.planned is not None
        tables, rows = report.tables, report.checkpoint.rows
        desired = {name: table.content.rows for name, table in self.planned.desired.items()}
        counts = preview.rows, preview.inserted, preview.deleted
        announced = [self.planned.tables, desired, *counts, preview.size]
        inserted = sum(table.inserted for table in tables.values())
        deleted = sum(table.deleted for table in tables.values())
        # A dry run does not build the file of a full publish to measure it.
        size = preview.size if preview.kind == "publish" else report.sent
        done = [tables, rows, rows[fact], inserted, deleted, size]
        require(announced == done, f"`plan` announced {announced}, but the run did {done}")


def _situation(history: Any) -> tuple[Any, ...] | None:
    """All that a decision depends on but the records; None if it may change by itself."""
    tableau, control, now = history.tableau, history.tableau.control, history.tableau.now
    lag = timedelta(seconds=history.scenario.quirks["index_lag_seconds"])
    created = [datetime.fromisoformat(d.created_at) for d in tableau.datasources()]
    # A list shows a new data source late.
    is_listed = all(now > moment + lag for moment in created)
    if tableau.unfinished() or tableau.stamps_to_come() or control.faults() or not is_listed:
        return None
    return (State.of(history, history.data_source()),)


def _decision(outcome: Outcome) -> tuple[str, str] | None:
    """The decision of an outcome and its reason; None if it failed, or if the server refused."""
    match outcome:
        case Refreshed() | Planned():
            return outcome.decision, outcome.reason
        # A dry run does not ask the server, and so cannot know that it will refuse.
        case RefusedError() if not ANSWERED.search(str(outcome)):
            return "refused", str(outcome)
        case _:
            return None
