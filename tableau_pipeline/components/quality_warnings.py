"""A sensor and a job that warn users in Tableau of data sources with old rows."""

import json
import time
from collections.abc import Iterator, Mapping, Sequence

import dagster as dg
from pydantic import Field

from tableau_pipeline.components.freshness import DATA_AGE
from tableau_pipeline.components.journal import journal_of
from tableau_pipeline.components.location import newest_run_here
from tableau_pipeline.components.published_datasource import POOL, PublishedDatasource
from tableau_pipeline.components.reporting import evaluation
from tableau_pipeline.components.status import statuses
from tableau_pipeline.core.declaration import in_environment
from tableau_pipeline.dagster_internals import newest_results
from tableau_pipeline.errors import RefreshError, RefusedError
from tableau_pipeline.outcome import Status
from tableau_pipeline.publishing.errors import SignInError
from tableau_pipeline.publishing.properties import set_warning
from tableau_pipeline.publishing.site import TableauSite
from tableau_pipeline.resources import TableauServerResource, tableau_project_root
from tableau_pipeline.resources.services import as_failure

_JOB = "quality_warnings"
_INTERVAL_SECONDS, _RETRY_SECONDS = 60, 900
# Do not show users the reason of a refusal or failure, because a reason may quote values of rows.
# Only the owners may see the reason.
_STOPPED = "The last refresh was refused or has failed"
_REASONS = {Status.REFUSED: _STOPPED, Status.FAILED: _STOPPED, Status.LATE: "These data are late"}
_RETRIED = (dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.CANCELED)


class _WarningTexts(dg.Config):
    """The texts of warnings from the sensor, by key of the data source; "" for no warning."""

    texts: dict[str, str] = Field(default={})


def warning_definitions(datasources: Sequence[PublishedDatasource]) -> dg.Definitions:
    """Return the job and the sensor for the data sources that declare `quality_warning`."""
    watched = {
        datasource.key: datasource for datasource in datasources if datasource.quality_warning
    }
    if not watched:
        return dg.Definitions()

    @dg.op(name="set_quality_warnings", pool=POOL, out=dg.Out(dg.Nothing))
    def set_all(
        context: dg.OpExecutionContext, config: _WarningTexts, tableau: TableauServerResource
    ) -> None:
        # Compute the texts again, because a refresh may have ended since the sensor's tick. For a
        # data source that is being refreshed, use the sensor's text.
        texts = config.texts | dict(_warning_texts(context.instance, watched))
        with as_failure(context.log), tableau.session(context.log) as site:
            if problems := [*_set_warnings(site, context.instance, watched, texts)]:
                raise RefreshError("\n".join(problems))

    @dg.job(name=_JOB, description="Sets and removes warnings at data sources.")
    def job() -> None:
        set_all()

    @dg.sensor(
        name=_JOB,
        job=job,
        minimum_interval_seconds=_INTERVAL_SECONDS,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Starts the job when a data source becomes old, or is fresh again.",
    )
    def sensor(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        texts = json.loads(context.cursor or "{}")
        previous = {key: text for key, text in texts.items() if key in watched}
        # Keep the last text of a data source that is being refreshed.
        current = previous | dict(_warning_texts(context.instance, watched))
        # Count a data source that is new to the sensor as changed, because it may have an old
        # warning.
        is_changed = any(previous.get(key) != text for key, text in current.items())
        if record := newest_run_here(context, _JOB):
            has_failed = record.dagster_run.status in _RETRIED
            is_changed |= has_failed and time.time() - (record.end_time or 0) > _RETRY_SECONDS
        config = {"ops": {set_all.name: {"config": {"texts": current}}}}
        requests = [dg.RunRequest(run_config=config)] if is_changed else []
        return dg.SensorResult(requests, cursor=json.dumps(current))

    return dg.Definitions(jobs=[job], sensors=[sensor])


def _set_warnings(
    site: TableauSite,
    instance: dg.DagsterInstance,
    watched: Mapping[str, PublishedDatasource],
    texts: Mapping[str, str],
) -> Iterator[str]:
    """Set and remove warnings; yield the errors after which another attempt may succeed."""
    # Skip texts for data sources that a reload of the code location has removed.
    for key in sorted(watched.keys() & texts):
        try:
            record = journal_of(instance, key).history().recovered.record
            if record and record.luid:
                tag = in_environment(watched[key], tableau_project_root()).tag
                set_warning(site, record.luid, tag, texts[key] or None)
        except (RefusedError, SignInError) as error:
            # Another attempt would fail, too, for example if the site has no license for warnings.
            site.log.warning("quality_warning of %s has no effect: %s", key, error)
        except RefreshError as error:
            yield f"{key}: {error}"


def _warning_texts(
    instance: dg.DagsterInstance, watched: Mapping[str, PublishedDatasource]
) -> Iterator[tuple[str, str]]:
    """Yield keys of data sources and texts of their warnings; "" for no warning.

    Leave out a data source that is being refreshed, or has an unknown status.
    """
    checks = {key: dg.AssetCheckKey(dg.AssetKey.from_user_string(key), DATA_AGE) for key in watched}
    ages = newest_results(instance, checks.values())
    for key, status in statuses(instance, watched.values(), reads_journal=False).items():
        age, last = evaluation(ages.get(checks[key])), status.last
        if status.state is Status.HELD:
            yield key, f"These data stay as they are: {status.why}"
        elif reason := _REASONS.get(status.state):
            when = f" They were last refreshed at {last.at:%Y-%m-%d %H:%M} UTC." if last else ""
            yield key, f"{reason}: the rows may be out of date.{when}"
        elif status.state not in (Status.RUNNING, Status.UNKNOWN):
            text = age.description if age and not age.passed else None
            yield key, text.partition("\n")[0] if text else ""
