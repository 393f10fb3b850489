"""Notifications: a sensor that sends messages about data sources that need a person."""

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
from tableau_pipeline.components.location import newest_run_here
from tableau_pipeline.components.published_datasource import PublishedDatasource
from tableau_pipeline.components.status import failure_of, statuses, statuses_of_files
from tableau_pipeline.errors import RefusedError
from tableau_pipeline.outcome import Status
from tableau_pipeline.yaml_keys import keyed

# The values of `Status` that can be reported.
Reported = Literal["failed", "refused", "drifted", "late", "held"]
# The subjects of incidents that concern no single data source. The "@" avoids a clash with the
# keys of data sources, which have no "@".
_JOB = f"@{AUDIT}"
_FILES = "@files"
# The most characters of an incident's text. Services cut off or refuse longer messages.
_LONGEST = 1500


@keyed
class Notify:
    """The problems of data sources to report, and the services that get the reports."""

    urls: tuple[str, ...] = Field(
        min_length=1,
        description="Apprise URLs: Slack, Teams, mail and more. The URLs contain secrets, so take "
        'them from the environment: ["{{ env.SLACK_URL }}"].',
    )
    on: tuple[Reported, ...] = Field(
        default=("failed", "refused", "drifted", "late", "held"),
        min_length=1,
        description="What to report. `drifted`: the audit found a difference. `late`: the "
        "last refresh misses `freshness`. `held`: a user has stopped the refreshes.",
    )

    @field_validator("urls")
    @classmethod
    def _check_urls(cls, urls: tuple[str, ...]) -> tuple[str, ...]:
        for number, url in enumerate(urls, 1):
            # Keep the URL out of the message, because it may be a secret.
            if not _service(url):
                raise ValueError(
                    f"number {number} is no URL that Apprise knows: is its environment variable "
                    "set? See https://github.com/caronc/apprise/wiki"
                )
        return urls


def _service(url: str) -> Any:
    """Return the Apprise service of a URL; None if Apprise does not know the URL.

    Raises:
        ValueError: Apprise is not installed.
    """
    try:
        import apprise
    except ImportError as error:
        raise ValueError("this needs pip install 'tableau_pipeline[notify]'") from error
    # At lower log levels, some services log their URL, which may contain a secret.
    logging.getLogger("apprise").setLevel(logging.CRITICAL)
    return apprise.Apprise.instantiate(url, suppress_exceptions=True)


@dataclass(frozen=True, slots=True)
class Incident:
    """A problem of a data source. The sensor reports a lasting problem only once.

    Attributes:
        subject: the key of a data source, or a name for one of its holds, for the audit, or for the
            records of data sources that are published from files.
        status: the status to report; None if the subject has no problem.
        id: distinguishes incidents of the same subject.
        run_id: the run that shows the details.
    """

    subject: str
    status: Status | None = None
    id: str = ""
    text: str = ""
    run_id: str | None = None


