"""What a user would write in bare Dagster instead of the component `PublishedDatasource`."""

from collections import defaultdict
from collections.abc import Iterator

import dagster as dg
from pydantic import Field

from benchmarks.many.locations import cron_of
from tableau_pipeline.resources import HyperResource, SnapshotIOManager, TableauServerResource


class Options(dg.Config):
    """What a user may choose for a single run."""

    dry_run: bool = False
    publish: bool = True
    full: bool = False
    accept: list[str] = Field(default_factory=list)


def after_models() -> dg.AutomationCondition:
    """Request a run if a model is newer than the last request; retry failed runs half-hourly."""
    new = dg.AutomationCondition.any_deps_match(dg.AutomationCondition.newly_updated())
    failed = dg.AutomationCondition.execution_failed()
    return (
        (
            new.since(dg.AutomationCondition.newly_requested())
            | failed & dg.AutomationCondition.cron_tick_passed("*/30 * * * *")
        )
        & ~dg.AutomationCondition.in_progress()
        & ~dg.AutomationCondition.any_deps_in_progress()
        & dg.AutomationCondition.all_deps_blocking_checks_passed()
    )


def refreshed(key: str, model: str, *, follows: bool) -> dg.AssetsDefinition:
    """Return one step with two assets: the extract and the data source."""
    requested = dg.AutomationCondition.any_deps_match(dg.AutomationCondition.will_be_requested())

    @dg.multi_asset(
        name=key,
        specs=[
            dg.AssetSpec(
                f"{key}_extract",
                deps=[model],
                description="The .hyper file of a refresh.",
                kinds={"hyper"},
                skippable=True,
                automation_condition=after_models() if follows else None,
            ),
            dg.AssetSpec(
                key,
                deps=[f"{key}_extract"],
                description="The data source.",
                kinds={"tableau"},
                skippable=True,
                automation_condition=requested if follows else None,
            ),
        ],
        check_specs=[
            dg.AssetCheckSpec(name, asset=key)
            for name in ("guard", "keys", "schema", "reconciliation")
        ],
        pool="tableau",
    )
    def step(
        config: Options,
        snapshots: dg.ResourceParam[SnapshotIOManager],
        hyper: HyperResource,
        tableau: TableauServerResource,
    ) -> Iterator[dg.MaterializeResult | dg.AssetCheckResult]:
        yield from ()

    return step


def schedules(count: int) -> list[dg.ScheduleDefinition]:
    """Return a schedule for each distinct time; its job refreshes the data sources of that time."""
    due: dict[str, list[str]] = defaultdict(list)
    for number in range(count):
        if cron := cron_of(number):
            due[cron] += [f"shop_{number}_extract", f"shop_{number}"]
    return [
        dg.ScheduleDefinition(
            name=f"at_{cron.split()[1]}",
            job=dg.define_asset_job(
                f"at_{cron.split()[1]}_job", selection=dg.AssetSelection.assets(*keys)
            ),
            cron_schedule=cron,
            execution_timezone="UTC",
        )
        for cron, keys in due.items()
    ]


def sensor() -> dg.AutomationConditionSensorDefinition:
    """Return the sensor that requests runs of all data sources that follow their models."""
    return dg.AutomationConditionSensorDefinition("after_models", target=dg.AssetSelection.all())
