"""A declared data source, as plain values, and what follows from the declaration alone."""

import hashlib
import json
import re
from dataclasses import dataclass, field
from typing import Literal

from tableauhyperapi import TableName

from tableau_pipeline.hyper.tables import EXTRACT_SCHEMA, Column, Relationship
from tableau_pipeline.hyper.types import TypePolicy

# Refresh policies: which rows of a table are sent, and which are kept.


_SPAN = re.compile(r"\d+ (second|minute|hour|day|week|month|year)s?")


@dataclass(frozen=True, slots=True)
class Replace:
    """Send the whole table."""


@dataclass(frozen=True, slots=True)
class Feed:
    """A change-data-capture feed: another model, whose rows name the affected keys.

    The feed only names keys. The rows that are sent come from the table's model.

    Attributes:
        model: the asset key of the feed.
        columns: pairs (key column of the table, column of the feed).
    """

    model: str
    columns: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Diff:
    """Send the rows that changed; `key` identifies a row."""

    key: tuple[str, ...]
    feed: Feed | None = None


@dataclass(frozen=True, slots=True)
class Append:
    """Send the rows whose `cursor` is at least the last published maximum minus `lookback`.

    Attributes:
        lookback: how late rows may arrive: a number for a numeric cursor, a span such as "3
            days" for a date or a timestamp.
    """

    cursor: str
    lookback: int | str | None = None


@dataclass(frozen=True, slots=True)
class Partitions:
    """Send the partitions that were materialized again; `column` holds the partition of a row."""

    column: str


Policy = Replace | Diff | Append | Partitions


@dataclass(frozen=True, slots=True)
class Retain:
    """Publish only rows whose `column` is at most `days` back, or NULL.

    Attributes:
        as_of: count from the day of the refresh (UTC), or from the model's latest value.
    """

    column: str
    days: int
    as_of: Literal["run", "max"] = "run"


def is_span(lookback: str) -> bool:
    """Whether a lookback is a time span, such as "3 days"."""
    return bool(_SPAN.fullmatch(lookback))


# Prefixes of the tags that mark a data source as published by a pipeline, and by which deployment.
TAG_PREFIX = "tableau-pipeline:"
INSTANCE_TAG_PREFIX = "tableau-pipeline-instance:"

SchemaPolicy = Literal["additive", "refuse", "publish"]
OversizePolicy = Literal["publish", "split"]
ReconcileBy = Literal["auto", "server", "download"]
LakeFormat = Literal["delta", "iceberg"]


@dataclass(frozen=True, slots=True)
class ProjectLuid:
    """A project, identified by its LUID."""

    luid: str


# A path "Parent/Child", a tuple of names, which may contain "/", or a LUID.
Project = str | tuple[str, ...] | ProjectLuid


@dataclass(frozen=True, slots=True)
class Guard:
    """The conditions that a table must meet before it is published.

    Attributes:
        max_shrink: the largest share of the published rows that one refresh may remove, 0 to 1.
    """

    min_rows: int = 1
    max_shrink: float = 0.5


@dataclass(frozen=True, slots=True)
class InCatalog:
    """A table of an Iceberg catalog.

    Attributes:
        catalog: the name by which pyiceberg's configuration knows the catalog.
        table: the name of the table in the catalog, with its namespace: "db.orders".
    """

    catalog: str
    table: str

    def __str__(self) -> str:
        return f"{self.table} of the catalog {self.catalog}"


@dataclass(frozen=True, slots=True)
class LakeTable:
    """A table of a lake, which is read where it is.

    Attributes:
        location: the absolute path of its folder, or its URL in an object store; or where an
            Iceberg catalog has it.
    """

    format: LakeFormat
    location: str | InCatalog


@dataclass(frozen=True, slots=True)
class Table:
    """A table of a data source; `model` is the asset key of its model, "a/b" for two parts.

    Attributes:
        columns: the contract: exactly these columns, in any order; () for no contract.
        source: the table of a lake that is the model; None if Spark writes the model.
    """

    name: str
    model: str
    guard: Guard = field(default_factory=Guard)
    policy: Policy = field(default_factory=Replace)
    retain: Retain | None = None
    columns: tuple[Column, ...] = ()
    source: LakeTable | None = None


