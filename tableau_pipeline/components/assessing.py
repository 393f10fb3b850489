"""Look at what others have published on a site. Nothing is written, there or here.

A look sends no more requests than it may: what it could not ask any more, it says.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeVar

from tableau_pipeline.components.assessment import Assessed, Assessment, Compared, DatasourceKind
from tableau_pipeline.components.naming import Names
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

# Jobs of so many days are asked for.
JOB_DAYS = 7
# If the server fails so many times in a row, it is not asked for that fact any more.
_PATIENCE = 3
# What the API calls a megabyte.
_MEGABYTE = 2**20
# Without the capability, a download is refused with such a code.
_FORBIDDEN = re.compile(r"failed: 403\d{3}\b")

# Called with what is looked at, and the share that is done; None if that is not known.
Tell = Callable[[str, float | None], None]


@dataclass(frozen=True, slots=True)
class Limits:
    """What a look may cost.

    Attributes:
        requests: to the server, with those to sign in and out.
        sample: data sources of which two revisions are downloaded and compared.
        megabytes: of a data source that is downloaded, in units of 2^20 bytes.
        count_rows: whether the server counts rows, by two requests or more for each data source.
    """

    requests: int = 500
    sample: int = 0
    megabytes: int = 100
    count_rows: bool = True


# Of errors, those that are answers.
_ANSWERS = (RefusedError, SignInError, NoServiceError, ValueError)


@dataclass(slots=True)
class _Facts:
    """What a server was asked; what it does not answer is a reason, and stops nothing else.

    Attributes:
        failures: how many times in a row it has failed, by what it was asked for.
        is_complete: whether nothing was left out for lack of requests or of answers.
    """

    names: Names
    failures: Counter[str]
    unknown: dict[str, str] = field(default_factory=dict)
    is_complete: bool = True

    def ask(self, name: str, question: Callable[[], _T]) -> _T | None:
        """Return the answer; None if there is none, and remember why."""
        why, has_answered = f"the server failed {_PATIENCE} times in a row", False
        if self.failures[name] < _PATIENCE:
            try:
                answer = question()
            except BudgetSpentError as error:
                why = str(error)
            except (OSError, RefreshError, ValueError) as error:
                is_plain = isinstance(error, NotListableError | IncomparableError)
                self.unknown[name] = str(error) if is_plain else self.names.reason(str(error))
                has_answered = isinstance(error, _ANSWERS)
                self.failures[name] = 0 if has_answered else self.failures[name] + 1
            else:
                self.failures[name] = 0
                return answer
        self.unknown.setdefault(name, f"not looked at: {why}")
        self.is_complete &= has_answered
        return None


@dataclass(slots=True)
class _Look:
    """What holds for all data sources of a site.

    Attributes:
        tasks: by the LUID of the data source; None if this user may not list them.
        jobs: by name without case; None if this user may not list them.
        sees_all_tasks: whether others' tasks are among them.
        repeated: the names without case that several data sources of the site have.
        failures: of the server in a row, by what it was asked for.
        no_counts: why the server counts no rows at all; "" if it may.
        revisions: of those that were asked for, by LUID.
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

    def at(self, listed: ListedDatasource, *, project: str, owner: str) -> Assessed:
        """Return what is known of a data source, without a comparison of revisions."""
        remote, facts = listed.remote, _Facts(self.names, self.failures)
        luid, link = self.names.place(remote)
        found = Assessed(
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
        found = replace(found, tasks=self._tasks(found, remote.luid, facts))
        found = replace(found, jobs=self._jobs(remote.name, facts))
        found = self._asked(found, listed, facts)
        return replace(found, unknown=facts.unknown, is_complete=facts.is_complete)

    def _tasks(self, found: Assessed, luid: str, facts: _Facts) -> Sequence[RefreshTask] | None:
        if self.tasks is None:
            return None
        own = self.tasks.get(luid, ())
        if own or self.sees_all_tasks or found.is_own:
            return self.names.tasks(own)
        facts.unknown["tasks"] = "only administrators see the tasks of what others own"
        return None

    def _jobs(self, name: str, facts: _Facts) -> JobTimes | None:
        if self.jobs is None:
            return None
        if name.casefold() in self.repeated:
            facts.unknown["jobs"] = "jobs have a name alone, and several data sources have this one"
            return None
        return self.jobs.get(name.casefold(), JobTimes(0, 0.0))

    def _asked(self, found: Assessed, listed: ListedDatasource, facts: _Facts) -> Assessed:
        """Ask what takes requests of its own."""
        luid, kind = listed.remote.luid, DatasourceKind.HYPER
        sources, has_password = set[str](), False
        if not listed.is_hyper:
            connected = facts.ask("kind", partial(inventory.connections, self.site, luid)) or ()
            has_password = any(each.has_password for each in connected)
            # Without its connections, the list still has the type of one.
            sources = {e.source for e in connected} or {listed.source}
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
                # It holds for all others.
                self.no_counts = self.names.reason(str(error))
                raise

        counted = facts.ask("rows", count)
        return None if counted is None else self.names.rows(counted)

    def not_compared(self, found: Assessed, revisions: Sequence[RevisionInfo] | None) -> str:
        """Return why no revisions of a data source can be compared; "" if they can."""
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

    def compared(self, found: Assessed, luid: str, hyper: Callable[[], Hyperd]) -> Assessed:
        """Download two revisions of a data source, and compare them."""
        earlier, facts = self.revisions[luid][-2], _Facts(self.names, self.failures)
        refused: list[str] = []

        def compare() -> Compared:
            # As for any download: sizes are rounded, and may be those of packed files or not.
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
            return Compared(changes, earlier.number, earlier.at, found.updated_at)

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
    tell: Tell,
) -> Assessment:
    """Look at the data sources of a site, or of a project and those below it.

    Args:
        hyper: starts hyperd, if revisions are to be compared.

    Raises:
        RefusedError: there is no such project, or this user may not see it.
        RefreshError: the lists cannot be read, or take more requests than there may be.
    """
    site.budget.most = limits.requests
    tell("Listing the data sources", None)
    (user, role), projects, everywhere = _lists(site)
    found = [*_within(project, everywhere, projects)]
    found.sort(key=lambda e: (-(e.remote.megabytes or 0), names.datasource(e.remote).casefold()))
    whole = _Facts(names, Counter())
    look = _look(site, limits, everywhere, whole, sees_all_tasks="Administrator" in role)
    owner, assessed = _owners(site, whole), list[Assessed]()
    for number, each in enumerate(found):
        tell(names.datasource(each.remote), number / len(found))
        luid = each.remote.project_id
        place = names.project(luid, projects.get(luid), each.project_name)
        assessed.append(look.at(each, project=place, owner=owner(each)))
    luids = (each.remote.luid for each in found)
    sampled = [*_sampled(look, zip(assessed, luids, strict=True), hyper, tell)]
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
        datasources=sampled,
        unknown=whole.unknown,
        is_complete=whole.is_complete and all(each.is_complete for each in sampled),
    )


