"""A sensor and a job that keep data quality warnings at data sources whose rows may be old."""

import json
import time
from collections.abc import Iterator, Mapping, Sequence

import dagster as dg
from pydantic import Field

from tableau_pipeline.components.freshness import DATA_AGE
from tableau_pipeline.components.journal import DagsterJournal
from tableau_pipeline.components.published_datasource import POOL, PublishedDatasource
from tableau_pipeline.components.reporting import evaluation
from tableau_pipeline.components.status import statuses
from tableau_pipeline.core.declaration import below
from tableau_pipeline.core.journal import read_history
from tableau_pipeline.dagster_internals import newest_results
from tableau_pipeline.errors import RefreshError, RefusedError
from tableau_pipeline.outcome import Status
from tableau_pipeline.publishing.errors import SignInError
from tableau_pipeline.publishing.properties import set_warning
from tableau_pipeline.publishing.site import TableauSite
from tableau_pipeline.resources import TableauServerResource, tableau_project_root
from tableau_pipeline.resources.services import as_failure

_JOB = "quality_warnings"
_INTERVAL, _RETRY = 60, 900
# The reason itself is for the pipeline's people alone, as it may name values of rows.
_STOPPED = "The last refresh was refused or has failed"
_WHY = {Status.REFUSED: _STOPPED, Status.FAILED: _STOPPED, Status.LATE: "These data are late"}
_RETRIED = (dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.CANCELED)


class _Seen(dg.Config):
    """By key, what the sensor found; "" is that no warning is to stand."""

    texts: dict[str, str] = Field(default={})


def warning_definitions(datasources: Sequence[PublishedDatasource]) -> dg.Definitions:
    """Return the job and its sensor for those of these data sources that declare the warning."""
    watched = {each.key: each for each in datasources if each.quality_warning}
    if not watched:
        return dg.Definitions()

    @dg.op(name="set_quality_warnings", pool=POOL, out=dg.Out(dg.Nothing))
    def set_all(
        context: dg.OpExecutionContext, config: _Seen, tableau: TableauServerResource
    ) -> None:
        # Looks again: a refresh may have ended since. Where one has begun, what was seen stands.
        texts = config.texts | dict(_texts(context.instance, watched))
        with as_failure(context.log), tableau.session(context.log) as site:
            if problems := [*_set(site, context.instance, watched, texts)]:
                raise RefreshError("\n".join(problems))

    @dg.job(name=_JOB, description="Sets and removes warnings at data sources.")
    def job() -> None:
        set_all()

    @dg.sensor(
        name=_JOB,
        job=job,
        minimum_interval_seconds=_INTERVAL,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Starts the job when a data source becomes old, or is fresh again.",
    )
    def sensor(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        before = json.loads(context.cursor or "{}")
        kept = {key: text for key, text in before.items() if key in watched}
        # Of those that are being refreshed, nothing is known before the end.
        now = kept | dict(_texts(context.instance, watched))
        # One that is new here may have a warning from before.
        is_changed = any(kept.get(key) != text for key, text in now.items())
        for last in context.instance.get_run_records(dg.RunsFilter(job_name=_JOB), limit=1):
            has_failed = last.dagster_run.status in _RETRIED
            is_changed |= has_failed and time.time() - (last.end_time or 0) > _RETRY
        config = {"ops": {set_all.name: {"config": {"texts": now}}}}
        requests = [dg.RunRequest(run_config=config)] if is_changed else []
        return dg.SensorResult(requests, cursor=json.dumps(now))

    return dg.Definitions(jobs=[job], sensors=[sensor])


def _set(
    site: TableauSite,
    instance: dg.DagsterInstance,
    watched: Mapping[str, PublishedDatasource],
    texts: Mapping[str, str],
) -> Iterator[str]:
    """Set and remove warnings; yield what another try may mend."""
    # What the sensor saw may name others, if the code location was loaded again since.
    for key in sorted(watched.keys() & texts):
        try:
            record = read_history(DagsterJournal(instance, key).records()).recovered.record
            if record and record.luid:
                tag = below(watched[key], tableau_project_root()).tag
                set_warning(site, record.luid, tag, texts[key] or None)
        except (RefusedError, SignInError) as error:
            # Such as on a site without the license.
            site.log.warning("quality_warning of %s has no effect: %s", key, error)
        except RefreshError as error:
            yield f"{key}: {error}"


def _texts(
    instance: dg.DagsterInstance, watched: Mapping[str, PublishedDatasource]
) -> Iterator[tuple[str, str]]:
    """Yield by key what is to stand at a data source, or ""; nothing while it is refreshed."""
    checks = {key: dg.AssetCheckKey(dg.AssetKey.from_user_string(key), DATA_AGE) for key in watched}
    ages = newest_results(instance, checks.values())
    for key, now in statuses(instance, watched.values()).items():
        age, last = evaluation(ages.get(checks[key])), now.last
        if why := _WHY.get(now.state):
            when = f" They were last refreshed at {last.at:%Y-%m-%d %H:%M} UTC." if last else ""
            yield key, f"{why}: the rows may be out of date.{when}"
        elif now.state is not Status.RUNNING:
            said = age.description if age and not age.passed else None
            yield key, said.partition("\n")[0] if said else ""
