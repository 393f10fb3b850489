"""When a data source is refreshed by itself."""

from collections.abc import Sequence
from functools import reduce
from operator import and_

import dagster as dg

from tableau_pipeline.components.attributes import AfterTrigger, Trigger

RETRY_CRON = "*/30 * * * *"


def automation_condition(
    trigger: Trigger | None, models: Sequence[dg.AssetKey]
) -> dg.AutomationCondition | None:
    """The condition of a data source that follows its models; None for other triggers.

    It also tries again, every half hour, what failed.
    """
    if not isinstance(trigger, AfterTrigger):
        return None
    new = _all_new(models) if trigger.after == "all" else _any_new()
    failed = dg.AutomationCondition.execution_failed() & dg.AutomationCondition.cron_tick_passed(
        RETRY_CRON
    )
    return (
        (new | failed).with_label("refresh after models")
        & ~dg.AutomationCondition.in_progress()
        & ~dg.AutomationCondition.any_deps_in_progress()
    )


def follows_extract(trigger: Trigger | None) -> dg.AutomationCondition | None:
    """The condition of the published asset, which one step makes together with its extract."""
    if not isinstance(trigger, AfterTrigger):
        return None
    requested = dg.AutomationCondition.will_be_requested()
    return dg.AutomationCondition.any_deps_match(requested).with_label("together with its extract")


def _any_new() -> dg.AutomationCondition:
    """Some model is new since the last request.

    Without eager()'s wait for missing partitions: a day that never came must not stop the rest.
    """
    return dg.AutomationCondition.eager().without(~dg.AutomationCondition.any_deps_missing())


def _all_new(models: Sequence[dg.AssetKey]) -> dg.AutomationCondition:
    """Every model is new since the last request: each is remembered until the others are."""
    handled = dg.AutomationCondition.newly_requested() | dg.AutomationCondition.newly_updated()
    updated = dg.AutomationCondition.newly_updated() | dg.AutomationCondition.will_be_requested()
    return reduce(
        and_,
        (dg.AutomationCondition.asset_matches(model, updated).since(handled) for model in models),
    )