def _lists(
    site: TableauSite,
) -> tuple[tuple[str, str], Mapping[str, ProjectItem], Sequence[ListedDatasource]]:
    """Name and role of the user, the projects, and the data sources."""
    try:
        return site.user(), inventory.projects(site), inventory.datasources(site)
    except BudgetSpentError as error:
        raise BudgetSpentError(
            f"The lists of this site take more requests: {error}. Raise --max-requests"
        ) from error


def _look(
    site: TableauSite,
    limits: Limits,
    everywhere: Sequence[ListedDatasource],
    whole: _Facts,
    *,
    sees_all_tasks: bool,
) -> _Look:
    """Ask for what one request tells of all data sources."""
    tasks = whole.ask("tasks", site.refresh_tasks)
    jobs = whole.ask("jobs", partial(inventory.job_times, site, days=JOB_DAYS))
    if tasks is None:
        whole.unknown.setdefault("tasks", "this user may not list refresh tasks")
    counted = Counter(each.remote.name.casefold() for each in everywhere)
    repeated = frozenset(name for name, number in counted.items() if number > 1)
    return _Look(site, whole.names, limits, tasks, jobs, sees_all_tasks, repeated, whole.failures)


def _owners(site: TableauSite, whole: _Facts) -> Callable[[ListedDatasource], str]:
    """A way to name the owner of a data source; who the list does not name is asked for once."""
    known: dict[str, str] = {}

    def owner(listed: ListedDatasource) -> str:
        luid = listed.remote.owner_id
        if luid not in known:
            name = listed.owner or (whole.ask("owner", partial(site.user, luid)) or ("",))[0]
            known[luid] = whole.names.user(luid, name)
        return known[luid]

    return owner


def _within(
    project: str | None,
    found: Sequence[ListedDatasource],
    projects: Mapping[str, ProjectItem],
) -> Sequence[ListedDatasource]:
    """Those in a project and below it."""
    if project is None:
        return found
    top = "/".join(part.strip() for part in project.split("/")).casefold()
    paths = {luid: f"{each.path.casefold()}/" for luid, each in projects.items()}
    inside = {luid for luid, path in paths.items() if path.startswith(f"{top}/")}
    if not inside:
        raise RefusedError(
            f'Project "{project}": there is none on the site, or this user may not see it. A path '
            "begins at the top, such as Sales/Curated",
            code=Code.NOT_ON_SITE,
        )
    return [each for each in found if each.remote.project_id in inside]


def _sampled(
    look: _Look,
    assessed: Iterator[tuple[Assessed, str]],
    hyper: Callable[[], Hyperd],
    tell: Tell,
) -> Iterator[Assessed]:
    """Compare the revisions of the largest ones, as many as there are to be."""
    compared, most = 0, look.limits.sample
    for each, luid in assessed:
        why = look.not_compared(each, look.revisions.get(luid))
        if not why and compared >= most:
            none = "no revisions were compared: --sample N compares some"
            why = f"it is none of the {most} that were compared" if most else none
        if why:
            yield replace(each, unknown={**each.unknown, "compared": why})
            continue
        tell(f"{each.name}: comparing two revisions", compared / most)
        result = look.compared(each, luid, hyper)
        compared += result.compared is not None
        yield result
