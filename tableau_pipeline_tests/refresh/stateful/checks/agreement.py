"""Check saved plans and approvals: a refresh does as agreed, or is refused after a change."""

from dataclasses import dataclass, replace
from datetime import date
from typing import Any

from tableau_pipeline.errors import RefusedError
from tableau_pipeline.outcome import Code, Status
from tableau_pipeline.refresh.approval import Approval, metadata_changes
from tableau_pipeline.refresh.decide import Publish, Refuse
from tableau_pipeline.refresh.limits import kind_of, saved_plan
from tableau_pipeline.refresh.planning import Planned
from tableau_pipeline.refresh.report import Refreshed
from tableau_pipeline_tests.refresh.stateful.checks.expected import changed_shares
from tableau_pipeline_tests.refresh.stateful.checks.outcome import Outcome
from tableau_pipeline_tests.refresh.stateful.checks.require import require
from tableau_pipeline_tests.refresh.stateful.refreshes import Refresh
from tableau_pipeline_tests.refresh.stateful.server.contents import Rows
from tableau_pipeline_tests.refresh.support.asked import Asked

_CODES = (Code.PLAN_MOVED, Code.NOT_APPROVED)


@dataclass(frozen=True)
class Agreement:
    """A plan for a refresh, and a person's consent to the plan.

    Attributes:
        options: the options of the refresh that follows.
        day: the day of the plan; None if there is no plan.
        situation: the declaration and the state of the data source when the refresh was planned.
        rows: the published rows when the refresh was planned.
    """

    options: Asked
    day: date | None = None
    situation: object = None
    rows: Rows | None = None

    @classmethod
    def of(cls, history: Any, step: Any) -> "Agreement":
        """Plan a refresh. If the plan is no refusal, agree to the plan."""
        options, refresh = step.options, history.new_refresh()
        planned = history.run(refresh, replace(options, dry_run=True))
        if not isinstance(planned, Planned) or isinstance(planned.plan, Refuse):
            return cls(options)
        history.met[f"event: agreed {step.agreed}"] += 1
        digest, at = refresh.declaration.whole_digest(), refresh.now()
        if step.agreed == "plan":
            key = refresh.declaration.key
            saved = saved_plan(planned, options, key=key, digest=digest, at=at)
            options = Asked(saved=saved, by="ann")
        else:
            columns = {name: table.columns for name, table in planned.desired.items()}
            approval = Approval(
                key=refresh.declaration.key,
                declaration=digest,
                kind=kind_of(planned),
                moves=tuple(planned.moves),
                columns=columns,
                metadata=metadata_changes(planned.merged),
                max_change=step.bound,
                by="ann",
            )
            options = replace(options, approval=approval)
        return cls(options, refresh.day, _situation(history), history.published_rows())

    def check(self, history: Any, refresh: Refresh, outcome: Outcome, *, is_quiet: bool) -> None:
        """Check that a refresh has kept to the agreement.

        Args:
            is_quiet: nothing has happened since the agreement.

        Raises:
            CheckFailed: the refresh has done something else, or was refused although nothing has
                changed.
        """
        saved, approval = self.options.saved, self.options.approval
        if isinstance(outcome, Refreshed) and not outcome.checkpoint.distrust:
            history.met["agreed, and done"] += bool(saved or approval)
            # If its first request went wrong, a refresh repairs it by a second one, a full publish.
            is_repair = len(refresh.requests) > 1
            if saved:
                done = outcome.checkpoint.tables
                require(done == saved.tables, f"planned {saved.tables}, but published {done}")
                kind = kind_of(outcome.planned)
                require(is_repair or kind is saved.kind, f"planned {saved.kind}, but did {kind}")
            if approval:
                is_whole = isinstance(outcome.plan, Publish)
                may = approval.kind is Status.PUBLISH or is_repair or not is_whole
                require(may, f"published in full, but {approval.kind} was approved")
                made = metadata_changes(outcome.planned.merged)
                require({*made} <= {*approval.metadata}, f"metadata outside the approval: {made}")
                self._check_bound(approval, refresh)
        if saved or approval:
            history.met[f"agreed: {type(outcome).__name__}"] += 1
        if isinstance(outcome, RefusedError) and outcome.refusals[0].code in _CODES:
            history.met["agreed, and refused"] += 1
            is_same = is_quiet and self.situation == _situation(history)
            require(not is_same, f"nothing has changed since the agreement: {outcome}")
            require(not refresh.requests or refresh.users_acted, f"refused too late: {outcome}")

    def _check_bound(self, approval: Approval, refresh: Refresh) -> None:
        """If no other user acted, check that no more rows have changed than approved."""
        if approval.max_change is None or len(refresh.requests) != 1 or refresh.disturbed:
            return
        (request,) = refresh.requests
        for name, share in changed_shares(request.base or {}, request.expected).items():
            is_within = 100 * share <= approval.max_change
            require(is_within, f"{float(share):.0%} of the rows of {name} changed")


def _situation(history: Any) -> object:
    """The declaration, and the identity and the time stamp of the data source."""
    datasource = history.data_source()
    stamp = (datasource.luid, datasource.updated_at) if datasource else None
    return history.declaration, stamp
