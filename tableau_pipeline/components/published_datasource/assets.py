"""The two assets of a declared data source, made by one non-subsettable step."""

from collections.abc import Iterator

import dagster as dg
from pydantic import Field, field_validator

from tableau_pipeline.components.asset_keys import extract_key
from tableau_pipeline.components.attributes.triggers import Trigger
from tableau_pipeline.components.published_datasource.checks import (
    check_results,
    check_specs,
    failed_checks,
)
from tableau_pipeline.components.published_datasource.column_schema import descriptions_of
from tableau_pipeline.components.published_datasource.metadata import (
    dry_run_observation,
    extract_result,
    published_result,
    run_tags,
)
from tableau_pipeline.components.published_datasource.model_snapshots import (
    partitions_of,
    snapshots_of,
)
from tableau_pipeline.components.published_datasource.trigger import (
    automation_condition,
    follows_extract,
)
from tableau_pipeline.components.refresh_in_run import refresh_in_run
from tableau_pipeline.components.snapshot_retention import collect_snapshots
from tableau_pipeline.core.declaration import Declaration
from tableau_pipeline.errors import RefreshError, RefusedError
from tableau_pipeline.refresh.plan.decide import Accept, Options
from tableau_pipeline.refresh.refresh import Refresh
from tableau_pipeline.resources import HyperResource, SnapshotIOManager, TableauServerResource
from tableau_pipeline.resources.failures import as_failure

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
        refresh = _refresh(
            context, config, declaration, snapshots=snapshots, hyper=hyper, tableau=tableau
        )
        with as_failure(context.log, step=step):
            try:
                report = refresh.run(config.options())
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


def _refresh(
    context: dg.AssetExecutionContext,
    config: RefreshConfig,
    declaration: Declaration,
    *,
    snapshots: SnapshotIOManager,
    hyper: HyperResource,
    tableau: TableauServerResource,
) -> Refresh:
    graph = context.job_def.asset_layer.asset_graph
    return refresh_in_run(
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
