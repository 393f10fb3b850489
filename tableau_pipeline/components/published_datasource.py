"""The component PublishedDatasource, and the step that refreshes its two assets."""

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from inspect import isclass
from pathlib import Path
from string import Template
from typing import Any, Self
from unicodedata import normalize

import dagster as dg
import yaml
from pydantic import Field, field_validator, model_validator

from tableau_pipeline.components.asset_names import asset_keys, safe_name, step_name
from tableau_pipeline.components.column_descriptions import inherited_fields
from tableau_pipeline.components.freshness import Freshness, data_age
from tableau_pipeline.components.journal import collect_snapshots, journal_of_step, setup_of
from tableau_pipeline.components.location import location_graph
from tableau_pipeline.components.rejected import rejected_models
from tableau_pipeline.components.reporting import (
    check_results,
    check_specs,
    dry_run_observation,
    extract_result,
    failed_checks,
    held_observation,
    published_result,
    tag_run,
)
from tableau_pipeline.components.triggers import Trigger, automation_conditions
from tableau_pipeline.components.yaml_component import DeclarationError, YamlComponent
from tableau_pipeline.core.declaration import Declaration, in_environment
from tableau_pipeline.core.hold import Hold
from tableau_pipeline.core.identity import asset_key_of
from tableau_pipeline.core.snapshot import Snapshot, Snapshots
from tableau_pipeline.dagster_internals import USER_TAG, AssetGraph, ComponentLoaderDecl
from tableau_pipeline.errors import HeldError, RefreshError
from tableau_pipeline.lake.tables import with_lakes
from tableau_pipeline.outcome import Accept
from tableau_pipeline.refresh.approval import Approval
from tableau_pipeline.refresh.decide import Options
from tableau_pipeline.refresh.plan_file import read_entry
from tableau_pipeline.refresh.planning import Planned
from tableau_pipeline.refresh.refresh import build, plan, refresh, rollback
from tableau_pipeline.refresh.report import Built, Done, Refreshed
from tableau_pipeline.refresh.saved_plan import SavedPlan
from tableau_pipeline.refresh.setup import Setup
from tableau_pipeline.resources import (
    HyperResource,
    SnapshotIOManager,
    TableauServerResource,
    tableau_project_root,
)
from tableau_pipeline.resources.services import as_failure
from tableau_pipeline.yaml_keys import guess, keyed, mistake


@dataclass(frozen=True, slots=True)
class ModelSnapshots:
    """Implements `core.snapshot.Snapshots` for the models of a step.

    Attributes:
        definitions: maps the asset key of a model to its partitions definition, or to None for a
            model without partitions. Models of other code locations may be missing. The newest
            version of a model leaves out partitions that only an earlier definition had.
    """

    snapshots: SnapshotIOManager
    definitions: Mapping[str, dg.PartitionsDefinition | None]

    def newest(self, asset_key: str) -> Snapshot | None:
        """Return the newest version of a model; None if the model has no version."""
        return self.snapshots.snapshot(asset_key, self.definitions.get(asset_key))

    def version(self, asset_key: str, number: int) -> Snapshot | None:
        """Return a version of a model; None if the version was removed."""
        return self.snapshots.store.version(asset_key, number)


def snapshots_of(
    declaration: Declaration, snapshots: SnapshotIOManager, graph: AssetGraph | None
) -> Snapshots:
    """Return the snapshots of a data source's models, including lake tables.

    Args:
        graph: the asset graph of the code location, with the models' partitions definitions; None
            if the graph is unknown.
    """
    keys = {model: dg.AssetKey.from_user_string(model) for model in declaration.models}
    definitions = {
        model: graph.get(key).partitions_def
        for model, key in keys.items()
        if graph and graph.has(key)
    }
    stored = ModelSnapshots(snapshots, definitions)
    has_lakes = any(table.source for table in declaration.tables)
    return with_lakes(stored, declaration, snapshots.copies) if has_lakes else stored


# The pool of the steps that sign in to Tableau. The instance limits how many steps of a pool run at
# once.
POOL = "tableau"


