"""Assess all published data sources of a site, of every owner, and write nothing.

An assessment never exceeds its limit of requests. It lists each fact that it could not find out.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeVar

from tableau_pipeline.components.assessment import (
    AssessedDatasource,
    Assessment,
    DatasourceKind,
    RevisionComparison,
)
from tableau_pipeline.components.pseudonyms import Names
from tableau_pipeline.errors import BudgetSpentError, RefreshError, RefusedError
from tableau_pipeline.hyper.process import Hyperd
from tableau_pipeline.outcome import Code
from tableau_pipeline.publishing import inventory
from tableau_pipeline.publishing.access_checks import PUBLISHERS
from tableau_pipeline.publishing.counts import NoServiceError
from tableau_pipeline.publishing.errors import SignInError
from tableau_pipeline.publishing.inventory import (
    JobTimes,
    ListedDatasource,
    NotListableError,
    ProjectItem,
    RevisionInfo,
)
from tableau_pipeline.publishing.rest import RefreshTask
from tableau_pipeline.publishing.revisions import IncomparableError, changed_rows
from tableau_pipeline.publishing.site import TableauSite

_T = TypeVar("_T")

# The assessment asks for the jobs of this many days.
JOB_DAYS = 7
# If the server fails to report a fact this many times in a row, do not ask for the fact again.
_MOST_FAILURES = 3
# A megabyte in Tableau's REST API has 2^20 bytes.
_MEGABYTE = 2**20
# The error code of a download for which the user lacks the capability.
_FORBIDDEN = re.compile(r"failed: 403\d{3}\b")

# A function that shows the current step, and the share that is done. An unknown share is None.
ShowProgress = Callable[[str, float | None], None]


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of an assessment.

    Attributes:
        requests: the most requests to the server, including sign-in and sign-out.
        sample: the number of data sources of which to download and compare two revisions.
        megabytes: the largest data source to download, in units of 2^20 bytes.
        count_rows: whether the server counts rows, which takes two or more requests for each data
            source.
    """

    requests: int = 500
    sample: int = 0
    megabytes: int = 100
    count_rows: bool = True


# These errors show that the server answered. All other errors count as failures of the server.
_ANSWERS = (RefusedError, SignInError, NoServiceError, ValueError)


@dataclass(slots=True)
class _Facts:
    """Asks a server for facts. If a fact stays unknown, records the reason, and raises no error.

    Attributes:
        failures: for each fact, how many times in a row the server failed to report it.
        unknown: for each unknown fact, the reason.
        is_complete: false if the requests were used up, or the server failed, before every fact was
            looked at.
    """

    names: Names
    failures: Counter[str]
    unknown: dict[str, str] = field(default_factory=dict)
    is_complete: bool = True

    def ask(self, name: str, question: Callable[[], _T]) -> _T | None:
        """Return the answer to a question. Without an answer, record the reason and return None."""
        reason, has_answered = f"the server failed {_MOST_FAILURES} times in a row", False
        if self.failures[name] < _MOST_FAILURES:
            try:
                answer = question()
            except BudgetSpentError as error:
                reason = str(error)
            except (OSError, RefreshError, ValueError) as error:
                is_plain = isinstance(error, NotListableError | IncomparableError)
                self.unknown[name] = str(error) if is_plain else self.names.reason(str(error))
                has_answered = isinstance(error, _ANSWERS)
                self.failures[name] = 0 if has_answered else self.failures[name] + 1
            else:
                self.failures[name] = 0
                return answer
        self.unknown.setdefault(name, f"not looked at: {reason}")
        self.is_complete &= has_answered
        return None


