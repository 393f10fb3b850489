"""Look at the published extracts of a site, within a number of requests."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property, partial

import tableauserverclient as TSC

from tableau_pipeline.assess.revisions import Difference, difference, revisions_of
from tableau_pipeline.core.declaration import TAG_PREFIX
from tableau_pipeline.errors import RefreshError, RefusedError
from tableau_pipeline.hyper.process import Hyperd
from tableau_pipeline.hyper.types import EXTRACT_SCHEMA
from tableau_pipeline.publishing import job_list, rest
from tableau_pipeline.publishing.rest import RefreshTask
from tableau_pipeline.publishing.site import TableauSite

# The requests that signing out and one more look may take.
_RESERVE = 8
_EPOCH = datetime(2000, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Extract:
    """A published data source with rows of its own.

    Attributes:
        project: the path of its project; the name alone if those above cannot be seen.
        tasks: that refresh it in Tableau; None if this user may not list them.
        jobs: how many jobs of its name are listed; None if this user may not list them, or several
            data sources have the name.
        job_minutes: what they took.
        rows: None if the server does not count them for this user.
        source: the class of the database that it is an extract of, such as "postgres"; None if
            its data are in Hyper alone.
        revisions: None if the site lists none to this user.
        difference: of its last two revisions; None if they were not compared.
        blockers: what stands in the way of a take-over, or of updates.
        unknown: what could not be looked at, and why.
    """

    luid: str
    name: str
    project: str
    owner: str
    megabytes: int | None
    updated_at: datetime | None
    tasks: Sequence[RefreshTask] | None
    jobs: int | None
    job_minutes: float | None
    rows: int | None = None
    tables: Sequence[str] = ()
    source: str | None = None
    revisions: int | None = None
    difference: Difference | None = None
    blockers: Sequence[str] = ()
    unknown: Sequence[str] = ()

    @property
    def saving(self) -> float | None:
        """The share of its size that each refresh would save; None if that is not known."""
        return max(1 - self.difference.share, 0.0) if self.difference else None


@dataclass(frozen=True, slots=True)
class Assessment:
    """What a site has.

    Attributes:
        live: the number of data sources without rows of their own, which are left out.
        requests: how many it took.
        names: of projects and users, by a token for each.
    """

    extracts: Sequence[Extract]
    live: int
    requests: int
    release: str
    names: Mapping[str, str] = field(default_factory=dict)


@dataclass
class Assessor:
    """Looks at the extracts of a site.

    Attributes:
        project: the path of a project, with those below it; "" for all of the site.
        most_requests: the number of requests, at most.
        sample: how many data sources are downloaded, to compare their last two revisions.
        largest: megabytes of a file that is downloaded.
        hyper: starts hyperd; it is called if files are compared.
        tell: called with what is being done, and the share of it that is done.
    """

    site: TableauSite
    hyper: Callable[[], Hyperd]
    project: str
    most_requests: int
    sample: int
    largest: int
    tell: Callable[[str, float], None]

    def assess(self) -> Assessment:
        """Look at all of it.

        Raises:
            RefreshError: the site does not list its data sources.
        """
        self.tell("listing data sources", 0)
        items = [item for item in self._items if self._is_wanted(item)]
        listed = [self._listed(item, items) for item in items]
        # The largest ones first, as they matter most if the requests do not suffice.
        order = sorted(range(len(items)), key=lambda n: -(listed[n].megabytes or 0))
        found: dict[int, Extract | None] = {}
        for done, number in enumerate(order):
            self.tell(listed[number].name, done / len(order))
            found[number] = self._looked(items[number], listed[number])
        extracts = {number: extract for number, extract in found.items() if extract}
        self._compare(items, extracts)
        shown = sorted(extracts.values(), key=lambda e: (-(e.megabytes or 0), e.name.casefold()))
        names = {**self._projects, **self._owners}
        live = len(items) - len(extracts)
        # One more signs out.
        requests = self.site.tally.requests + 1
        return Assessment(shown, live, requests, self.site.release, names)

    def _left(self) -> int:
        return self.most_requests - self.site.tally.requests - _RESERVE

    @cached_property
    def _items(self) -> Sequence[TSC.DatasourceItem]:
        tsc = self.site.tsc
        every = partial(rest.every, tsc.datasources, rest.all_fields())
        found = self.site.ask("Listing the data sources", lambda: [*every()])
        # A change of the site may put an item on two pages.
        return [*{str(each.id): each for each in found}.values()]

    @cached_property
    def _projects(self) -> Mapping[str, str]:
        """The paths of projects, by LUID."""
        tsc = self.site.tsc
        listed = self.site.ask("Listing the projects", lambda: [*rest.every(tsc.projects)])
        items = {str(each.id): each for each in listed}

        def path(luid: str) -> str:
            item, above = items[luid], items[luid].parent_id
            return f"{path(above)}/{item.name}" if above in items else str(item.name)

        return {luid: path(luid) for luid in items}

    @cached_property
    def _owners(self) -> dict[str, str]:
        return {}

    def _owner(self, luid: str) -> str:
        if luid not in self._owners:
            self._owners[luid] = self.site.user(luid)[0] if self._left() > 0 else luid
        return self._owners[luid]

    @cached_property
    def _tasks(self) -> Mapping[str, Sequence[RefreshTask]] | None:
        return self.site.refresh_tasks()

    @cached_property
    def _jobs(self) -> Mapping[str, Sequence[TSC.BackgroundJobItem]] | None:
        """The listed jobs by the name of their data source."""
        list_jobs = partial(job_list.listed, self.site.tsc, _EPOCH)
        try:
            listed = self.site.ask("Listing the jobs", list_jobs)
        except RefreshError:
            return None
        found = defaultdict(list)
        for each in listed or ():
            found[(each.title or "").casefold()].append(each)
        return None if listed is None else found

    def _is_wanted(self, item: TSC.DatasourceItem) -> bool:
        path = self._projects.get(str(item.project_id), str(item.project_name))
        return not self.project or f"{path}/".startswith(f"{self.project}/")

    def _listed(self, item: TSC.DatasourceItem, items: Sequence[TSC.DatasourceItem]) -> Extract:
        """What lists tell of a data source."""
        luid, name = str(item.id), str(item.name)
        is_unique = sum(rest.same_name(each.name, name) for each in items) == 1
        jobs = self._jobs.get(name.casefold(), ()) if self._jobs is not None and is_unique else None
        seconds = [
            (job.ended_at - job.started_at).total_seconds()
            for job in jobs or ()
            if job.started_at and job.ended_at
        ]
        return Extract(
            luid=luid,
            name=name,
            project=self._projects.get(str(item.project_id), str(item.project_name)),
            owner=self._owner(str(item.owner_id)),
            megabytes=item.size,
            updated_at=item.updated_at,
            tasks=None if self._tasks is None else self._tasks.get(luid, ()),
            jobs=None if jobs is None else len(seconds),
            job_minutes=None if jobs is None else sum(seconds) / 60,
        )

    def _looked(self, item: TSC.DatasourceItem, extract: Extract) -> Extract | None:
        """The same with what its own requests tell; None if it has no rows of its own."""
        if self._left() <= 0:
            why = f"the budget of {self.most_requests} requests is used up"
            return replace(extract, unknown=(f"not looked at: {why}",))
        site, unknown, metadata, may_download = self.site, [], None, True
        try:
            metadata = site.metadata(extract.luid)
        except RefusedError:
            may_download = False
        except RefreshError as error:
            unknown.append(f"its metadata: {error}")
        source = metadata.source if metadata else None
        if source and item.has_extracts is False:
            return None
        tables = sorted({table for table, _ in (metadata.columns if metadata else None) or ()})
        found = replace(extract, source=source, tables=tables)
        try:
            revisions = revisions_of(site, item)
            found = replace(found, revisions=None if revisions is None else len(revisions))
        except RefreshError as error:
            unknown.append(f"its revisions: {error}")
        try:
            if tables or not may_download:
                # A single table is counted under any name.
                counted = site.count(extract.luid, dict.fromkeys(tables or [EXTRACT_SCHEMA]))
                found = replace(found, rows=sum(counted.values()))
        except RefreshError as error:
            unknown.append(f"its rows: {error}")
        blockers = (*self._blockers(item, found, may_download=may_download),)
        return replace(found, blockers=blockers, unknown=tuple(unknown))

    def _blockers(
        self, item: TSC.DatasourceItem, extract: Extract, *, may_download: bool
    ) -> Iterator[str]:
        if not may_download:
            yield "this user may not download it: give it Download/Save A Copy, or its ownership"
        if extract.source:
            yield (
                f"an extract of {extract.source}: a publish drops embedded credentials, its tasks "
                "are to be deleted, and each change is a full publish until its metadata are "
                "replaced once"
            )
        if any(tag.startswith(TAG_PREFIX) for tag in item.tags or ()):
            yield "a pipeline publishes it already"
        if str(item.owner_id) != self.site.user_id:
            yield "another user owns it: updates are for owners; declare `owner`, or make it ours"
        if not self.site.payload_limit:
            yield "the server takes no updates: they came with Tableau 2021.3"

    def _compare(self, items: Sequence[TSC.DatasourceItem], extracts: dict[int, Extract]) -> None:
        """Compare the last two revisions of a sample, the largest ones that may be downloaded."""
        order = sorted(extracts, key=lambda n: -(extracts[n].megabytes or 0))
        may = [
            number
            for number in order
            if (extracts[number].revisions or 0) > 1
            and (extracts[number].megabytes or 0) <= self.largest
        ]
        for done, number in enumerate(may[: self.sample]):
            if self._left() <= 0:
                return
            extract, item = extracts[number], items[number]
            self.tell(f"comparing revisions of {extract.name}", done / self.sample)
            try:
                revisions = revisions_of(self.site, item) or []
                last = (revisions[-2], revisions[-1])
                found = difference(self.site, self.hyper(), item, last, most=self.largest + 1)
                extracts[number] = replace(extract, difference=found)
            except (RefreshError, ValueError) as error:
                unknown = (*extract.unknown, f"the change between revisions: {error}")
                extracts[number] = replace(extract, unknown=unknown)