class RefreshConfig(dg.Config):
    """The options of a single refresh, from the run config."""

    dry_run: bool = Field(default=False, description="Plan and report, but change nothing.")
    build_only: bool = Field(default=False, description="Build the full .hyper file, and stop.")
    full: bool = Field(default=False, description="Publish everything, even if nothing changed.")
    metadata_only: bool = Field(
        default=False,
        description="Publish the declared metadata, with the rows of the last refresh.",
    )
    rollback: int = Field(
        default=0,
        description="Number of an earlier refresh. Publish its rows and metadata again, and hold "
        "the data source until a user releases it. Excludes build_only, metadata_only, accept, "
        "approval and plan.",
    )
    why: str = Field(
        default="", description="Reason for the rollback, shown to everyone who sees the hold."
    )
    by: str = Field(
        default="",
        description="User who requests the refresh, for the records. Default: the user who "
        "launched the run, if Dagster knows the user; otherwise the run itself.",
    )
    accept: list[str] = Field(
        default_factory=list,
        description=f"What to accept once instead of refusing: {', '.join(Accept)}.",
    )
    approval: dict[str, Any] = Field(
        default_factory=dict,
        description="Refuse changes that this approval does not cover. The approval is an entry "
        "in the file of `tableau-pipeline plan --base REV --out FILE`.",
    )
    plan: dict[str, Any] = Field(
        default_factory=dict,
        description="Carry out exactly this plan, or refuse. The plan is an entry in the file of "
        "`tableau-pipeline plan --out FILE`.",
    )
    samples: bool = Field(
        default=False, description="Show some values of rows in the message of a refusal."
    )

    @field_validator("accept")
    @classmethod
    def _check_accept(cls, accept: list[str]) -> list[str]:
        choices = [str(choice) for choice in Accept]
        if unknown := [name for name in accept if name not in choices]:
            raise ValueError(f"accept: {unknown[0]!r} is not one of {', '.join(choices)}")
        return accept

    @model_validator(mode="after")
    def _check_rollback(self) -> Self:
        # A rollback would contradict or ignore each of these options.
        others = ("build_only", "metadata_only", "accept", "approval", "plan")
        if self.rollback and (given := [name for name in others if getattr(self, name)]):
            raise ValueError(f"rollback: it excludes {', '.join(given)}: leave out one of them")
        return self

    @property
    def sends(self) -> bool:
        """Whether the run may change the server."""
        return not (self.dry_run or self.build_only)

    def carry_out(self, setup: Setup, *, user: str | None = None) -> Done:
        """Refresh the data source or roll it back; or only plan this, or only build the file.

        Args:
            user: the user who launched the run; None if the user is unknown.
        """
        by = self.by or user or setup.journal.owner.label
        setup = replace(setup, samples=self.samples)
        options = Options(
            full=self.full,
            metadata_only=self.metadata_only,
            accept=frozenset(map(Accept, self.accept)),
            by=by,
            approval=read_entry(Approval, self.approval) if self.approval else None,
            saved=read_entry(SavedPlan, self.plan) if self.plan else None,
        )
        if self.rollback:
            hold = Hold(by=by, why=self.why, version=self.rollback)
            return rollback(setup, hold, dry_run=self.dry_run)
        if self.dry_run:
            return plan(setup, options)
        return build(setup, options) if self.build_only else refresh(setup, options)


def refresh_assets(
    declaration: Declaration, trigger: Trigger | None, freshness: Freshness | None = None
) -> dg.AssetsDefinition:
    """Return the assets `<key>_extract` and `<key>`; `trigger` sets their automation conditions."""

    @dg.multi_asset(
        name=step_name(declaration.key),
        **_outputs(*_specs(declaration, trigger, freshness)),
        check_specs=check_specs(declaration, has_deadline=bool(freshness)),
        pool=POOL,
    )
    def refresh_step(
        context: dg.AssetExecutionContext,
        config: RefreshConfig,
        snapshots: dg.ResourceParam[SnapshotIOManager],
        hyper: HyperResource,
        tableau: TableauServerResource,
    ) -> Iterator[dg.MaterializeResult | dg.AssetCheckResult]:
        with as_failure(context.log, step=step_name(declaration.key)):
            setup = _setup_of_step(
                context,
                declaration,
                trigger,
                snapshots=snapshots,
                hyper=hyper,
                tableau=tableau,
                keep_files=config.build_only,
            )
            try:
                done = config.carry_out(setup, user=context.run.tags.get(USER_TAG))
            except RefreshError as error:
                yield from _stopped(context, declaration, error)
                if not isinstance(error, HeldError):
                    raise
                done = None
        if done:
            tag_run(context, declaration, done)
            yield from check_results(context.instance, declaration, done)
        if freshness:
            yield data_age(declaration, freshness, setup.snapshots, setup.journal)
        if isinstance(done, Planned):
            context.log_event(dry_run_observation(declaration, done))
        elif done:
            yield from _asset_results(context, declaration, done)
        if isinstance(done, Refreshed):
            collect_snapshots(context, snapshots)

    return refresh_step


