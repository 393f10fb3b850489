"""The declaration of a data source: settings in Python and YAML, and their validation."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, fields, is_dataclass, replace
from itertools import starmap
from typing import Annotated, Any, Literal, Self
from zoneinfo import ZoneInfo

from pydantic import BeforeValidator, Field, model_validator
from pydantic.fields import FieldInfo
from pydantic.json_schema import SkipJsonSchema
from tableauhyperapi import TableName

from tableau_pipeline.core.fields import (
    MEMBERS,
    NOT_INHERITED,
    Calculation,
    FieldError,
    FieldMetadata,
    Inherited,
    Members,
    MetadataPolicy,
    Properties,
    by_name,
    declared_values,
)
from tableau_pipeline.core.identity import TAG_PREFIX, asset_key_of, key_below
from tableau_pipeline.core.lake_table import LakeTable
from tableau_pipeline.core.policies import (
    Diff,
    Partitions,
    Policy,
    RefreshKey,
    ReplaceAll,
    policy_of,
)
from tableau_pipeline.core.tableau_limits import check_texts, long_tag
from tableau_pipeline.errors import RefusedError
from tableau_pipeline.hyper.relationships import Relationship, tree_problem
from tableau_pipeline.hyper.types import EXTRACT_SCHEMA, Column, Nested, TypePolicy
from tableau_pipeline.metadata.merge import Values
from tableau_pipeline.outcome import Code
from tableau_pipeline.yaml_keys import Zone, guess, keyed, mistake, written_as

SchemaPolicy = Literal["additive", "refuse", "publish"]


@keyed
class Guard:
    """The conditions under which a table may be published."""

    min_rows: int = Field(
        default=1, ge=0, description="The refresh is refused if the table has fewer rows."
    )
    max_shrink: float = Field(
        default=0.5,
        ge=0,
        le=1,
        description="The refresh is refused if it would remove this share of the published rows, "
        "or more. 0: no row may be removed. 1: no limit.",
    )
    max_change: float | None = Field(
        default=None,
        ge=0,
        description="The refresh is refused if it would add, remove or change more than this "
        "share of the published rows. Default: no limit.",
    )


@keyed
class Entitlements:
    """A table that lists the rows that each user may see. People make a row filter from it."""

    table: str = Field(description="The table of this data source that has a row for each right.")
    user: str = Field(
        description="The table's column with the names of users, as Tableau's function USERNAME() "
        "returns them. A refresh is refused if a user is NULL, or if the site has none of the "
        "users."
    )
    max_shrink: float = Field(
        default=0.2,
        ge=0,
        le=1,
        description="A refresh is also refused if the table would be empty, or would lose this "
        "share of its rows, or more.",
    )


@keyed
class Retain:
    """A rolling window: rows older than `days` are not published."""

    column: str = Field(
        description="A date or timestamp column. Rows with NULL in this column are kept."
    )
    # More days would lead to a date before the first year that Python and hyperd can read.
    days: int = Field(
        gt=0, le=500_000, description="Rows older than this many days are not published."
    )
    as_of: Literal["run", "max"] = Field(
        default="run",
        description="run: count from today (UTC). max: count from the latest value in the model.",
    )


@keyed
class Table:
    """A table of the data source."""

    # In YAML, the name is the key above the settings of the table.
    name: SkipJsonSchema[str] = ""
    model: str = Field(
        default="",
        description='Asset key of the model, "a/b" for two parts. Default: the table\'s name.',
    )
    source: LakeTable | None = Field(
        default=None,
        description="A lake table as the model, such as {delta: /lake/orders} or {iceberg: "
        "{catalog: prod, table: db.orders}}. Default: the model is an asset.",
    )
    policy: Annotated[
        Policy,
        BeforeValidator(policy_of, json_schema_input_type=Literal["replace"] | RefreshKey),
        Field(validation_alias="refresh"),
    ] = Field(
        default=ReplaceAll(),
        json_schema_extra={"default": "replace"},
        description="Which rows a refresh replaces. replace: all. Or a mapping: diff, append or "
        "partitions.",
    )
    retain: Retain | None = Field(
        default=None, description="A rolling window. Older rows are not published."
    )
    guard: Guard = Field(
        default_factory=Guard,
        description="Limits that the table must keep.",
    )
    contract: Annotated[
        tuple[Column, ...],
        written_as(dict[str, str], lambda types: tuple(starmap(Column, types.items()))),
    ] = Field(
        default=(),
        description="The exact columns of the model, by name and Spark type. Default: any columns.",
    )
    fields: Annotated[tuple[FieldMetadata, ...], by_name(FieldMetadata)] = Field(
        default=(),
        description="How Tableau shows columns, by column: {net: {caption: Net amount}}.",
    )

    @model_validator(mode="after")
    def _known_fields(self) -> Self:
        known = [column.name for column in self.contract]
        for field in self.fields:
            if known and field.name not in known:
                listed = f"{guess(field.name, known)}The columns are {', '.join(known)}"
                raise mistake(("fields", field.name), f"not a column of the contract: {listed}")
        return self

    @model_validator(mode="after")
    def _no_partitions_of_a_lake(self) -> Self:
        if self.source and isinstance(self.policy, Partitions):
            raise mistake(
                ("refresh",),
                "a table of a lake has no Dagster partitions: use {diff: {key: [...]}}, which "
                "compares only the files that changed",
            )
        return self


def _named(tables: Mapping[str, Table]) -> tuple[Table, ...]:
    return tuple(
        replace(table, name=name, model=table.model or name) for name, table in tables.items()
    )


@keyed
class Republish:
    """When to publish in full again. Every update makes the file grow, even a deletion of rows."""

    growth: float = Field(
        default=1.0,
        gt=0,
        description="Publish in full once updates since the last full publish exceed this share of "
        "the file's size.",
    )
    after: int | None = Field(
        default=None,
        ge=1,
        description="Publish in full also after this many updates. Default: no limit.",
    )


@keyed
class Reconcile:
    """Compare the published data with the models."""

    by: Literal["auto", "server", "download"] = Field(
        default="auto",
        description="`server`: the server counts the rows (Tableau Cloud, or Server from 2025.1). "
        "`download`: the file is read back. `auto`: the server counts; if it cannot, or"
        " with `checksums`, the file is read back.",
    )
    max_mb: float = Field(
        default=100,
        gt=0,
        description="Largest file to download, in megabytes of 10^6 bytes. A check warns if nothing"
        " could be compared.",
    )
    checksums: bool = Field(
        default=False,
        description="Compare a checksum of all rows, not only their number. A file above `max_mb` "
        "gets no checksum, and the check reports this.",
    )

    @property
    def max_bytes(self) -> int:
        """The size in bytes of the largest file to download."""
        return round(self.max_mb * 1e6)


# The path of a project: "Parent/Child", or a tuple of names, in which a name may contain "/".
Project = str | tuple[str, ...]


def _project(project: Any) -> Any:
    if not isinstance(project, str | tuple | list):
        raise ValueError(
            'project is a path, such as "Aviation/Curated", or a list of names, such as '
            '[Aviation, "A/B"]'
        )
    names = project.split("/") if isinstance(project, str) else project
    if not all(str(name).strip() for name in names or [""]):
        raise ValueError(f'"{project}" has an empty part: write "Parent/Child"')
    return project


@keyed
class _ZoneOfClock:
    """Publish timestamps as the wall clock time of a zone."""

    zone: Zone = Field(description='Name of the time zone, such as "Europe/Paris".')


def _clock(value: Any) -> Any:
    if value in ("utc", "with_time_zone") or isinstance(value, ZoneInfo):
        return value
    if isinstance(value, dict) and list(value) == ["zone"]:
        return ZoneInfo(_ZoneOfClock(**value).zone)
    allowed = "utc, with_time_zone, {zone: Europe/Paris}"
    raise ValueError(f"timestamps is one of: {allowed}; not {value!r}")


@keyed
class Declaration(Properties):
    """A published Tableau data source, and the models that feed it."""

    _: KW_ONLY
    name: str = Field(min_length=1, max_length=255, description="Name on the Tableau site.")
    project: Annotated[
        Project,
        BeforeValidator(_project, json_schema_input_type=str | list[str]),
    ] = Field(
        description='Path of the project, such as "Aviation/Curated". If names contain slashes: a '
        'list, such as [Aviation, "A/B"].'
    )
    tables: Annotated[
        tuple[Table, ...], written_as(Annotated[dict[str, Table], Field(min_length=1)], _named)
    ] = Field(description="Tables of the data source, by name.")
    key: str = Field(
        default="",
        description="Asset key. Default: derived from the name by the rule of dagster-tableau, so "
        "that the dashboards of dagster-tableau depend on this asset.",
    )
    create_project: bool = Field(
        default=False, description="Create the project if it does not exist."
    )
    adopt: bool = Field(
        default=False,
        description="Take over a data source of this name that this pipeline did not publish. Its "
        "rows are replaced. Calculated fields, captions and folders stay. If they use fields that "
        "the new data source lacks, the refresh needs accept: [overwrite]. The old data source is "
        "always saved as a .tdsx file first.",
    )
    relationships: tuple[Relationship, ...] = Field(
        default=(),
        description="How the tables relate: one tree with one fact table.",
    )
    on_schema_change: SchemaPolicy = Field(
        default="additive",
        description="additive: publish new columns and tables, and refuse all other changes. "
        "refuse: refuse every change. publish: publish every change.",
    )
    republish: Republish = Field(
        default_factory=Republish,
        description="When to publish the full file instead of an update.",
    )
    on_oversize: Literal["publish", "split"] = Field(
        default="publish",
        description="If an update is larger than `payload_limit_mb`: publish the full file, or "
        "split the update. "
        "During a split update, dashboards may show old and new rows together.",
    )
    payload_limit_mb: float | None = Field(
        default=None,
        gt=0,
        description="The largest update, in MB. Default: Tableau's limit less 5 %, at most 95.",
    )
    timestamps: Annotated[
        Literal["utc", "with_time_zone"] | ZoneInfo,
        BeforeValidator(
            _clock, json_schema_input_type=Literal["utc", "with_time_zone"] | _ZoneOfClock
        ),
    ] = Field(
        default="utc",
        description="How to publish Spark's timestamp. utc: wall clock time in UTC. {zone: "
        "Europe/Paris}: in that zone. with_time_zone: Hyper's TIMESTAMP WITH TIME ZONE.",
    )
    nested: Nested = Field(
        default="refuse",
        description="Arrays, maps, structs and variants: refuse them, or publish them as JSON "
        "text.",
    )
    floats: Literal["double", "real"] = Field(
        default="double",
        description="32-bit floats. double: widen them, which is exact. real: keep them; "
        "only Tableau 2024.3 and later opens the file.",
    )
    max_database_version: int | None = Field(
        default=None,
        ge=2,
        le=4,
        description="The newest version of the .hyper format that your readers can open, 2, 3 or "
        "4. Columns that need a newer version are refused.",
    )
    reconcile: Annotated[
        Reconcile | None,
        BeforeValidator(
            lambda value: None if value == "never" else value,
            json_schema_input_type=Reconcile | Literal["never"],
        ),
    ] = Field(
        default_factory=Reconcile,
        description="Compare the published data with the models after a refresh: {by: auto, "
        "max_mb: 100, checksums: false}; or never.",
    )
    calculations: Annotated[tuple[Calculation, ...], by_name(Calculation)] = Field(
        default=(),
        description='Calculated fields: {Margin: {formula: "SUM([net]) / SUM([gross])"}}.',
    )
    hierarchies: Annotated[tuple[Members, ...], MEMBERS] = Field(
        default=(),
        description="Hierarchies of columns, from the top down: {Route: [origin, dest]}.",
    )
    folders: Annotated[tuple[Members, ...], MEMBERS] = Field(
        default=(),
        description="Folders of fields: {Money: [net, Margin]}. Each field can also name its "
        "`folder`.",
    )
    metadata: MetadataPolicy = Field(
        default_factory=MetadataPolicy,
        description="How to treat captions, formats and other metadata that people edited.",
    )
    guarded: bool = Field(
        default=False,
        description="Publish no rows until people have made a row filter in the data source.",
    )
    entitlements: Entitlements | None = Field(
        default=None, description="The table of the row filter: {table: access, user: user_name}."
    )

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        names = [table.name for table in self.tables]
        named: list[tuple[tuple, str]] = [
            (("relationships", number, side), table)
            for number, edge in enumerate(self.relationships)
            for side, table in (("from", edge.many), ("to", edge.one))
        ]
        if self.entitlements:
            named.append((("entitlements", "table"), self.entitlements.table))
        for at, table in named:
            if table not in names:
                problem = f'"{table}" is not a table of this data source: '
                problem += f"{guess(table, names)}Its tables are {', '.join(names)}"
                raise mistake(at, problem)
        if problem := tree_problem(names, self.relationships):
            raise mistake(("relationships",), problem)
        if self.certify and not self.reconcile:
            raise mistake(("certify",), "this needs a comparison, but reconcile is never")
        if not self.key:
            object.__setattr__(self, "key", asset_key_of(self.name))
        check_texts(self, self.tag)
        if all(table.contract for table in self.tables):
            try:
                self.declared_values(
                    {
                        table.name: [column.name for column in table.contract]
                        for table in self.tables
                    }
                )
            except FieldError as error:
                raise mistake(error.at, str(error)) from None
        return self

    def declared_values(
        self, columns: Mapping[str, Sequence[str]], inherited: Inherited = NOT_INHERITED
    ) -> Values:
        """Return the values of the declared metadata; see `core.fields.declared_values`."""
        return declared_values(
            fields={table.name: table.fields for table in self.tables},
            calculations=self.calculations,
            hierarchies=self.hierarchies,
            folders=self.folders,
            columns=columns,
            published=self.published_name,
            inherited=inherited,
        )

    def guard_of(self, table: Table) -> Guard:
        """Return the guard of a table. `entitlements` may tighten the guard of its `table`."""
        own, guard = self.entitlements, table.guard
        if own is None or own.table != table.name:
            return guard
        shrink = min(guard.max_shrink, own.max_shrink)
        return replace(guard, min_rows=max(guard.min_rows, 1), max_shrink=shrink)

    @property
    def types(self) -> TypePolicy:
        """The declared ways to publish timestamps, nested types and floats."""
        return TypePolicy(self.timestamps, self.nested, self.floats)

    @property
    def payload_limit(self) -> int | None:
        """The largest payload of an update in bytes; None for the server's own limit."""
        return round(self.payload_limit_mb * 1e6) if self.payload_limit_mb else None

    @property
    def tag(self) -> str:
        """The tag on the server that marks the data source as published under `key`."""
        return f"{TAG_PREFIX}{self.key}"

    @property
    def needs_counts(self) -> bool:
        """Whether a reconciliation must use the server's counts."""
        return self.reconcile is not None and self.reconcile.by == "server"

    @property
    def project_path(self) -> str:
        """The path of the project as text, such as "Parent/Child"."""
        return project_path(self.project)

    @property
    def fact_table(self) -> str:
        """The table that no relationship points to, and whose rows are the data source's grain."""
        pointed_to = {edge.one for edge in self.relationships}
        return next(table.name for table in self.tables if table.name not in pointed_to)

    @property
    def models(self) -> tuple[str, ...]:
        """The asset keys of all models that a refresh reads, including change feeds."""
        policies = [table.policy for table in self.tables]
        feeds = [diff.feed.model for diff in policies if isinstance(diff, Diff) and diff.feed]
        return tuple(dict.fromkeys([*(table.model for table in self.tables), *feeds]))

    def target(self, table: str) -> TableName:
        """Return the table in the published file that contains the rows of a declared table."""
        return TableName(EXTRACT_SCHEMA, self.published_name(table))

    def published_name(self, table: str) -> str:
        """Return a table's name in the file. Like Tableau, name a single table "Extract"."""
        return EXTRACT_SCHEMA if len(self.tables) == 1 else table

    def whole_digest(self) -> str:
        """Return a digest of all declared settings.

        The digest leaves out defaults, so that a release with a new key changes no digest.
        """
        # Digest only the fields of `Declaration`, because a component has more fields.
        text = json.dumps(_set_fields(self, Declaration), default=_plain, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def digest(self) -> str:
        """Return a digest of the structure of the published file: its tables and relationships."""
        # Sort tables and relationships, because a new order in YAML must not cause a publish.
        edges = sorted([edge.many, edge.one, *sorted(edge.on)] for edge in self.relationships)
        shape = [sorted(table.name for table in self.tables), edges]
        return hashlib.sha256(json.dumps(shape).encode()).hexdigest()[:16]


def _plain(value: Any) -> Any:
    """Convert a value to a type of JSON. Equal sets become equal lists."""
    if is_dataclass(value) and not isinstance(value, type):
        return _set_fields(value, type(value))
    return sorted(value) if isinstance(value, set | frozenset) else str(value)


def _set_fields(value: Any, of: type[Any]) -> Mapping[str, Any]:
    """Return the values that differ from the defaults, by field of the class `of`."""
    values = {field.name: (field.default, getattr(value, field.name)) for field in fields(of)}
    return {
        name: now
        for name, (default, now) in values.items()
        if now
        != (
            default.get_default(call_default_factory=True)
            if isinstance(default, FieldInfo)
            else default
        )
    }


def project_path(project: Project) -> str:
    """Return the path of a project as text, such as "Parent/Child"."""
    return project if isinstance(project, str) else "/".join(project)


def in_environment(declaration: Declaration, root: str) -> Declaration:
    """Return the declaration with its project and key below a root; unchanged if `root` is ""."""
    if not root:
        return declaration
    if problem := long_tag(f"{TAG_PREFIX}{key_below(declaration.key, root)}"):
        raise RefusedError(f'"{declaration.name}" below "{root}": {problem}', code=Code.DECLARATION)
    project = declaration.project
    names = project.split("/") if isinstance(project, str) else project
    placed: dict[str, Any] = {
        "project": (*root.split("/"), *names),
        "key": key_below(declaration.key, root),
        "create_project": True,
    }
    # Do not use `replace`: a component has more fields, and rejects a key with an environment.
    settings = {field.name: getattr(declaration, field.name) for field in fields(Declaration)}
    return Declaration(**settings | placed)