@dataclass(frozen=True, slots=True)
class Reconcile:
    """How the published data is compared with the models after a refresh.

    Attributes:
        max_bytes: the largest file to download; a larger one is not.
        checksums: compare the contents of each column, not only the number of rows.
        by: let the server count, or download the file and count here; "auto" does what costs less,
            and the other if that is not possible.
    """

    max_bytes: int = 100_000_000
    checksums: bool = False
    by: ReconcileBy = "auto"


@dataclass(frozen=True, slots=True)
class Declaration:
    """A published data source; `key` is its asset key.

    Attributes:
        rebase: the whole file is published again once the payloads since then exceed this share
            of its size, because deletes make the file grow.
        rebase_after: the number of updates after which the same happens; None for no limit.
        oversize: what to do with an update above the server's limit for payloads: publish the
            whole file, or split the update, so that readers may see a part of it for a while.
        payload_limit: the largest payload in bytes; None for the server's own limit.
        types: how to publish the types for which there is a choice.
        max_database_version: the newest version of the `.hyper` format that all readers can
            open; None for any version.
        reconcile: None to skip the comparison with the models.
    """

    key: str
    name: str
    project: Project
    tables: tuple[Table, ...]
    relationships: tuple[Relationship, ...] = ()
    create_project: bool = False
    adopt: bool = False
    on_schema_change: SchemaPolicy = "additive"
    rebase: float = 1.0
    rebase_after: int | None = None
    oversize: OversizePolicy = "publish"
    payload_limit: int | None = None
    types: TypePolicy = field(default_factory=TypePolicy)
    max_database_version: int | None = None
    reconcile: Reconcile | None = None

    @property
    def tag(self) -> str:
        """The tag that marks the data source on the server as ours."""
        return f"{TAG_PREFIX}{self.key}"

    @property
    def needs_counts(self) -> bool:
        """Whether only the server's counts may be compared with the models."""
        return self.reconcile is not None and self.reconcile.by == "server"

    @property
    def project_path(self) -> str:
        """The project as text: its path or its LUID."""
        return project_path(self.project)

    @property
    def fact_table(self) -> str:
        """The table that no relationship points to; its rows are the grain of the data source."""
        pointed_to = {edge.one for edge in self.relationships}
        return next(table.name for table in self.tables if table.name not in pointed_to)

    @property
    def models(self) -> tuple[str, ...]:
        """The asset keys of all models that a refresh reads, including change feeds."""
        feeds = [
            table.policy.feed.model
            for table in self.tables
            if isinstance(table.policy, Diff) and table.policy.feed
        ]
        return tuple(dict.fromkeys([*(table.model for table in self.tables), *feeds]))

    def target(self, table: str) -> TableName:
        """Return where the rows of a table are in the published file."""
        return TableName(EXTRACT_SCHEMA, self.published_name(table))

    def published_name(self, table: str) -> str:
        """Return a table's name in the file: "Extract" if it is the only one, as Tableau does."""
        return EXTRACT_SCHEMA if len(self.tables) == 1 else table

    def digest(self) -> str:
        """Return a digest that changes only if the published file must have another structure."""
        # Sorted, because tidying up a YAML file must not cost an overwrite.
        shape = [
            sorted(table.name for table in self.tables),
            sorted([edge.many, edge.one, *sorted(edge.on)] for edge in self.relationships),
        ]
        return hashlib.sha256(json.dumps(shape).encode()).hexdigest()[:16]


def project_path(project: Project) -> str:
    """Return a project as text: its path or its LUID."""
    match project:
        case str():
            return project
        case ProjectLuid(luid):
            return luid
        case names:
            return "/".join(names)


def tags_of(key: str, instance: str) -> frozenset[str]:
    """Return the tags of the data source with this asset key that a deployment publishes."""
    return frozenset({f"{TAG_PREFIX}{key}", f"{INSTANCE_TAG_PREFIX}{instance}"})


def file_name(key: str) -> str:
    """Return an asset key as a file name; "/" is replaced so that no key nests in another."""
    return key.replace("/", ".")


# Sizes in readable form.


def megabytes(size: int) -> str:
    """Format a number of bytes in megabytes of 10^6 bytes: "0.13 MB", "1,204.5 MB"."""
    return f"{size / 1e6:,.2f} MB" if size < 1e8 else f"{size / 1e6:,.1f} MB"
