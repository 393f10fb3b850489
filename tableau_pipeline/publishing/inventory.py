"""List what a site has: its data sources, projects, connections, revisions and jobs. Only reads."""

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

# The type that Tableau gives what is in Hyper alone.
HYPER = "hyper"
# Jobs that are listed at most: ten pages.
_MOST_JOBS = 10_000
# The words of jobs that refresh, publish or update, without "_".
_WORK = frozenset({"refreshextracts", "incrementextracts", *job_list.KINDS})


class NotListableError(RefusedError):
    """The server does not tell something; the message names nothing that is on the site."""

    code = Code.SERVER


@dataclass(frozen=True, slots=True)
class ProjectItem:
    """A project: the LUIDs and the names on its path, from the top as far as they may be seen."""

    luids: tuple[str, ...]
    names: tuple[str, ...]

    @property
    def path(self) -> str:
        """Such as "Sales/Curated"."""
        return "/".join(self.names)


@dataclass(frozen=True, slots=True)
class ListedDatasource:
    """A data source as the list of a site has it.

    Attributes:
        owner: the name of its owner; "" if the list does not tell.
        project_name: of the project that it is in; "" if the list does not tell.
        source: the type of its connection, such as "postgres"; "" if the list does not tell.
        has_extract: whether it is an extract of something else; None if the list does not tell.
        is_encrypted: whether its extract is said to be encrypted.
    """

    remote: RemoteDatasource
    owner: str
    project_name: str
    source: str
    has_extract: bool | None
    is_encrypted: bool

    @property
    def is_hyper(self) -> bool:
        """Whether it has its data in Hyper, as far as the list tells, and comes from nowhere."""
        return self.source == HYPER and not self.has_extract


@dataclass(frozen=True, slots=True)
class ConnectionInfo:
    """A connection of a data source: its type, such as "postgres", without its address."""

    source: str
    has_password: bool


@dataclass(frozen=True, slots=True)
class RevisionInfo:
    """A revision; `at` is None if the server tells no time."""

    number: int
    at: datetime | None


@dataclass(frozen=True, slots=True)
class JobTimes:
    """The jobs of a name that have ended: their number, and the minutes that they ran in all."""

    jobs: int
    minutes: float


def datasources(site: TableauSite) -> Sequence[ListedDatasource]:
    """Return the data sources of the site that this user may see."""

    def listed() -> Sequence[ListedDatasource]:
        # Their sizes are none of the fields that lists have by themselves. A change of the site
        # meanwhile may put an item on two pages.
        items = rest.every(site.tsc.datasources, rest.all_fields())
        return [_listed(site, each) for each in {str(e.id): e for e in items}.values()]

    return site.ask("Listing the data sources", listed)


def _listed(site: TableauSite, item: TSC.DatasourceItem) -> ListedDatasource:
    return ListedDatasource(
        remote=rest.remote_datasource(site.tsc, item, revision=False),
        # Older clients do not read who it is.
        owner=getattr(getattr(item, "owner", None), "name", None) or "",
        project_name=item.project_name or "",
        source=item.datasource_type or "",
        has_extract=item.has_extracts,
        is_encrypted=str(item.encrypt_extracts).casefold() == "true",
    )


def projects(site: TableauSite) -> Mapping[str, ProjectItem]:
    """Return the projects that this user may see, by LUID."""
    items = site.ask("Listing the projects", lambda: list(rest.every(site.tsc.projects)))
    known = {str(each.id): each for each in items}

    def project(luid: str) -> ProjectItem:
        luids: list[str] = []
        # A server that names a project its own parent would be asked for ever.
        while luid in known and luid not in luids:
            luids.insert(0, luid)
            luid = str(known[luid].parent_id)
        return ProjectItem(tuple(luids), tuple(str(known[each].name) for each in luids))

    return {luid: project(luid) for luid in known}


def connections(site: TableauSite, luid: str) -> Sequence[ConnectionInfo]:
    """Return the connections of a data source, by its LUID."""

    def listed() -> Sequence[ConnectionInfo]:
        endpoint, names = site.tsc.datasources, site.tsc.namespace
        answer = endpoint.get_request(f"{endpoint.baseurl}/{luid}/connections").content
        items = TSC.ConnectionItem.from_response(answer, names)
        return [ConnectionInfo(e.connection_type or "", bool(e.embed_password)) for e in items]

    return site.ask("Listing its connections", listed)


def revisions(site: TableauSite, luid: str) -> Sequence[RevisionInfo]:
    """Return the revisions of a data source that were not deleted, the current one last.

    Raises:
        RefusedError: the site keeps none, or this user may not see them.
    """

    def listed() -> Sequence[RevisionInfo]:
        found = rest.list_revisions(site.tsc, luid)
        return [RevisionInfo(rest.revision_number(e), e.created_at) for e in found if not e.deleted]

    return site.ask("Listing its revisions", listed)


def row_count(site: TableauSite, luid: str) -> Mapping[str, int]:
    """Let the server count the rows of all tables of a data source, by table.

    Raises:
        NoServiceError: it cannot count in any data source.
        RefusedError: it cannot count in this one, or does not let this user ask.
    """
    if not site.may_count:
        raise counts.NoServiceError("the session has no right to let the server count")

    def count() -> Mapping[str, int]:
        try:
            return counts.count_all(site.tsc, luid)
        except (BudgetSpentError, counts.NoServiceError):
            raise
        except RefreshError as error:
            # The service is well: it has answered.
            raise RefusedError(str(error), code=Code.SERVER) from error

    return site.ask("Counting its rows", count)


def job_times(site: TableauSite, *, days: int) -> Mapping[str, JobTimes]:
    """Return the jobs of the last days that worked on data, by their titles without case.

    Raises:
        NotListableError: this user may not list jobs, as usually only administrators may; or
            there are too many, or they have no titles.
    """
    since = site.now() - timedelta(days=days)
    listed = None
    # A connected app without the right to list jobs is told that its session has ended.
    with suppress(RefusedError, SignInError):
        ask = partial(job_list.listed, site.tsc, since, most=_MOST_JOBS)
        listed = site.ask("Listing the jobs of the site", ask)
    if listed is None:
        raise NotListableError("only administrators may list jobs")
    if len(listed) == _MOST_JOBS:
        raise NotListableError(f"there are more than {_MOST_JOBS:,}, too many to list")
    work = [e for e in listed if (e.type or "").replace("_", "").casefold() in _WORK]
    if not all(each.title for each in work):
        raise NotListableError("this server lists jobs without their titles")
    spans: dict[str, list[float]] = defaultdict(list)
    for each in work:
        if each.started_at and each.ended_at:
            seconds = (each.ended_at - each.started_at).total_seconds()
            spans[str(each.title).casefold()].append(max(0, seconds))
    return {title: JobTimes(len(e), sum(e) / 60) for title, e in spans.items()}
