"""List what a site contains: data sources, projects, connections, revisions, jobs. Read-only."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial

import tableauserverclient as TSC

from tableau_pipeline.core.drift import RemoteDatasource
from tableau_pipeline.errors import BudgetSpentError, RefreshError, RefusedError
from tableau_pipeline.outcome import Code
from tableau_pipeline.publishing import counts, job_list, rest
from tableau_pipeline.publishing.errors import SignInError
from tableau_pipeline.publishing.site import TableauSite

# The connection type of data sources whose data are only in Hyper.
HYPER = "hyper"
# The most jobs to list: ten pages.
_MOST_JOBS = 10_000
# The server's names for jobs that refresh, publish or update data, without "_".
_DATA_JOBS = frozenset({"refreshextracts", "incrementextracts", *job_list.KINDS})


class NotListableError(RefusedError):
    """The server does not list some objects; the message contains no names to hide in reports."""

    code = Code.SERVER


@dataclass(frozen=True, slots=True)
class ProjectItem:
    """A project: the LUIDs and names of all projects on its path, from the top visible project."""

    luids: tuple[str, ...]
    names: tuple[str, ...]

    @property
    def path(self) -> str:
        """Return the path, such as "Sales/Curated"."""
        return "/".join(self.names)


@dataclass(frozen=True, slots=True)
class ListedDatasource:
    """A data source, with the properties that the site's list of data sources shows.

    Attributes:
        owner: the name of the owner; "" if not listed.
        project_name: the name of the project; "" if not listed.
        source: the type of the connection, such as "postgres"; "" if not listed.
        has_extract: whether the data source is an extract of another source; None if not listed.
        is_encrypted: whether the extract is listed as encrypted.
    """

    remote: RemoteDatasource
    owner: str
    project_name: str
    source: str
    has_extract: bool | None
    is_encrypted: bool

    @property
    def is_hyper(self) -> bool:
        """Whether the list says that the data are only in Hyper, without another source."""
        return self.source == HYPER and not self.has_extract


@dataclass(frozen=True, slots=True)
class ConnectionInfo:
    """A connection of a data source, with its type, such as "postgres", but without its address."""

    source: str
    has_password: bool


@dataclass(frozen=True, slots=True)
class RevisionInfo:
    """A revision; `at` is the time when it was made, or None if the server reports no time."""

    number: int
    at: datetime | None


@dataclass(frozen=True, slots=True)
class JobTimes:
    """The number of finished jobs with the same title, and their total time in minutes."""

    jobs: int
    minutes: float


def datasources(site: TableauSite) -> Sequence[ListedDatasource]:
    """Return the data sources of the site that this user may see."""

    def listed() -> Sequence[ListedDatasource]:
        # Request all fields, because lists otherwise lack sizes. Remove duplicates: an item may be
        # on two pages if the site changes between requests.
        items = rest.iterate(site.tsc.datasources, rest.all_fields())
        return [_listed(site, item) for item in {str(item.id): item for item in items}.values()]

    return site.ask("Listing the data sources", listed)


def _listed(site: TableauSite, item: TSC.DatasourceItem) -> ListedDatasource:
    return ListedDatasource(
        remote=rest.remote_datasource(site.tsc, item, revision=False),
        # Older versions of TSC do not read the owner's name.
        owner=getattr(getattr(item, "owner", None), "name", None) or "",
        project_name=item.project_name or "",
        source=item.datasource_type or "",
        has_extract=item.has_extracts,
        is_encrypted=str(item.encrypt_extracts).casefold() == "true",
    )


def projects(site: TableauSite) -> Mapping[str, ProjectItem]:
    """Return the projects that this user may see; the keys are LUIDs."""
    items = site.ask("Listing the projects", lambda: list(rest.iterate(site.tsc.projects)))
    by_luid = {str(item.id): item for item in items}

    def project(luid: str) -> ProjectItem:
        luids: list[str] = []
        # Stop at a repeated LUID, because the loop would never end if a project were its own
        # ancestor.
        while luid in by_luid and luid not in luids:
            luids.insert(0, luid)
            luid = str(by_luid[luid].parent_id)
        return ProjectItem(tuple(luids), tuple(str(by_luid[ancestor].name) for ancestor in luids))

    return {luid: project(luid) for luid in by_luid}


def connections(site: TableauSite, luid: str) -> Sequence[ConnectionInfo]:
    """Return the connections of the data source with this LUID."""

    def listed() -> Sequence[ConnectionInfo]:
        endpoint, names = site.tsc.datasources, site.tsc.namespace
        answer = endpoint.get_request(f"{endpoint.baseurl}/{luid}/connections").content
        items = TSC.ConnectionItem.from_response(answer, names)
        return [
            ConnectionInfo(item.connection_type or "", bool(item.embed_password)) for item in items
        ]

    return site.ask("Listing its connections", listed)


def revisions(site: TableauSite, luid: str) -> Sequence[RevisionInfo]:
    """Return the revisions of a data source, except deleted ones; the current revision is last.

    Raises:
        RefusedError: the site keeps no revisions, or this user may not see them.
    """

    def listed() -> Sequence[RevisionInfo]:
        items = rest.list_revisions(site.tsc, luid)
        return [
            RevisionInfo(rest.revision_number(item), item.created_at)
            for item in items
            if not item.deleted
        ]

    return site.ask("Listing its revisions", listed)


def row_count(site: TableauSite, luid: str) -> Mapping[str, int]:
    """Let the server count the rows of a data source; return the number of rows of each table.

    Raises:
        NoServiceError: the server cannot count the rows of any data source.
        RefusedError: the server cannot count these rows, or this user may not ask for the count.
    """
    if not site.may_count:
        raise counts.NoServiceError("the session has no right to let the server count")

    def count() -> Mapping[str, int]:
        try:
            return counts.count_all(site.tsc, luid)
        except (BudgetSpentError, counts.NoServiceError):
            raise
        except RefreshError as error:
            # The service has answered, so the error concerns only this data source.
            raise RefusedError(str(error), code=Code.SERVER) from error

    return site.ask("Counting its rows", count)


def job_times(site: TableauSite, *, days: int) -> Mapping[str, JobTimes]:
    """Return how long jobs that refreshed or changed data ran in the last `days` days.

    The keys are the case-folded titles of the jobs.

    Raises:
        NotListableError: this user may not list jobs (usually, only administrators may), there are
            too many jobs, or a job has no title.
    """
    since = site.now() - timedelta(days=days)
    listed = None
    # Catch SignInError, too: if a connected app may not list jobs, the server answers that the
    # session has ended.
    with suppress(RefusedError, SignInError):
        ask = partial(job_list.list_jobs, site.tsc, since, most=_MOST_JOBS)
        listed = site.ask("Listing the jobs of the site", ask)
    if listed is None:
        raise NotListableError("only administrators may list jobs")
    if len(listed) == _MOST_JOBS:
        raise NotListableError(f"there are more than {_MOST_JOBS:,}, too many to list")
    jobs = [job for job in listed if (job.type or "").replace("_", "").casefold() in _DATA_JOBS]
    if not all(job.title for job in jobs):
        raise NotListableError("this server lists jobs without their titles")
    spans: dict[str, list[float]] = defaultdict(list)
    for job in jobs:
        if job.started_at and job.ended_at:
            span = (job.ended_at - job.started_at).total_seconds()
            spans[str(job.title).casefold()].append(max(0, span))
    return {title: JobTimes(len(seconds), sum(seconds) / 60) for title, seconds in spans.items()}