@dataclass(slots=True)
class _Look:
    """Assesses single data sources, given the facts about the whole site.

    Attributes:
        tasks: maps the LUID of a data source to its refresh tasks; None if this user may not list
            tasks.
        jobs: maps the casefolded name of a data source to the times of its jobs; None if this user
            may not list jobs.
        sees_all_tasks: whether `tasks` include the tasks of other users' data sources.
        repeated: the casefolded names that several data sources of the site share.
        failures: for each fact, how many times in a row the server failed to report it.
        no_counts: why the server counts no rows at all; "" if it may count rows.
        revisions: maps the LUID of each data source assessed so far to its revisions.
    """

    site: TableauSite
    names: Names
    limits: Limits
    tasks: Mapping[str, Sequence[RefreshTask]] | None
    jobs: Mapping[str, JobTimes] | None
    sees_all_tasks: bool
    repeated: frozenset[str]
    failures: Counter[str]
    no_counts: str = ""
    revisions: dict[str, Sequence[RevisionInfo]] = field(default_factory=dict)

    def at(self, listed: ListedDatasource, *, project: str, owner: str) -> AssessedDatasource:
        """Assess a data source, but do not compare its revisions yet."""
        remote, facts = listed.remote, _Facts(self.names, self.failures)
        luid, link = self.names.place(remote)
        assessed = AssessedDatasource(
            luid=luid,
            name=self.names.datasource(remote),
            project=project,
            owner=owner,
            updated_at=remote.updated_at,
            megabytes=remote.megabytes,
            is_own=remote.owner_id == self.site.user_id,
            link=link,
            pipelines=tuple(self.names.text("pipeline", key) for key in sorted(remote.keys)),
            is_encrypted=listed.is_encrypted,
        )
        assessed = replace(assessed, tasks=self._tasks(assessed, remote.luid, facts))
        assessed = replace(assessed, jobs=self._jobs(remote.name, facts))
        assessed = self._with_details(assessed, listed, facts)
        return replace(assessed, unknown=facts.unknown, is_complete=facts.is_complete)

    def _tasks(
        self, found: AssessedDatasource, luid: str, facts: _Facts
    ) -> Sequence[RefreshTask] | None:
        if self.tasks is None:
            return None
        own = self.tasks.get(luid, ())
        if own or self.sees_all_tasks or found.is_own:
            return self.names.tasks(own)
        facts.unknown["tasks"] = "only administrators see other users' tasks"
        return None

    def _jobs(self, name: str, facts: _Facts) -> JobTimes | None:
        if self.jobs is None:
            return None
        if name.casefold() in self.repeated:
            facts.unknown["jobs"] = "jobs show only a name, and several data sources have this name"
            return None
        return self.jobs.get(name.casefold(), JobTimes(0, 0.0))

    def _with_details(
        self, found: AssessedDatasource, listed: ListedDatasource, facts: _Facts
    ) -> AssessedDatasource:
        """Add the facts that take requests of their own: kind, revisions and rows."""
        luid, kind = listed.remote.luid, DatasourceKind.HYPER
        sources, has_password = set[str](), False
        if not listed.is_hyper:
            connected = facts.ask("kind", partial(inventory.connections, self.site, luid)) or ()
            has_password = any(connection.has_password for connection in connected)
            # If the connections are unknown, use the list of data sources, which names the type of
            # one connection.
            sources = {connection.source for connection in connected} or {listed.source}
            sources -= {"", inventory.HYPER}
            if sources or not connected:
                kinds = {True: DatasourceKind.EXTRACT, False: DatasourceKind.LIVE}
                kind = kinds.get(listed.has_extract, DatasourceKind.UNKNOWN)
        found = replace(found, kind=kind, sources=tuple(sorted(sources)), has_password=has_password)
        if kind is DatasourceKind.LIVE:
            return found
        revisions = facts.ask("revisions", partial(inventory.revisions, self.site, luid))
        if revisions is not None:
            self.revisions[luid] = revisions
            found = replace(found, revisions=len(revisions))
        return replace(found, rows=self._rows(luid, facts))

    def _rows(self, luid: str, facts: _Facts) -> Mapping[str, int] | None:
        if not self.limits.count_rows or self.no_counts:
            return None

        def count() -> Mapping[str, int]:
            try:
                return inventory.row_count(self.site, luid)
            except NoServiceError as error:
                # The server lacks the service that counts rows, so do not ask for other rows.
                self.no_counts = self.names.reason(str(error))
                raise

        counted = facts.ask("rows", count)
        return None if counted is None else self.names.rows(counted)

    def not_compared(
        self, found: AssessedDatasource, revisions: Sequence[RevisionInfo] | None
    ) -> str:
        """Return why the revisions of a data source cannot be compared; "" without an obstacle."""
        if found.kind is DatasourceKind.LIVE:
            return "it has no extract"
        if revisions is None:
            return "its revisions are not known"
        if len(revisions) < 2:
            return "it has no earlier revision"
        if found.megabytes is None:
            return "its size is not known"
        if found.megabytes > self.limits.megabytes:
            return f"it has {found.megabytes:,} MB, more than --max-mb {self.limits.megabytes}"
        return ""

    def compared(
        self, found: AssessedDatasource, luid: str, hyper: Callable[[], Hyperd]
    ) -> AssessedDatasource:
        """Download and compare the last two revisions of a data source."""
        earlier, facts = self.revisions[luid][-2], _Facts(self.names, self.failures)
        refused: list[str] = []

        def compare() -> RevisionComparison:
            # Allow twice the listed size, which is rounded, and may be the size of the packed or of
            # the unpacked file.
            limit = 2 * ((found.megabytes or 0) + 1) * _MEGABYTE
            try:
                changes = changed_rows(
                    self.site, hyper(), luid, revision=earlier.number, limit=limit
                )
            except RefusedError as error:
                refused.extend(_FORBIDDEN.findall(str(error)))
                raise
            if not changes.rows:
                raise IncomparableError("it has no rows")
            return RevisionComparison(changes, earlier.number, earlier.at, found.updated_at)

        result = facts.ask("compared", compare)
        unknown = {**found.unknown, **facts.unknown}
        if refused:
            unknown["download"] = unknown["compared"]
        complete = found.is_complete and facts.is_complete
        return replace(found, compared=result, unknown=unknown, is_complete=complete)