def notification_sensor(
    notify: Notify, datasources: Sequence[PublishedDatasource]
) -> dg.SensorDefinition:
    """Return the sensor that reports incidents of these data sources and of the audit."""

    @dg.sensor(
        name="notifications",
        minimum_interval_seconds=60,
        # Start the sensor switched on, because a user who declares `notify` wants messages.
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Reports data sources that need a person, once for each incident.",
    )
    def notifications(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        current = [*incidents(context.instance, datasources), *_audit_incidents(context)]
        sent: dict[str, dict[str, str]] = json.loads(context.cursor or "{}")
        after, count = {}, 0
        for number, url in enumerate(notify.urls, 1):
            # Record the reported incidents for each URL, so that only failed URLs are tried again.
            url_id = hashlib.sha256(url.encode()).hexdigest()[:12]
            before = sent.get(url_id, {})
            unsent = [
                incident
                for incident in current
                if incident.status in notify.on and before.get(incident.subject) != incident.id
            ]
            after[url_id] = before
            try:
                is_sent = not unsent or _send(url, unsent)
            except Exception as error:  # noqa: BLE001 - services raise any error
                # Leave out the error's message, which may quote a secret. Do not raise the error: a
                # failed tick keeps no cursor, and all other URLs would get their messages again
                # each minute.
                context.log.error("URL %d of notify: %s", number, type(error).__name__)
                is_sent = False
            if is_sent:
                # A data source that is being refreshed is not in `current`. Keep its record,
                # because its incident may not be over.
                reported = (
                    incident
                    for incident in current
                    if incident.status is None or incident.status in notify.on
                )
                after[url_id] = before | {incident.subject: incident.id for incident in reported}
                count += len(unsent)
            else:
                context.log.error("URL %d of notify did not take the message", number)
        summary = f"Sent {count} reports of incidents" if count else "Nothing new to report"
        return dg.SensorResult(skip_reason=summary, cursor=json.dumps(after))

    return notifications


def incidents(
    instance: dg.DagsterInstance, datasources: Sequence[PublishedDatasource]
) -> Iterator[Incident]:
    """Yield an incident for each data source, without a status if the data source has no problem.

    Leave out data sources that are being refreshed.
    """
    found = [*statuses(instance, datasources, reads_journal=False).values()]
    try:
        found += statuses_of_files(instance).values()
    except RefusedError as error:
        # Unreadable records must not stop the messages about all other data sources.
        text = f"The status of data sources published from files is unknown: {error}"
        yield Incident(_FILES, Status.FAILED, text, text)
    else:
        yield Incident(_FILES)
    for status in found:
        if status.state in (Status.FAILED, Status.REFUSED, Status.LATE):
            verb = {Status.LATE: "is", Status.REFUSED: "was"}.get(status.state, "has")
            text = f'"{status.name}" {verb} {status.state}: {status.why}\nRemedy: {status.remedy}'
            # Until a refresh succeeds, count refused and failed refreshes as one incident.
            id_ = "late" if status.state is Status.LATE else "stopped"
            yield Incident(status.key, status.state, id_, text, status.run_id)
        elif status.state is Status.UNKNOWN:
            text = f'The status of "{status.name}" is unknown: {status.why}'
            yield Incident(status.key, Status.FAILED, "unreadable", text)
        elif status.state is Status.HELD:
            # Give a hold a subject of its own, because a hold does not end other incidents of the
            # data source.
            text = f'"{status.name}" is {status.why}\nTo go on: {status.remedy}'
            yield Incident(f"{status.key}@hold", status.state, status.why, text)
        elif status.state is not Status.RUNNING:
            yield Incident(status.key)


def _audit_incidents(context: dg.SensorEvaluationContext) -> Iterator[Incident]:
    """Yield an incident for the last audit, without a status if the audit found no problem."""
    ended = dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.FAILURE
    if record := newest_run_here(context, AUDIT, ended):
        run = record.dagster_run
        if run.status is dg.DagsterRunStatus.FAILURE:
            failure = failure_of(context.instance, run.run_id, f"{AUDIT}_datasources")
            text = f"The audit: {failure.text or 'its run has ended without a result'}"
            yield Incident(_JOB, Status.DRIFTED, run.run_id, text, run.run_id)
        else:
            yield Incident(_JOB)


def _send(url: str, unsent: Sequence[Incident]) -> bool:
    """Send incidents in one message; return whether the service accepted the message."""
    texts, web = [], os.environ.get("PIPELINE_WEB_URL")
    for incident in unsent:
        link = f"{web.rstrip('/')}/runs/{incident.run_id}" if web and incident.run_id else ""
        text = incident.text if len(incident.text) <= _LONGEST else f"{incident.text[:_LONGEST]}..."
        texts.append("\n".join(filter(None, (text, link))))
    title = f"Tableau: {len(unsent)} data sources need a person" if len(unsent) > 1 else "Tableau"
    return bool(_service(url).notify(title=title, body="\n\n".join(texts)))
