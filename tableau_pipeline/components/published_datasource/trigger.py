"""When a data source is refreshed by itself."""

from collections.abc import Sequence
from functools import reduce
from operator import and_

import dagster as dg

from tableau_pipeline.components.attributes.triggers import AfterTrigger, Trigger

RETRY_CRON = "*/30 * * * *"


def automation_condition(
    trigger: Trigger | None, models: Sequence[dg.AssetKey]
) -> dg.AutomationCondition | None:
    """The condition of a data source that follows its models; None for other triggers.

    It also tries again, every half hour, what failed.
    """
    if not isinstance(trigger, AfterTrigger):
        return None
    updated = dg.AutomationCondition.newly_updated()
    if trigger.after == "all":
        new = reduce(
            and_,
            (_since_request(dg.AutomationCondition.asset_matches(m, updated)) for m in models),
        )
    else:
        new = _since_request(dg.AutomationCondition.any_deps_match(updated))
    failed = dg.AutomationCondition.execution_failed() & dg.AutomationCondition.cron_tick_passed(
        RETRY_CRON
    )
    return (
        (new | failed).with_label("refresh after models")
        & ~dg.AutomationCondition.in_progress()
        & ~dg.AutomationCondition.any_deps_in_progress()
        # A check that failed, or has not looked yet: what is new stays remembered meanwhile.
        & dg.AutomationCondition.all_deps_blocking_checks_passed()
    )


def follows_extract(trigger: Trigger | None) -> dg.AutomationCondition | None:
    """The condition of the published asset, which one step makes together with its extract."""
    if not isinstance(trigger, AfterTrigger):
        return None
    requested = dg.AutomationCondition.will_be_requested()
    together = dg.AutomationCondition.any_deps_match(requested)
    return together.with_label("refresh together with the extract")


def _since_request(updated: dg.AutomationCondition) -> dg.AutomationCondition:
    """Remembered until the next request.

    A request alone makes it forget, not a refresh, and with nothing or-ed to it: of a combination
    Dagster does not know the time, and would forget a model that is new just after the request,
    which that refresh may have missed. After a refresh by hand this costs one that finds no change.

    Unlike eager(), nothing waits for missing partitions: a day that never came must not stop all.
    """
    return updated.since(dg.AutomationCondition.newly_requested())
