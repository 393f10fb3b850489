"""The component PublishedDatasource."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from string import Template
from typing import Any, Literal, Self

import dagster as dg
from dagster._core.definitions.assets.graph.asset_graph import AssetGraph
from pydantic import Field, field_validator, model_validator

from tableau_pipeline.components.asset_keys import asset_key_of, extract_key
from tableau_pipeline.components.attributes import (
    FreshnessAttributes,
    ReconcileAttributes,
    RelationshipAttributes,
    TableAttributes,
    Timestamps,
    Trigger,
    clock,
    reconcile,
)
from tableau_pipeline.components.journal import setup_in_run
from tableau_pipeline.components.mistakes import Attributes, guess, keys, mistake
from tableau_pipeline.components.reporting import (
    check_results,
    check_specs,
    descriptions_of,
    dry_run_observation,
    extract_result,
    failed_checks,
    published_result,
    run_tags,
)
from tableau_pipeline.components.retention import collect_snapshots
from tableau_pipeline.components.triggers import automation_condition, follows_extract
from tableau_pipeline.components.yaml_component import YamlComponent
from tableau_pipeline.core.declaration import Declaration, Project, ProjectLuid
from tableau_pipeline.core.snapshot import Snapshot, Snapshots
from tableau_pipeline.errors import RefreshError, RefusedError
from tableau_pipeline.hyper.tables import Relationship, tree_problem
from tableau_pipeline.hyper.types import TypePolicy
from tableau_pipeline.lake.tables import with_lakes
from tableau_pipeline.refresh.plan import Accept, Options
from tableau_pipeline.refresh.refresh import Setup, refresh
from tableau_pipeline.resources import HyperResource, SnapshotIOManager, TableauServerResource
from tableau_pipeline.resources.failures import as_failure

# The snapshots of a data source's models, by their current definitions.


@dataclass(frozen=True, slots=True)
class ModelSnapshots:
    """Implements `core.snapshot.Snapshots` for the models of a step.

    Attributes:
        definitions: the partitions definition of each model, by asset key. Partitions that only
            an earlier definition had are ignored. None for models of other code locations.
    """

    snapshots: SnapshotIOManager
    definitions: Mapping[str, dg.PartitionsDefinition | None]

    def newest(self, asset_key: str) -> Snapshot | None:
        """Return the newest version of a model; None if it has none."""
        return self.snapshots.snapshot(asset_key, self.definitions.get(asset_key))

    def version(self, asset_key: str, number: int) -> Snapshot | None:
        """Return a version of a model; None if it was removed."""
        return self.snapshots.store.version(asset_key, number)


def snapshots_of(
    declaration: Declaration,
    snapshots: SnapshotIOManager,
    definitions: Mapping[str, dg.PartitionsDefinition | None],
) -> Snapshots:
    """Return the snapshots of a data source's models, tables of lakes included."""
    return with_lakes(ModelSnapshots(snapshots, definitions), declaration, snapshots.copies)


def partitions_of(
    graph: AssetGraph, models: tuple[str, ...]
) -> dict[str, dg.PartitionsDefinition | None]:
    """Return the partitions definitions of these models, where the graph has them."""
    keys = {model: dg.AssetKey.from_user_string(model) for model in models}
    return {model: graph.get(key).partitions_def for model, key in keys.items() if graph.has(key)}


# The two assets of a declared data source, made by one non-subsettable step.


# The pool of the runs that sign in to Tableau; the instance limits how many run at once.
POOL = "tableau"


class RefreshConfig(dg.Config):
    """Options of a single run."""

    dry_run: bool = Field(default=False, description="Plan and report, but change nothing.")
    publish: bool = Field(default=True, description="false: build the whole .hyper file, and stop.")
    full: bool = Field(default=False, description="Send everything, even if nothing changed.")
    accept: list[str] = Field(
        default_factory=list,
        description="What to accept once instead of refusing it: shrink, schema, overwrite, "
        "takeover.",
    )

    @field_validator("accept")
    @classmethod
    def _known(cls, accept: list[str]) -> list[str]:
        known = [str(each) for each in Accept]
        if unknown := [each for each in accept if each not in known]:
            raise ValueError(f"accept: {unknown[0]!r} is not one of {', '.join(known)}")
        return accept

    def options(self) -> Options:
        """Convert this config to the options of a refresh."""
        return Options(
            dry_run=self.dry_run,
            publish=self.publish,
            full=self.full,
            accept=frozenset(map(Accept, self.accept)),
        )