def assess(
    site: TableauSite,
    hyper: Callable[[], Hyperd],
    *,
    project: str | None,
    limits: Limits,
    names: Names,
    tell: ShowProgress,
) -> Assessment:
    """Assess the data sources of a site, or of a project and the projects below it.

    Args:
        hyper: a function that starts hyperd; only comparisons call it.

    Raises:
        RefusedError: the project does not exist, or this user may not see it.
        RefreshError: the server's lists cannot be read, or take more requests than the limit.
    """
    site.budget.most = limits.requests
    tell("Listing the data sources", None)
    (user, role), projects, everywhere = _lists(site)
    listed = [*_in_project(project, everywhere, projects)]
    listed.sort(
        key=lambda item: (-(item.remote.megabytes or 0), names.datasource(item.remote).casefold())
    )
    whole = _Facts(names, Counter())
    look = _site_look(site, limits, everywhere, whole, sees_all_tasks="Administrator" in role)
    owner, assessed = _owner_names(site, whole), list[AssessedDatasource]()
    for number, datasource in enumerate(listed):
        tell(names.datasource(datasource.remote), number / len(listed))
        luid = datasource.remote.project_id
        path = names.project(luid, projects.get(luid), datasource.project_name)
        assessed.append(look.at(datasource, project=path, owner=owner(datasource)))
    luids = (item.remote.luid for item in listed)
    compared = [*_with_comparisons(look, zip(assessed, luids, strict=True), hyper, tell)]
    if look.no_counts:
        whole.unknown["rows"] = look.no_counts
    return Assessment(
        url=names.text("server", site.url),
        site=names.text("site", site.site),
        version=str(site.tsc.version),
        user=names.user(site.user_id, user),
        role=role,
        may_publish=bool(PUBLISHERS.fullmatch(role or "Creator")),
        takes_updates=site.payload_limit > 0,
        datasources=compared,
        unknown=whole.unknown,
        is_complete=whole.is_complete and all(item.is_complete for item in compared),
    )


