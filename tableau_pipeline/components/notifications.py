"""Notifications: a sensor that tells people which data sources need them."""

import hashlib
import json
import logging
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import dagster as dg
from pydantic import Field, field_validator

from tableau_pipeline.components.audit import AUDIT
from tableau_pipeline.components.published_datasource import PublishedDatasource
from tableau_pipeline.components.status import failure_of, statuses, statuses_of_files
from tableau_pipeline.outcome import Status
from tableau_pipeline.yaml_keys import keyed

# Values of `Status`.
Reported = Literal["failed", "refused", "drifted", "late"]
# A data source may have the key "audit", but no key has an "@".
_JOB = f"@{AUDIT}"
# Services cut longer messages off, or refuse them.
_LONGEST = 1500


@keyed
class Notify:
    """Whom to tell when a data source needs a person."""

    urls: tuple[str, ...] = Field(
        min_length=1,
        description="Apprise URLs: Slack, Teams, mail, webhooks and more. They hold "
        'secrets, so take them from the environment: ["{{ env.SLACK_URL }}"].',
    )
    on: tuple[Reported, ...] = Field(
        default=("failed", "refused", "drifted", "late"),
        min_length=1,
        description="What to report. `drifted`: the audit found a difference. `late`: the "
        "last refresh misses `freshness`.",
    )

    @field_validator("urls")
    @classmethod
    def _known(cls, urls: tuple[str, ...]) -> tuple[str, ...]:
        for number, url in enumerate(urls, 1):
            # The message must not repeat what may be a secret.
            if not _service(url):
                raise ValueError(
                    f"number {number} is no URL that Apprise knows: is its environment variable "
                    "set? See https://github.com/caronc/apprise/wiki"
                )
        return urls


def _service(url: str) -> Any:
    """Return what sends to a URL; None if Apprise does not know it.

    Raises:
        ValueError: Apprise is not installed.
    """
    try:
        import apprise
    except ImportError as error:
        raise ValueError("this needs pip install 'tableau_pipeline[notify]'") from error
    # At other levels, some services log what they send to.
    logging.getLogger("apprise").setLevel(logging.CRITICAL)
    return apprise.Apprise.instantiate(url, suppress_exceptions=True)


@dataclass(frozen=True, slots=True)
class Incident:
    """What a person is to be told, once for as long as it lasts.

    Attributes:
        about: the key of the data source, or the job of the audit.
        status: None if nothing is wrong.
        id: other incidents of the same data source have other ones.
        run_id: the run to look at.
    """

    subject: str
    status: Status | None = None
    id: str = ""
    text: str = ""
    run_id: str | None = None


def notification_sensor(
    notify: Notify, datasources: Sequence[PublishedDatasource]
) -> dg.SensorDefinition:
    """Return the sensor that tells of these data sources and their audit."""

    @dg.sensor(
        name="notifications",
        minimum_interval_seconds=60,
        # Whoever declares it wants to be told.
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Tells people which data sources need them, once for each incident.",
    )
    def notifications(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        now = [*incidents(context.instance, datasources), *_audits(context.instance)]
        told: dict[str, dict[str, str]] = json.loads(context.cursor or "{}")
        after, count = {}, 0
        for number, url in enumerate(notify.urls, 1):
            # Each has a record of its own: one that does not answer is asked again, and no other.
            place = hashlib.sha256(url.encode()).hexdigest()[:12]
            before = told.get(place, {})
            news = [
                each
                for each in now
                if each.status in notify.on and before.get(each.subject) != each.id
            ]
            after[place] = before
            if not news or _send(url, news):
                # While a data source is being refreshed, its incident is not over.
                seen = (e for e in now if e.status is None or e.status in notify.on)
                after[place] = before | {each.subject: each.id for each in seen}
                count += len(news)
            else:
                context.log.error("URL %d of notify did not take the message", number)
        said = f"Told {count} times of an incident" if count else "Nothing new to tell"
        return dg.SensorResult(skip_reason=said, cursor=json.dumps(after))

    return notifications


def incidents(
    instance: dg.DagsterInstance, datasources: Sequence[PublishedDatasource]
) -> Iterator[Incident]:
    """Yield how each data source is that is not being refreshed."""
    for now in (*statuses(instance, datasources).values(), *statuses_of_files(instance).values()):
        if now.state in (Status.FAILED, Status.REFUSED, Status.LATE):
            verb = {Status.LATE: "is", Status.REFUSED: "was"}.get(now.state, "has")
            text = f'"{now.name}" {verb} {now.state}: {now.why}\nRemedy: {now.remedy}'
            # Until a refresh succeeds: it may be refused by day, and fail by night.
            id_ = "late" if now.state is Status.LATE else "stopped"
            yield Incident(now.key, now.state, id_, text, now.run_id)
        elif now.state is not Status.RUNNING:
            yield Incident(now.key)


def _audits(instance: dg.DagsterInstance) -> Iterator[Incident]:
    """Yield what the last audit has found."""
    ended = [dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.FAILURE]
    for run in instance.get_runs(dg.RunsFilter(job_name=AUDIT, statuses=ended), limit=1):
        if run.status is dg.DagsterRunStatus.FAILURE:
            text = failure_of(instance, run.run_id, f"{AUDIT}_datasources").text
            yield Incident(_JOB, Status.DRIFTED, run.run_id, f"The audit: {text}", run.run_id)
        else:
            yield Incident(_JOB)


def _send(url: str, news: Sequence[Incident]) -> bool:
    """Tell of incidents in one message; return whether it was taken."""
    texts, web = [], os.environ.get("PIPELINE_WEB_URL")
    for each in news:
        link = f"{web.rstrip('/')}/runs/{each.run_id}" if web and each.run_id else ""
        text = each.text if len(each.text) <= _LONGEST else f"{each.text[:_LONGEST]}..."
        texts.append("\n".join(filter(None, (text, link))))
    title = f"Tableau: {len(news)} data sources need a person" if len(news) > 1 else "Tableau"
    return bool(_service(url).notify(title=title, body="\n\n".join(texts)))
