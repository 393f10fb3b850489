"""The component PublishedDatasource."""

from typing import Any, Literal, Self

import dagster as dg
from pydantic import Field, field_validator, model_validator

from tableau_pipeline.components.asset_keys import asset_key_of
from tableau_pipeline.components.attributes.base import Attributes, guess, keys, mistake
from tableau_pipeline.components.attributes.promises import (
    FreshnessAttributes,
    ReconcileAttributes,
    reconcile,
)
from tableau_pipeline.components.attributes.tables import RelationshipAttributes, TableAttributes
from tableau_pipeline.components.attributes.timestamps import Timestamps, clock
from tableau_pipeline.components.attributes.triggers import Trigger
from tableau_pipeline.components.published_datasource.assets import refresh_assets
from tableau_pipeline.components.published_datasource.lake_assets import lake_assets
from tableau_pipeline.components.published_datasource.scaffolder import (
    PublishedDatasourceScaffolder,
)
from tableau_pipeline.components.yaml_component.yaml_component import YamlComponent
from tableau_pipeline.core.declaration import Declaration, Project, ProjectLuid
from tableau_pipeline.hyper.tables import Relationship, tree_problem
from tableau_pipeline.hyper.types.type_policy import TypePolicy


class ProjectAttributes(Attributes):
    """A project, identified by its LUID."""

    luid: str = Field(min_length=1, description="The LUID that the server reports.")