def refresh_assets(
    declaration: Declaration,
    trigger: Trigger | None,
    freshness: dg.FreshnessPolicy | None = None,
) -> dg.AssetsDefinition:
    """Return `<key>_extract`, which gets the trigger as its automation condition, and `<key>`."""
    published = dg.AssetKey.from_user_string(declaration.key)
    step = declaration.key.replace("/", "__")

    @dg.multi_asset(
        name=step,
        specs=_specs(declaration, trigger, freshness),
        check_specs=check_specs(declaration, published),
        pool=POOL,
    )
    def refresh_step(
        context: dg.AssetExecutionContext,
        config: RefreshConfig,
        snapshots: dg.ResourceParam[SnapshotIOManager],
        hyper: HyperResource,
        tableau: TableauServerResource,
    ) -> Iterator[dg.MaterializeResult | dg.AssetCheckResult]:
        setup = _setup(
            context, config, declaration, snapshots=snapshots, hyper=hyper, tableau=tableau
        )
        with as_failure(context.log, step=step):
            try:
                report = refresh(setup, config.options())
            except RefreshError as error:
                decided = "refuse" if isinstance(error, RefusedError) else "failed"
                context.instance.add_run_tags(context.run.run_id, run_tags(declaration, decided))
                # Dagster takes no check result once the step has failed.
                yield from failed_checks(published, error)
                raise
        tags = run_tags(declaration, report.decision, dry_run=config.dry_run)
        context.instance.add_run_tags(context.run.run_id, tags)
        yield from check_results(declaration, published, report)
        if config.dry_run:
            context.log_event(dry_run_observation(published, declaration, report))
            return
        if report.extract:
            yield extract_result(extract_key(declaration.key), declaration, report)
        if report.checkpoint:
            descriptions = descriptions_of(context, declaration)
            yield published_result(published, declaration, report, descriptions)
            collect_snapshots(context, snapshots)

    return refresh_step


def _setup(
    context: dg.AssetExecutionContext,
    config: RefreshConfig,
    declaration: Declaration,
    *,
    snapshots: SnapshotIOManager,
    hyper: HyperResource,
    tableau: TableauServerResource,
) -> Setup:
    graph = context.job_def.asset_layer.asset_graph
    return setup_in_run(
        context,
        declaration,
        snapshots=snapshots_of(declaration, snapshots, partitions_of(graph, declaration.models)),
        hyper=hyper,
        tableau=tableau,
        keep_files=not config.publish,
    )


def _specs(
    declaration: Declaration, trigger: Trigger | None, freshness: dg.FreshnessPolicy | None
) -> list[dg.AssetSpec]:
    """Both assets; either is left out of a run that built or published nothing."""
    extract = extract_key(declaration.key)
    models = [dg.AssetKey.from_user_string(model) for model in declaration.models]
    tables = ", ".join(table.name for table in declaration.tables)
    return [
        dg.AssetSpec(
            extract,
            deps=models,
            description=f"The .hyper file of a refresh, with the tables {tables}.",
            kinds={"hyper"},
            skippable=True,
            automation_condition=automation_condition(trigger, models),
        ),
        dg.AssetSpec(
            dg.AssetKey.from_user_string(declaration.key),
            deps=[extract],
            description=(
                f'The data source "{declaration.name}" in the Tableau project '
                f'"{declaration.project_path}", made equal to its models by every refresh.'
            ),
            kinds={"tableau"},
            skippable=True,
            automation_condition=follows_extract(trigger),
            freshness_policy=freshness,
        ),
    ]


# The external assets of the tables of lakes.


def lake_assets(declaration: Declaration) -> list[dg.AssetSpec]:
    """Return an asset for each table of a lake; data sources may declare the same one."""
    return [
        dg.AssetSpec(
            dg.AssetKey.from_user_string(table.model),
            description=f"The {table.source.format.capitalize()} table {table.source.location}, "
            "read where it is.",
            kinds={table.source.format},
            metadata={"location": str(table.source.location)},
        )
        for table in declaration.tables
        if table.source
    ]


# `dg scaffold defs tableau_pipeline.components.PublishedDatasource <name>`.


_TEMPLATE = Path(__file__).with_name("new_datasource.yaml")


class PublishedDatasourceScaffolder(dg.Scaffolder):
    """Writes a `defs.yaml` that is valid as it stands, with a comment on each key."""

    def scaffold(self, request: dg.ScaffoldRequest) -> None:
        """Write the file. The folder's name becomes the name of data source, table and model.

        Raises:
            ValueError: the format is not YAML, or a `defs.yaml` already exists.
        """
        if request.scaffold_format != "yaml":
            raise ValueError(
                "This component is declared in YAML. In Python, use "
                "PublishedDatasource.from_attributes_dict(attributes={...})"
            )
        file = request.target_path / "defs.yaml"
        if file.exists():
            raise ValueError(f"{file} already exists: choose another name, or remove it")
        title = re.sub(r"[^A-Za-z0-9]+", " ", request.target_path.name).strip().title()
        name = asset_key_of(title)
        template = Template(_TEMPLATE.read_text("utf-8"))
        request.target_path.mkdir(parents=True, exist_ok=True)
        file.write_text(template.substitute(name=name, title=title), "utf-8")


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
