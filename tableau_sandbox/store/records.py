"""The records of the store: one frozen class for each kind."""

import json
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Self

# In descending order of rights.
SITE_ROLES = (
    *("ServerAdministrator", "SiteAdministratorCreator", "SiteAdministratorExplorer"),
    *("Creator", "ExplorerCanPublish", "Explorer", "Viewer", "Unlicensed"),
)


class Record:
    """A row of a table. The query `SELECT` may add columns of other tables."""

    TABLE: ClassVar[str]
    SELECT: ClassVar[str] = ""

    @classmethod
    def of(cls, row: dict[str, Any]) -> Self:
        """Return the record of a row; ignore the row's other columns."""
        names = [field.name for field in fields(cls)]  # ty: ignore[invalid-argument-type]
        return cls(**{name: row[name] for name in names})


@dataclass(frozen=True)
class Site(Record):
    """A site. The default site has the content URL ""."""

    TABLE = "site"

    luid: str
    name: str
    content_url: str


@dataclass(frozen=True)
class User(Record):
    """A user. Every site has all users."""

    TABLE = "user"

    luid: str
    name: str
    site_role: str

    @property
    def may_sign_in(self) -> bool:
        """Whether the user has a license, which a sign-in requires."""
        return self.site_role != "Unlicensed"

    @property
    def is_admin(self) -> bool:
        """Whether the user may do everything."""
        return "Administrator" in self.site_role

    @property
    def may_publish(self) -> bool:
        """Whether the site role allows publishing."""
        return self.is_admin or self.site_role in ("Creator", "ExplorerCanPublish")


@dataclass(frozen=True)
class Group(Record):
    """A group of users of a site."""

    TABLE = "user_group"

    luid: str
    site: str
    name: str


@dataclass(frozen=True)
class Session:
    """A session that has not ended.

    Only sessions of connected apps have scopes. The scopes limit what these sessions may do.
    """

    token_digest: str
    user: User
    site: Site
    scopes: tuple[str, ...]


@dataclass(frozen=True)
class Project(Record):
    """A project. A project at the top level has no parent.

    The counts cover only direct child projects and data sources.
    """

    TABLE = "project"
    SELECT = (
        "SELECT project.*, user.name AS owner_name,"
        " (SELECT count(*) FROM project AS child WHERE child.parent = project.luid) AS children,"
        " (SELECT count(*) FROM datasource WHERE datasource.project = project.luid) AS datasources"
        " FROM project JOIN user ON user.luid = project.owner"
    )

    luid: str
    site: str
    parent: str | None
    owner: str
    name: str
    description: str
    content_permissions: str
    created_at: str
    updated_at: str
    owner_name: str = ""
    children: int = 0
    datasources: int = 0


@dataclass(frozen=True, kw_only=True)
class Datasource(Record):
    """A published data source: its properties and its current content.

    Flags are 0 or 1, as SQLite stores them.
    """

    TABLE = "datasource"
    SELECT = (
        "SELECT datasource.*, project.name AS project_name, user.name AS owner_name,"
        " (SELECT json_group_array(label) FROM tag WHERE tag.datasource = datasource.luid) AS tags"
        " FROM datasource JOIN project ON project.luid = datasource.project"
        " JOIN user ON user.luid = datasource.owner"
    )

    luid: str
    site: str
    project: str
    owner: str
    connection: str
    name: str
    content_url: str
    description: str
    is_certified: int = 0
    certification_note: str = ""
    use_remote_query_agent: int
    encrypt_extracts: int = 0
    created_at: str
    updated_at: str
    revision: int = 1
    hyper_file: str = ""
    hyper_bytes: int = 0
    packaged_path: str = ""
    tds: bytes = b""
    connection_class: str = ""
    has_extracts: int = 0
    tables: str = "[]"
    project_name: str = ""
    owner_name: str = ""
    tags: tuple[str, ...] = ()

    @classmethod
    def of(cls, row: dict[str, Any]) -> Self:
        """Return the record of a row. In the row, the tags are JSON."""
        return super().of({**row, "tags": tuple(sorted(json.loads(row["tags"])))})


@dataclass(frozen=True)
class Revision(Record):
    """A current or earlier publish of a data source."""

    TABLE = "revision"
    SELECT = (
        "SELECT revision.*, user.name AS publisher_name FROM revision"
        " JOIN user ON user.luid = revision.publisher"
    )

    datasource: str
    number: int
    publisher: str
    publisher_name: str
    published_at: str
    hyper_file: str
    hyper_bytes: int
    packaged_path: str
    tds: bytes


@dataclass(frozen=True)
class QualityWarning(Record):
    """A data quality warning of a data source. Flags are 0 or 1."""

    TABLE = "quality_warning"
    SELECT = (
        "SELECT quality_warning.*, user.name AS owner_name FROM quality_warning"
        " JOIN user ON user.luid = quality_warning.owner"
    )

    luid: str
    datasource: str
    owner: str
    type: str
    message: str
    is_active: int
    is_severe: int
    created_at: str
    updated_at: str
    owner_name: str = ""


@dataclass(frozen=True)
class ConnectionSettings(Record):
    """Settings of a connection that were changed after the last publish of the data source."""

    TABLE = "connection_settings"

    server_address: str = ""
    server_port: str = ""
    user_name: str = ""
    embed_password: int = 0


@dataclass(frozen=True)
class Job(Record):
    """A job: queued, in progress or finished."""

    TABLE = "job"

    number: int
    luid: str
    site: str
    user: str
    kind: str
    title: str
    payload: str
    status: str
    created_at: str
    started_at: str | None
    completed_at: str | None
    notes: str | None

    @property
    def parameters(self) -> dict[str, Any]:
        """The parameters of the job; the kind of job determines their form."""
        return json.loads(self.payload)


@dataclass(frozen=True)
class RefreshTask(Record):
    """The scheduled refresh of a data source; `times` has the task's own schedule in XML, or ""."""

    TABLE = "refresh_task"

    luid: str
    site: str
    datasource: str
    schedule: str
    times: str