def _setup_of_step(
    context: dg.AssetExecutionContext,
    declaration: Declaration,
    trigger: Trigger | None,
    *,
    snapshots: SnapshotIOManager,
    hyper: HyperResource,
    tableau: TableauServerResource,
    keep_files: bool,
) -> Setup:
    graph = location_graph(context)
    return setup_of(
        declaration,
        journal_of_step(context, declaration.key),
        snapshots=snapshots_of(declaration, snapshots, graph),
        hyper=hyper,
        tableau=tableau,
        inherited=inherited_fields(declaration, graph, trigger),
        rejected=partial(rejected_models, context.instance, graph, declaration.models),
        keep_files=keep_files,
        log=context.log,
    )


def _stopped(
    context: dg.AssetExecutionContext, declaration: Declaration, error: RefreshError
) -> Iterator[dg.AssetCheckResult]:
    """Report a refused, failed or held refresh in Dagster."""
    tag_run(context, declaration, error)
    if isinstance(error, HeldError):
        context.log.warning("%s", error)
        context.log_event(held_observation(declaration, error))
    yield from failed_checks(context.instance, declaration, error)


def _asset_results(
    context: dg.AssetExecutionContext, declaration: Declaration, done: Refreshed | Built
) -> Iterator[dg.MaterializeResult]:
    if done.extract:
        yield extract_result(declaration, done)
    if isinstance(done, Refreshed):
        yield published_result(context, declaration, done)


def _outputs(extract: dg.AssetSpec, published: dg.AssetSpec) -> dict[str, Any]:
    """Return the arguments with which `dg.multi_asset` makes both assets.

    The outputs are named "extract" and "published". If Dagster had only the specs, it would derive
    the names of the outputs from the asset keys.
    """
    models = {dep.asset_key for dep in extract.deps}
    return {
        "outs": {"extract": _out(extract), "published": _out(published)},
        "deps": models,
        "internal_asset_deps": {"extract": models, "published": {extract.key}},
    }


def _out(spec: dg.AssetSpec) -> dg.AssetOut:
    return dg.AssetOut(
        key=spec.key,
        description=spec.description,
        kinds=set(spec.kinds),
        group_name=spec.group_name,
        is_required=not spec.skippable,
        automation_condition=spec.automation_condition,
        freshness_policy=spec.freshness_policy,
        dagster_type=dg.Nothing,
    )


def _specs(
    declaration: Declaration, trigger: Trigger | None, freshness: Freshness | None
) -> list[dg.AssetSpec]:
    """Return the specs of the extract and of the published data source.

    Both assets are skippable, because a run may only build the file, or change nothing. Both assets
    are in one group, which Dagster's lineage can show as one box.
    """
    group = safe_name(declaration.key)
    extract, published = asset_keys(declaration.key)
    models = [dg.AssetKey.from_user_string(model) for model in declaration.models]
    project = in_environment(declaration, tableau_project_root()).project_path
    tables = ", ".join(table.name for table in declaration.tables)
    after_models, together = automation_conditions(trigger, models)
    return [
        dg.AssetSpec(
            extract,
            deps=models,
            description=f"The .hyper file of a refresh, with the tables {tables}.",
            kinds={"hyper"},
            group_name=group,
            skippable=True,
            automation_condition=after_models,
        ),
        dg.AssetSpec(
            published,
            deps=[extract],
            description=(
                f'The data source "{declaration.name}" in the Tableau project '
                f'"{project}", made equal to its models by every refresh.'
            ),
            kinds={"tableau"},
            group_name=group,
            skippable=True,
            automation_condition=together,
            freshness_policy=freshness.policy() if freshness else None,
        ),
    ]


def lake_assets(declaration: Declaration) -> list[dg.AssetSpec]:
    """Return an external asset for each lake table of a data source."""
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


_TEMPLATE = Path(__file__).with_name("new_project") / "datasource.yaml"


class PublishedDatasourceScaffolder(dg.Scaffolder):
    """Writes a valid `defs.yaml`, with a comment on each key."""

    def scaffold(self, request: dg.ScaffoldRequest) -> None:
        """Write the file, which names the data source, the table and the model after the folder.

        Raises:
            ValueError: a `defs.yaml` already exists, or the folder's name yields no asset key.
        """
        file = request.target_path / "defs.yaml"
        if file.exists():
            raise ValueError(f"{file} already exists: choose another name, or remove it")
        names = _template_values(request.target_path.name)
        template = Template(_TEMPLATE.read_text("utf-8"))
        request.target_path.mkdir(parents=True, exist_ok=True)
        file.write_text(template.substitute(names), "utf-8")


