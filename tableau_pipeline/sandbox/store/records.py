"""What the store hands out: one frozen record for each thing it knows."""

import json
from dataclasses import dataclass, fields
from typing import Any, Self


class _Record:
    @classmethod
    def of(cls, row: dict[str, Any]) -> Self:
        """The record of a row; columns that it does not have are left out."""
        names = [field.name for field in fields(cls)]  # ty: ignore[invalid-argument-type]
        return cls(**{name: row[name] for name in names})


@dataclass(frozen=True)
class Site(_Record):
    """A site; the default one has the content URL ""."""

    luid: str
    name: str
    content_url: str


@dataclass(frozen=True)
class User(_Record):
    """A user, on every site."""

    luid: str
    name: str
    site_role: str

    @property
    def is_admin(self) -> bool:
        """Whether they may do everything."""
        return "Administrator" in self.site_role

    @property
    def may_publish(self) -> bool:
        """Whether their site role lets them publish."""
        return self.is_admin or self.site_role in ("Creator", "ExplorerCanPublish")


@dataclass(frozen=True)
class Session(_Record):
    """A sign-in that still lasts; `expires_at` is in seconds of the epoch."""

    token_digest: str
    user: User
    site: Site
    access_token: str | None
    expires_at: float


@dataclass(frozen=True)
class Project(_Record):
    """A project; without a parent it is on top."""

    luid: str
    site: str
    parent: str | None
    owner: str
    name: str
    description: str
    content_permissions: str
    created_at: str
    updated_at: str


@dataclass(frozen=True)
class Datasource(_Record):
    """A published data source: how it is listed, and the content that it has now.

    Flags are 0 or 1, as SQLite stores them.
    """

    luid: str
    site: str
    project: str
    owner: str
    connection: str
    name: str
    content_url: str
    description: str
    is_certified: int
    certification_note: str
    use_remote_query_agent: int
    encrypt_extracts: int
    created_at: str
    updated_at: str
    revision: int
    hyper_file: str
    hyper_bytes: int
    packaged_path: str
    tds: bytes
    connection_class: str
    has_extracts: int
    tables: str
    project_name: str
    owner_name: str
    tags: tuple[str, ...]


@dataclass(frozen=True)
class Revision(_Record):
    """What was published as a data source at some time."""

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
class ConnectionSettings(_Record):
    """What was set for a connection after its data source was published."""

    server_address: str = ""
    server_port: str = ""
    user_name: str = ""
    embed_password: int = 0


@dataclass(frozen=True)
class Job(_Record):
    """A job, queued, in progress or done."""

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
        """What the job is to do, as its kind wrote it."""
        return json.loads(self.payload)