@dg.scaffold_with(PublishedDatasourceScaffolder)
class PublishedDatasource(YamlComponent):
    """A published Tableau data source that is kept equal to the Spark models that feed it."""

    name: str = Field(min_length=1, max_length=255, description="Name on the Tableau site.")
    project: str | list[str] | ProjectAttributes = Field(
        description='Path of the project, "Aviation/Curated"; or a list of names, which may '
        'contain slashes, [Aviation, "Arrivals/Departures"]; or {luid: ...}.'
    )
    tables: dict[str, TableAttributes] = Field(
        min_length=1, description="Tables of the data source, by name."
    )
    key: str | None = Field(
        default=None,
        description="Asset key. Default: derived from the name as in dagster-tableau, so that the "
        "dashboards of dagster-tableau are downstream of this asset.",
    )
    create_project: bool = Field(
        default=False, description="Create the project if it does not exist."
    )
    adopt: bool = Field(
        default=False,
        description="Take over a data source of this name that this pipeline did not publish. If "
        "its tables, columns and types are the same, only its rows are replaced; calculated "
        "fields, captions and folders stay. Otherwise, the refresh names what would go, and needs "
        "accept: [overwrite]. In both cases, it is saved as a .tdsx file before.",
    )
    relationships: list[RelationshipAttributes] = Field(
        default_factory=list,
        description="How the tables relate to each other: one tree with one fact table.",
    )
    on_schema_change: Literal["additive", "refuse", "publish"] = Field(
        default="additive",
        description="additive: publish new columns and tables, refuse other changes. refuse: "
        "refuse all changes. publish: publish all changes.",
    )
    rebase: float = Field(
        default=1.0,
        gt=0,
        description="The whole file is published again once the updates since then exceed this "
        "share of its size. Updates make the file grow, even deletes.",
    )
    rebase_after: int | None = Field(
        default=None,
        ge=1,
        description="Number of updates after which the whole file is published again. Default: no "
        "limit.",
    )
    oversize: Literal["publish", "split"] = Field(
        default="publish",
        description="An update above the limit: publish the whole file, or split the update into "
        "several. With split, dashboards may show old and new rows together for a while.",
    )
    payload_limit_mb: float | None = Field(
        default=None,
        gt=0,
        description="The limit of an update, in megabytes of 10^6 bytes. Default: the server's "
        "limit, 100 (10 before 2022.1), less 5 %.",
    )
    timestamps: Timestamps = Field(
        default="utc",
        description="How to publish Spark's timestamp, as Tableau's datetime has no zone. utc: the "
        "wall clock time in UTC. {zone: Europe/Paris}: the wall clock time in that zone. "
        "with_time_zone: Hyper's TIMESTAMP WITH TIME ZONE. timestamp_ntz is published unchanged.",
    )
    nested: Literal["refuse", "json"] = Field(
        default="refuse",
        description="Arrays, maps, structs and variants: refuse them, or publish them as JSON "
        "text.",
    )
    floats: Literal["double", "real"] = Field(
        default="double",
        description="32-bit floats. double: widen them, which is exact. real: keep them; the file "
        "then opens only in Tableau 2024.3 and later.",
    )
    max_database_version: int | None = Field(
        default=None,
        ge=2,
        le=4,
        description="The newest version of the .hyper format that your readers can open. Columns "
        "that need a newer one are refused. 2: Tableau 2022.1.2; 3: 2022.4.1 and Server 2023.1, "
        "for decimals beyond 18 digits; 4: 2024.3, for 32-bit floats.",
    )
    reconcile: ReconcileAttributes | Literal["never"] = Field(
        default_factory=ReconcileAttributes,
        description="Compare the published data with the models after a refresh: {by: auto, "
        "max_mb: 100, checksums: false}; or never.",
    )
    freshness: FreshnessAttributes | None = Field(
        default=None,
        description='The deadline for fresh data: {by: "07:00", timezone: Europe/Paris} or '
        "{within: 24h}.",
    )
    trigger: Trigger | None = Field(
        default=None, description="What starts a refresh. Default: none, refresh by hand only."
    )

    @field_validator("project", mode="before")
    @classmethod
    def _validate_project(cls, project: Any) -> Any:
        if isinstance(project, str | list) or keys(project) == ["luid"]:
            return project
        raise ValueError(
            'project is one of: a path, "Aviation/Curated"; a list of names, [Aviation, "A/B"]; '
            "{luid: ...}"
        )

    @field_validator("project")
    @classmethod
    def _no_empty_project(
        cls, project: str | list[str] | ProjectAttributes
    ) -> str | list[str] | ProjectAttributes:
        names = project.split("/") if isinstance(project, str) else project
        if isinstance(names, list) and not all(map(str.strip, names or [""])):
            raise ValueError(f'"{project}" has an empty part: write "Parent/Child"')
        return project

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        asset_key = self.asset_key
        named = ("key",) if self.key else ("name",)
        # The rule replaces all but ASCII letters and digits, so a Japanese name leaves nothing.
        if not asset_key.strip("_/"):
            problem = f'this gives the asset key "{asset_key}": set `key` to a meaningful one'
            raise mistake(named, self.name, problem)
        models = set(self.declaration.models)
        if clash := {asset_key, f"{asset_key}_extract"} & models:
            problem = f'this gives the asset key "{clash.pop()}", which a model already has: '
            raise mistake(named, self.name, problem + "set `key` to another one")
        for number, edge in enumerate(self.relationships):
            for side, table in (("from", edge.many), ("to", edge.one)):
                if table not in self.tables:
                    problem = f'"{table}" is not a table of this data source: '
                    problem += f"{guess(table, self.tables)}Its tables are {', '.join(self.tables)}"
                    raise mistake(("relationships", number, side), table, problem)
        if problem := tree_problem(list(self.tables), self.declaration.relationships):
            raise mistake(("relationships",), None, problem)
        return self

    @property
    def asset_key(self) -> str:
        """The key of the published asset; "a/b" for two parts."""
        return self.key or asset_key_of(self.name)

    @property
    def declaration(self) -> Declaration:
        """Convert this component to the core's `Declaration`."""
        return Declaration(
            key=self.asset_key,
            name=self.name,
            project=_project(self.project),
            tables=tuple(table.to_domain(name) for name, table in self.tables.items()),
            relationships=tuple(
                Relationship(edge.many, edge.one, tuple(edge.on.items()))
                for edge in self.relationships
            ),
            create_project=self.create_project,
            adopt=self.adopt,
            on_schema_change=self.on_schema_change,
            rebase=self.rebase,
            rebase_after=self.rebase_after,
            oversize=self.oversize,
            payload_limit=int(self.payload_limit_mb * 1e6) if self.payload_limit_mb else None,
            types=TypePolicy(clock(self.timestamps), self.nested, self.floats),
            max_database_version=self.max_database_version,
            reconcile=reconcile(self.reconcile),
        )

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """Return the extract and the published data source, two assets of one step.

        The tables of lakes that feed them are external assets.
        """
        freshness = self.freshness.policy() if self.freshness else None
        refreshed = refresh_assets(self.declaration, self.trigger, freshness)
        return dg.Definitions(assets=[refreshed, *lake_assets(self.declaration)])


def _project(project: str | list[str] | ProjectAttributes) -> Project:
    if isinstance(project, ProjectAttributes):
        return ProjectLuid(project.luid)
    return project if isinstance(project, str) else tuple(project)