def _template_values(folder: str) -> dict[str, str]:
    """Derive the values of the template's placeholders from a folder's name.

    Values are in quotes where YAML needs quotes. Without quotes, `2024` and `on` would not be
    strings.

    Raises:
        ValueError: the folder's name yields no asset key.
    """
    title = re.sub(r"[\W_]+", " ", folder).strip().title()
    # Asset keys are ASCII only: "Über" becomes "uber".
    ascii_title = normalize("NFKD", title).encode("ascii", "ignore").decode()
    key = asset_key_of(ascii_title.strip())
    if not key:
        raise ValueError(
            f'"{folder}" has no letter from A to Z and no digit, but an asset key needs one: '
            "choose another folder, and then set `name` in its defs.yaml as you like"
        )
    # A model is a Python function, and its name cannot begin with a digit.
    model = f"{key}_rows" if key.isidentifier() else f"rows_of_{key}"
    is_derived = asset_key_of(title) == key
    return {
        "title": _as_yaml(title),
        "key": f"# key: {key}" if is_derived else f"key: {_as_yaml(key)}",
        "table": _as_yaml(key),
        "model": model,
    }


def _as_yaml(text: str) -> str:
    return yaml.safe_dump(text, allow_unicode=True, width=math.inf).removesuffix("...\n").strip()


@dg.scaffold_with(PublishedDatasourceScaffolder)
@keyed
class PublishedDatasource(YamlComponent, Declaration):
    """A published Tableau data source that refreshes make equal to its Spark models."""

    freshness: Freshness | None = Field(
        default=None,
        description='The deadline for fresh data: {by: "07:00", timezone: Europe/Paris} or '
        "{within: 24h}.",
    )
    trigger: Trigger | None = Field(
        default=None, description="What starts a refresh. Default: by hand only."
    )

    @model_validator(mode="after")
    def _has_a_key_of_its_own(self) -> Self:
        origin = ("name",) if self.key == asset_key_of(self.name) else ("key",)
        # A default key keeps only ASCII letters and digits, so a Japanese name yields only "_".
        if not self.key.strip("_/"):
            problem = f'this gives the asset key "{self.key}": set `key` to a meaningful one'
            raise mistake(origin, problem)
        if "@" in self.key:
            # The part of a key after the "@" names an environment, see `core.declaration`.
            raise mistake(origin, f'this gives the asset key "{self.key}": set `key` without "@"')
        if clash := {self.key, f"{self.key}_extract"} & set(self.models):
            problem = f'this gives the asset key "{clash.pop()}", which a model already has: '
            raise mistake(origin, problem + "set `key` to another one")
        fresh_models = self.freshness.models if self.freshness else None
        for unknown in sorted(set(fresh_models or ()) - set(self.models)):
            problem = f'this data source has no model "{unknown}": {guess(unknown, self.models)}'
            listed = f"Its models are {', '.join(self.models)}"
            raise mistake(("freshness", "models"), problem + listed)
        return self

    def get_asset_spec(self, spec: dg.AssetSpec) -> dg.AssetSpec:
        """Return the spec of an asset. Override this method to set owners, tags or a group.

        Args:
            spec: the spec of the extract or of the published data source, as derived from the
                declaration. Dagster refuses a returned spec with another key.
        """
        return spec

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """Return the extract and the published data source, which one step makes.

        The definitions also contain the lake tables, as external assets.

        Raises:
            DeclarationError: a function returned this component, but is not annotated with
                `-> PublishedDatasource`. Then schedules, sensors and audits would not find the data
                source.
        """
        decl = context.component_decl
        if isinstance(decl, ComponentLoaderDecl) and not (
            isclass(decl.component_type) and issubclass(decl.component_type, PublishedDatasource)
        ):
            function: Any = decl.component_node_fn
            code = function.__code__
            raise DeclarationError(
                f"{code.co_filename}:{code.co_firstlineno}: no schedule, sensor or audit would "
                f"find this data source: write `-> PublishedDatasource` after "
                f"{function.__name__}(...), as a class and not as a text"
            )
        assets = refresh_assets(self, self.trigger, self.freshness)
        customized = assets.map_asset_specs(self.get_asset_spec)
        return dg.Definitions(assets=[customized, *lake_assets(self)])