def _lists(
    site: TableauSite,
) -> tuple[tuple[str, str], Mapping[str, ProjectItem], Sequence[ListedDatasource]]:
    """Return the name and role of the user, the projects by LUID, and the data sources."""
    try:
        return site.user(), inventory.projects(site), inventory.datasources(site)
    except BudgetSpentError as error:
        raise BudgetSpentError(
            f"The lists of this site take more requests: {error}. Raise --max-requests"
        ) from error


def _site_look(
    site: TableauSite,
    limits: Limits,
    everywhere: Sequence[ListedDatasource],
    whole: _Facts,
    *,
    sees_all_tasks: bool,
) -> _Look:
    """Ask for the site's refresh tasks and jobs; return the object that assesses data sources."""
    tasks = whole.ask("tasks", site.refresh_tasks)
    jobs = whole.ask("jobs", partial(inventory.job_times, site, days=JOB_DAYS))
    if tasks is None:
        whole.unknown.setdefault("tasks", "this user may not list refresh tasks")
    counted = Counter(datasource.remote.name.casefold() for datasource in everywhere)
    repeated = frozenset(name for name, count in counted.items() if count > 1)
    return _Look(site, whole.names, limits, tasks, jobs, sees_all_tasks, repeated, whole.failures)


def _owner_names(site: TableauSite, whole: _Facts) -> Callable[[ListedDatasource], str]:
    """Return a function that names a data source's owner, and asks at most once for an owner."""
    shown: dict[str, str] = {}

    def owner(listed: ListedDatasource) -> str:
        luid = listed.remote.owner_id
        if luid not in shown:
            # The server's list of data sources names only some owners.
            name = listed.owner or (whole.ask("owner", partial(site.user, luid)) or ("",))[0]
            shown[luid] = whole.names.user(luid, name)
        return shown[luid]

    return owner


def _in_project(
    project: str | None,
    found: Sequence[ListedDatasource],
    projects: Mapping[str, ProjectItem],
) -> Sequence[ListedDatasource]:
    """Return the data sources in a project and below it; all data sources if `project` is None."""
    if project is None:
        return found
    top = "/".join(part.strip() for part in project.split("/")).casefold()
    paths = {luid: f"{item.path.casefold()}/" for luid, item in projects.items()}
    inside = {luid for luid, path in paths.items() if path.startswith(f"{top}/")}
    if not inside:
        raise RefusedError(
            f'Project "{project}": there is none on the site, or this user may not see it. A path '
            "begins at the top, such as Sales/Curated",
            code=Code.NOT_ON_SITE,
        )
    return [datasource for datasource in found if datasource.remote.project_id in inside]


def _with_comparisons(
    look: _Look,
    assessed: Iterator[tuple[AssessedDatasource, str]],
    hyper: Callable[[], Hyperd],
    tell: ShowProgress,
) -> Iterator[AssessedDatasource]:
    """Yield the data sources; compare revisions until `limits.sample` comparisons succeeded."""
    compared, most = 0, look.limits.sample
    for datasource, luid in assessed:
        reason = look.not_compared(datasource, look.revisions.get(luid))
        if not reason and compared >= most:
            none = "no revisions were compared: --sample N compares some"
            reason = f"it is not one of the {most} that were compared" if most else none
        if reason:
            yield replace(datasource, unknown={**datasource.unknown, "compared": reason})
            continue
        tell(f"{datasource.name}: comparing two revisions", compared / most)
        result = look.compared(datasource, luid, hyper)
        compared += result.compared is not None
        yield result
