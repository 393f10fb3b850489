"""Find our own jobs in the list of a site's jobs, if the ids of our jobs are unknown.

The list shows the type of each job as a word. Tableau does not document the words for publishes and
data updates, or whether listed jobs have titles. So every job that may be ours counts as ours.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from itertools import islice

import tableauserverclient as TSC

from tableau_pipeline.core.checkpoint import Outcome
from tableau_pipeline.core.drift import Job, JobKind
from tableau_pipeline.publishing import rest

_STATUSES = {
    TSC.BackgroundJobItem.Status.Success: Outcome.DONE,
    TSC.BackgroundJobItem.Status.Failed: Outcome.FAILED,
    TSC.BackgroundJobItem.Status.Cancelled: Outcome.CANCELLED,
}
# The kind of job for each word that Tableau's own clients and test suites use. The keys are the
# words in lower case, without "_".
KINDS: Mapping[str, JobKind] = {"updateuploadedfile": "update", "publishdatasource": "publish"}
# Words from Tableau's reference for jobs that neither publish nor update data sources. These words,
# too, are in lower case, without "_".
_OTHER_KINDS = frozenset({"refreshextracts", "incrementextracts", "runflow"})


def list_jobs(
    tsc: TSC.Server, since: datetime, *, most: int | None = None
) -> Sequence[TSC.BackgroundJobItem] | None:
    """Return at most `most` jobs, all created since a time; None if this user may not list jobs."""
    options = TSC.RequestOptions()
    field, operator = TSC.RequestOptions.Field, TSC.RequestOptions.Operator
    options.filter.add(TSC.Filter(field.CreatedAt, operator.GreaterThanOrEqual, since))
    try:
        return list(islice(rest.iterate(tsc.jobs, options), most))
    except TSC.ServerResponseError as error:
        if error.code.startswith("403"):
            return None
        raise


def jobs_possibly_of(
    name: str, items: Sequence[TSC.BackgroundJobItem], words: Mapping[str, JobKind]
) -> Sequence[Job] | None:
    """Return the jobs that may publish or update data sources with this name.

    The result includes unfinished jobs of an unknown kind. The result is None if such a job, or an
    unfinished publish or update, has no title: the job may change a data source with any name.

    Args:
        words: the kind of job for each word that earlier refreshes found in the site's job list.
    """
    jobs = []
    for item in items:
        job = _job(item, words)
        # The filter of a request cannot express some names, so compare titles here.
        if job is None or (item.title and not rest.same_name(item.title, name)):
            continue
        if not item.title and job.outcome is None:
            return None
        if item.title and (job.kind or job.outcome is None):
            jobs.append(job)
    return jobs


def _job(item: TSC.BackgroundJobItem, words: Mapping[str, JobKind]) -> Job | None:
    """Return a listed job; None if jobs of its kind neither publish nor update data sources."""
    word = item.type or ""
    normalized = word.replace("_", "").casefold()
    if normalized in _OTHER_KINDS:
        return None
    kind = words.get(word) or KINDS.get(normalized)
    return Job(str(item.id), _STATUSES.get(item.status), kind, created_at=item.created_at)
