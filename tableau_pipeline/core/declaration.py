"""A declared data source, as plain values, and what can be told of it without data."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from tableauhyperapi import TableName

from tableau_pipeline.core.policies import Diff, Policy, Replace, Retain
from tableau_pipeline.hyper.tables import EXTRACT_SCHEMA, Column, Relationship
from tableau_pipeline.hyper.types.type_policy import TypePolicy

# Of the tags that mark data sources as published by some pipeline, and by which deployment of it.
TAG_PREFIX = "tableau-pipeline:"
INSTANCE_TAG_PREFIX = "tableau-pipeline-instance:"

SchemaPolicy = Literal["additive", "refuse", "publish"]
OversizePolicy = Literal["publish", "split"]


@dataclass(frozen=True, slots=True)
class ProjectLuid:
    """A project by its LUID."""

    luid: str


# A path of names, "Parent/Child", the names themselves, which may hold "/", or a LUID.
Project = str | tuple[str, ...] | ProjectLuid


@dataclass(frozen=True, slots=True)
class Guard:
    """What a table must satisfy before it is published.

    Attributes:
        max_shrink: the largest share of the published rows that may vanish at once, 0 to 1.
    """

    min_rows: int = 1
    max_shrink: float = 0.5


@dataclass(frozen=True, slots=True)
class Table:
    """A table of a data source; `model` is the asset key of its model, "a/b" for two parts.

    Attributes:
        columns: the contract: exactly these, in any order; none when nothing was promised.
    """

    name: str
    model: str
    guard: Guard = field(default_factory=Guard)
    policy: Policy = field(default_factory=Replace)
    retain: Retain | None = None
    columns: tuple[Column, ...] = ()


@dataclass(frozen=True, slots=True)
class Reconcile:
    """How what is published is compared with the models after it was sent.

    Attributes:
        max_bytes: of the file to download; a larger one is not compared.
        checksums: compare the contents of each column too, not only the number of rows.
    """

    max_bytes: int = 100_000_000
    checksums: bool = False


@dataclass(frozen=True, slots=True)
class Declaration:
    """A published data source: `key` is its asset key.

    Attributes:
        rebase: how much the payloads since the file was last published whole may add up to, as a
            share of its size, until it is published whole again: scattered deletes make it grow.
        rebase_after: updates until then, however small; None for any number.
        oversize: what to do with an update above the server's limit for payloads: publish the
            whole file, or split the update, so that readers may see a part of it for a while.
        payload_limit: bytes of a payload; None is the server's own limit.
        types: what becomes of types for which there is more than one way.
        max_database_version: of the `.hyper` format that all products of its readers open; None
            when they open any.
        reconcile: None to trust the server.
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
        """What marks the data source on the server as ours."""
        return tag_of(self.key)

    @property
    def project_path(self) -> str:
        """The project in words."""
        match self.project:
            case str():
                return self.project
            case ProjectLuid(luid):
                return luid
            case names:
                return "/".join(names)

    @property
    def fact_table(self) -> str:
        """The table that no relationship points to: its rows are the grain of the data source."""
        pointed_to = {edge.one for edge in self.relationships}
        return next(table.name for table in self.tables if table.name not in pointed_to)

    @property
    def models(self) -> tuple[str, ...]:
        """The asset keys of all models that a refresh reads, feeds of changes included."""
        feeds = [
            table.policy.feed.model
            for table in self.tables
            if isinstance(table.policy, Diff) and table.policy.feed
        ]
        return tuple(dict.fromkeys([*(table.model for table in self.tables), *feeds]))

    def target(self, table: str) -> TableName:
        """Where the rows of a table are in the published file."""
        return TableName(EXTRACT_SCHEMA, self.published_name(table))

    def published_name(self, table: str) -> str:
        """A table's name in the file: Tableau's own habit for files of a single table."""
        return EXTRACT_SCHEMA if len(self.tables) == 1 else table

    def digest(self) -> str:
        """Changes with what the published file must look like, and with nothing else."""
        shape = [
            sorted(table.name for table in self.tables),
            sorted([edge.many, edge.one, *sorted(edge.on)] for edge in self.relationships),
        ]
        return hashlib.sha256(json.dumps(shape).encode()).hexdigest()[:16]


def tag_of(key: str) -> str:
    """The tag of the data source with this asset key."""
    return f"{TAG_PREFIX}{key}"


def file_name(key: str) -> str:
    """An asset key as the name of a file or folder: that of "sales" must not hold "sales/eu"."""
    return key.replace("/", ".")


def tree_problem(tables: Sequence[str], relationships: Sequence[Relationship]) -> str | None:
    """Why Tableau would refuse a file of these tables; None when it would not.

    Tableau (2021.4 and later) wants one fact table, from which every other table is reached by
    exactly one path of relationships from many to one.
    """
    edges: dict[str, list[str]] = {table: [] for table in tables}
    reached_from: dict[str, str] = {}
    for edge in relationships:
        if edge.one in reached_from:
            return (
                f'table "{edge.one}" is the "to" of two relationships, from '
                f'"{reached_from[edge.one]}" and from "{edge.many}"; Tableau wants one path to '
                "each table. Publish a second copy of it under another name, or leave one out"
            )
        edges[edge.many].append(edge.one)
        reached_from[edge.one] = edge.many
    facts = [table for table in tables if table not in reached_from]
    if len(facts) != 1:
        names = ", ".join(f'"{table}"' for table in facts) or "none"
        return (
            "Tableau wants exactly one fact table, which no relationship points to; here: "
            f"{names}. Connect every table by a relationship from the many side to the one side"
        )
    seen, frontier = set(facts), list(facts)
    while frontier:
        frontier = [one for many in frontier for one in edges[many] if one not in seen]
        seen.update(frontier)
    if circle := [table for table in tables if table not in seen]:
        return f"these tables point at each other in a circle: {', '.join(circle)}"
    return None
