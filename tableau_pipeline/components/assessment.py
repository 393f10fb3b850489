"""The data types of an assessment: data sources, and obstacles to their adoption."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from tableau_pipeline.core.identity import TAG_PREFIX
from tableau_pipeline.publishing.inventory import JobTimes
from tableau_pipeline.publishing.rest import RefreshTask
from tableau_pipeline.publishing.revisions import ChangedRows


class DatasourceKind(StrEnum):
    """Where the rows are: in a Hyper file, in an extract of another source, or in a live source."""

    HYPER = "hyper"
    EXTRACT = "extract"
    LIVE = "live"
    UNKNOWN = "not known"


@dataclass(frozen=True, slots=True)
class RevisionComparison:
    """The comparison of an earlier revision of a data source with its current data.

    Attributes:
        found: the number of rows, and how many of them changed.
        revision: the number of the earlier revision.
        older: when the earlier revision was published; None if unknown.
        newer: when the data source was last updated.
    """

    found: ChangedRows
    revision: int
    older: datetime | None
    newer: datetime

    @property
    def share(self) -> float:
        """The share of rows that changed, at most 1."""
        return min(1.0, self.found.changed / self.found.rows)


@dataclass(frozen=True, slots=True)
class Obstacle:
    """An obstacle to an adoption, and its remedy."""

    text: str
    remedy: str


@dataclass(frozen=True, slots=True)
class AssessedDatasource:
    """A published data source.

    Attributes:
        luid, link: its id on the server and the address of its page; "" if they must not be shown.
        megabytes: its size in units of 2^20 bytes, rounded; None if the server does not report it.
        is_own: whether the current user owns the data source.
        sources: the types of its connections other than Hyper, such as "postgres".
        rows: the number of rows of each table; None if unknown.
        tasks: its refresh tasks in Tableau. `tasks`, `jobs` and `revisions` are None if unknown.
        jobs: its jobs of the last `JOB_DAYS` days.
        compared: the comparison of two revisions; None if no revisions were compared.
        pipelines: the asset keys in its tags, under which pipelines publish it.
        has_password: whether one of its connections has embedded credentials.
        unknown: maps the name of each unknown attribute to the reason.
        is_complete: false if the requests were used up, or the server failed, before every fact was
            looked at.
    """

    luid: str
    name: str
    project: str
    owner: str
    updated_at: datetime
    megabytes: int | None
    is_own: bool
    link: str = ""
    kind: DatasourceKind = DatasourceKind.UNKNOWN
    sources: tuple[str, ...] = ()
    rows: Mapping[str, int] | None = None
    tasks: Sequence[RefreshTask] | None = None
    jobs: JobTimes | None = None
    revisions: int | None = None
    compared: RevisionComparison | None = None
    pipelines: tuple[str, ...] = ()
    has_password: bool = False
    is_encrypted: bool = False
    unknown: Mapping[str, str] = field(default_factory=dict)
    is_complete: bool = True

    @property
    def saved_megabytes(self) -> float | None:
        """The megabytes that an update would save if as many rows change again; None if unknown."""
        if self.compared is None or self.megabytes is None:
            return None
        return self.megabytes * (1 - self.compared.share)

    @property
    def basis(self) -> str:
        """The basis of the estimate, or why there is no estimate."""
        if self.compared is None:
            return self.unknown.get("compared", "")
        older = f" of {self.compared.older:%Y-%m-%d}" if self.compared.older else ""
        return (
            f"revision {self.compared.revision}{older} and the data of "
            f"{self.compared.newer:%Y-%m-%d}: {self.compared.share:.1%} of "
            f"{self.compared.found.rows:,} rows differ"
        )

    def obstacles(self, *, takes_updates: bool) -> Iterator[Obstacle]:
        """Yield the known obstacles to an adoption.

        Args:
            takes_updates: whether the server accepts updates of data at all.
        """
        sources = ", ".join(self.sources) or "a source that the server does not name"
        if self.kind is DatasourceKind.LIVE:
            yield Obstacle(
                f"a live connection to {sources}, without an extract",
                "to publish rows in its place, give them another name",
            )
            return
        if self.pipelines:
            tags = ", ".join(f'"{TAG_PREFIX}{key}"' for key in self.pipelines)
            yield Obstacle(
                f"a pipeline publishes it already (tag {tags})", "leave it to that pipeline"
            )
        if self.kind is DatasourceKind.EXTRACT:
            yield Obstacle(
                f"an extract of {sources} takes no updates: each change is a full publish",
                "run once with --full --accept overwrite, which replaces its metadata",
            )
        if self.has_password:
            yield Obstacle(
                "a publish drops the credentials that are embedded in it",
                "keep a copy if they are needed for more than its refresh tasks",
            )
        if self.tasks:
            yield Obstacle(
                "its refresh tasks would undo what the pipeline publishes, or fail",
                "delete them when you take it over",
            )
        if not self.is_own:
            yield Obstacle(
                "another user owns it: servers take updates from the owner alone",
                "make the pipeline's user its owner, or declare `owner`",
            )
        if not takes_updates:
            yield Obstacle(
                "this server takes no updates: each change is a full publish",
                "Tableau 2021.3 or newer takes them",
            )
        if self.is_encrypted:
            yield Obstacle("its extract is encrypted", "check its encryption after a publish")
        if "download" in self.unknown:
            yield Obstacle(
                "this user may not download it", "give it the capability Download Data Source"
            )


@dataclass(frozen=True, slots=True)
class Assessment:
    """A site, as far as a user may see it.

    Attributes:
        site: its content URL; "" is the default site.
        version: the version of its REST API.
        role: the site role of the user; "" if the server does not report it.
        may_publish: whether the role of this user may publish; true if the role is unknown.
        takes_updates: whether the server accepts updates of data.
        datasources: the assessed data sources, the largest first.
        unknown: maps each attribute that is unknown for all data sources to the reason.
        is_complete: false if the requests were used up, or the server failed, before every fact was
            looked at.
    """

    url: str
    site: str
    version: str
    user: str
    role: str
    may_publish: bool
    takes_updates: bool
    datasources: Sequence[AssessedDatasource]
    unknown: Mapping[str, str] = field(default_factory=dict)
    is_complete: bool = True
