"""The check of dry runs: the next run does what `plan` announced, if nothing happens in between."""

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

# Notes that this check ignores: on a new calculation, and on a certification, which depends on a
# comparison that no dry run makes.
_NOT_COMPARED = {"caption of Margin", "type of Margin", words(CERTIFIED), words(NOTE)}


@dataclass(frozen=True)
class DryRun:
    """The report of a dry run.

    Attributes:
        decision: its decision and reason; None if the dry run failed.
        planned: its report; None if the dry run failed.
        preview: the part of the report that `plan` shows.
        situation: the state of the data source, and the day; None if the state changed during the
            dry run, or may still change by itself.
    """

    decision: tuple[str, str] | None
    planned: Planned | None
    preview: Preview | None
    situation: tuple[Any, ...] | None

    @classmethod
    def of(cls, history: Any, publisher: str, options: Asked) -> "DryRun":
        """Make a dry run of a refresh with the options."""
        before = _situation(history)
        refresh = history.new_refresh(publisher=publisher)
        outcome = history.run(refresh, replace(options, dry_run=True))
        planned = outcome if isinstance(outcome, Planned) else None
        preview = preview_of(refresh.declaration, planned) if planned else None
        situation = (*before, refresh.day) if before and before == _situation(history) else None
        return cls(_decision(outcome), planned, preview, situation)

    def check(self, history: Any, refresh: Refresh, outcome: Outcome) -> None:
        """Check that the next run did what the dry run announced.

        Raises:
            CheckFailed: the run did something else.
        """
        # The first decision of the run counts. A dry run cannot know that a run decides again, for
        # example after a late time stamp.
        done = refresh.decisions[0] if refresh.requests else _decision(outcome)
        # A run that cannot find out the outcome of an earlier request makes no decision.
        if done is None or self.situation is None or refresh.day != self.situation[-1]:
            return
        damaged = any(path in done[1] for path in history.store.damaged)
        publishes = self.decision and self.decision[0].startswith("publish")
        if publishes and done[0] == "refused" and damaged:
            # A dry run builds no file, so it does not read the damaged rows.
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
        # To declare the usual role of a column changes nothing.
        announced -= {text for text in announced - changed if text.startswith("role of ")}
        require(announced == changed, f"`plan` announced changes of {announced}, not {changed}")

    def _check_rows(self, preview: Preview, report: Refreshed, *, fact: str) -> None:
        """Check the announced rows of each table, and the announced bytes."""
        assert self.planned is not None
        tables, rows = report.tables, report.checkpoint.rows
        desired = {name: table.content.rows for name, table in self.planned.desired.items()}
        counts = preview.rows, preview.inserted, preview.deleted
        announced = [self.planned.tables, desired, *counts, preview.size]
        inserted = sum(table.inserted for table in tables.values())
        deleted = sum(table.deleted for table in tables.values())
        # A dry run builds no file of a full publish, and so cannot know the size.
        size = preview.size if preview.kind == "publish" else report.sent
        done = [tables, rows, rows[fact], inserted, deleted, size]
        require(announced == done, f"`plan` announced {announced}, but the run did {done}")


def _situation(history: Any) -> tuple[Any, ...] | None:
    """The state on which a decision depends, without the records; None if it may still change."""
    tableau, control, now = history.tableau, history.tableau.control, history.tableau.now
    lag = timedelta(seconds=history.scenario.quirks["index_lag_seconds"])
    created = [datetime.fromisoformat(d.created_at) for d in tableau.datasources()]
    # A list shows a new data source late.
    is_listed = all(now > moment + lag for moment in created)
    if tableau.unfinished() or tableau.stamps_to_come() or control.faults() or not is_listed:
        return None
    return (State.of(history, history.data_source()),)


def _decision(outcome: Outcome) -> tuple[str, str] | None:
    """The decision and the reason of an outcome; None after a failure or the server's refusal."""
    match outcome:
        case Refreshed() | Planned():
            return outcome.decision, outcome.reason
        # A dry run does not ask the server, and so cannot know of a refusal by the server.
        case RefusedError() if not ANSWERED.search(str(outcome)):
            return "refused", str(outcome)
        case _:
            return None
