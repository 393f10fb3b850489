"""The triggers that refresh a data source automatically."""

from typing import Annotated, Any, Literal

import dagster as dg
from pydantic import AfterValidator, BeforeValidator, Discriminator, Field, Tag

from tableau_pipeline.components.attributes.base import Attributes, keys
from tableau_pipeline.components.attributes.zones import Zone


class AfterTrigger(Attributes):
    """Refresh when any upstream model is new, or when all are."""

    after: Literal["any", "all"] = Field(
        description="any: as soon as one model is new. all: once every model is new, feeds "
        "included."
    )


def _schedule(cron: str) -> str:
    """Return the cron expression itself if it is one.

    Raises:
        ValueError: it is none.
    """
    try:
        # Dagster's own check. Its message names this throwaway schedule, so it is not passed on.
        dg.ScheduleDefinition(job_name="check", cron_schedule=cron)
    except dg.DagsterInvalidDefinitionError:
        raise ValueError(
            f'"{cron}" is not a cron schedule: write minute, hour, day of the month, month and '
            'day of the week, as in "0 6 * * *" or "*/30 8-18 * * MON-FRI", or @daily'
        ) from None
    return cron


Cron = Annotated[str, AfterValidator(_schedule)]


class CronTrigger(Attributes):
    """Refresh at fixed times."""

    cron: Cron = Field(description='A cron expression, as in "0 6 * * *".')
    timezone: Zone = Field(
        default="UTC", description='Time zone of the cron expression: "Europe/Paris".'
    )


class DbtTrigger(Attributes):
    """Refresh the data source and its Spark models after a dbt that runs outside Dagster."""

    dbt: str = Field(
        min_length=1,
        description="dbt's run_results.json: a path, or the URL of an object store, such as "
        "s3://lake/target/run_results.json.",
    )
    models: tuple[str, ...] | None = Field(
        default=None,
        min_length=1,
        description="Names or unique ids of the dbt models that feed the data source. It is "
        "refreshed if an invocation built one of them, and neither one of them nor a test on them "
        "failed. Default: all models of the dbt project.",
    )


_EXAMPLES = {
    "after": "{after: any}; {after: all}",
    "cron": '{cron: "0 6 * * *", timezone: Europe/Paris}',
    "dbt": "{dbt: .../run_results.json, models: [...]}",
}


def _named(value: Any) -> list[str]:
    return [name for name in _EXAMPLES if name in keys(value)]


def _trigger(value: Any) -> str | None:
    """Return the name of the trigger that a value selects; None if none or several."""
    names = _named(value)
    return names[0] if len(names) == 1 else None


def _validate(value: Any) -> Any:
    """Return the value if it is exactly one of the triggers.

    Raises:
        ValueError: it is none of them, or several. The message lists them.
    """
    if _trigger(value):
        return value
    if names := _named(value):
        raise ValueError(
            f"{' and '.join(f'`{name}`' for name in names)} are {len(names)} triggers; a data "
            "source has one, or it would be refreshed twice: keep one of them"
        )
    raise ValueError(f"trigger is one of: {'; '.join(_EXAMPLES.values())}")


Trigger = Annotated[
    Annotated[AfterTrigger, Tag("after")]
    | Annotated[CronTrigger, Tag("cron")]
    | Annotated[DbtTrigger, Tag("dbt")],
    Discriminator(_trigger),
    BeforeValidator(_validate),
]
