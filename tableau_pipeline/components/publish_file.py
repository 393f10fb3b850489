"""The job `publish_file`, which publishes files by its run config, without code."""

from dataclasses import fields, replace
from typing import Any, get_args

import dagster as dg
from pydantic import Field, ValidationInfo, field_validator, model_validator

from tableau_pipeline.components.journal import collect_snapshots, journal_of_step, setup_of
from tableau_pipeline.components.published_datasource import POOL, RefreshConfig
from tableau_pipeline.components.reporting import dry_run_observation, published_result, tag_run
from tableau_pipeline.core.declaration import Declaration
from tableau_pipeline.dagster_internals import USER_TAG
from tableau_pipeline.errors import CredentialsError, RefreshError, RefusedError
from tableau_pipeline.hyper.types import Nested
from tableau_pipeline.ingest.errors import BadRows
from tableau_pipeline.ingest.options import Format
from tableau_pipeline.ingest.publication import (
    BadRowsPolicy,
    FilePublication,
    Mode,
    published_version,
)
from tableau_pipeline.refresh.planning import Planned
from tableau_pipeline.refresh.report import Done, Refreshed
from tableau_pipeline.resources import (
    HyperResource,
    SnapshotIOManager,
    TableauServerResource,
    tableau_project_root,
)
from tableau_pipeline.resources.services import as_failure

_CHOICES = {
    "format": get_args(Format),
    "mode": get_args(Mode),
    "bad_rows": get_args(BadRowsPolicy),
    "nested": get_args(Nested),
}


class PublishFileConfig(RefreshConfig):
    """The files to publish, the data source, and the options."""

    path: str = Field(
        min_length=1, description='A file, a folder, or a pattern such as "exports/*.csv".'
    )
    name: str = Field(min_length=1, description="Name of the data source on the Tableau site.")
    project: str = Field(default="Default", description='Path of the project, such as "A/B".')
    mode: str = Field(
        default="replace",
        description="replace: publish only the rows of these files. append: also keep the rows of "
        "earlier files; a file with the name of an earlier file replaces that file's rows.",
    )
    format: str | None = Field(
        default=None, description="csv, json or parquet. Default: by file name suffix."
    )
    reader: dict[str, str] = Field(
        default_factory=dict,
        description='Options of the reader, such as {sep: ";"}.',
    )
    columns: str | None = Field(
        default=None,
        description='Columns as a Spark schema, such as "id bigint, day date". Default: inferred.',
    )
    bad_rows: str = Field(
        default="refuse",
        description="What to do if rows do not fit the columns: refuse the publish, or drop these "
        "rows. The run counts and reports the rows.",
    )
    key: list[str] = Field(
        default_factory=list,
        description="Columns that identify a row. With such a key, only changed rows are sent.",
    )
    file_column: str | None = Field(
        default=None,
        description="With mode append: name of a new column with the file name of each row. With "
        "this column, only new and changed files are sent.",
    )
    nested: str = Field(
        default="refuse",
        description="Arrays, maps and structs of Parquet files: refuse them, or publish them as "
        "JSON text (json). Nested values of JSON files are always published as JSON text.",
    )
    create_project: bool = Field(default=False, description="Create the project if it is absent.")
    adopt: bool = Field(
        default=False,
        description="Take over a data source that this pipeline did not publish. Its rows are "
        "replaced. If edits of people would be lost, the publish needs accept: [overwrite].",
    )

    # Check the choices here, because Dagster's config classes do not support Literal.
    @field_validator(*_CHOICES)
    @classmethod
    def _one_of(cls, value: str | None, info: ValidationInfo) -> str | None:
        choices = _CHOICES[str(info.field_name)]
        if value is not None and value not in choices:
            raise ValueError(f"{value!r} is not one of {', '.join(choices)}")
        return value

    @model_validator(mode="after")
    def _consistent(self) -> "PublishFileConfig":
        try:
            self.publication()
        except RefusedError as error:
            raise ValueError(str(error)) from error
        return self

    def publication(self) -> FilePublication:
        """Return the publication that this config describes."""
        options: dict[str, Any] = {
            each.name: getattr(self, each.name)
            for each in fields(FilePublication)
            if each.name not in ("paths", "key")
        }
        return FilePublication(paths=(self.path,), key=tuple(self.key), **options)

    def declaration(self) -> Declaration:
        """Return the declaration of the data source that the files feed."""
        return self.publication().declaration()


# The tag of runs that publish files. Find these runs by the tag, because the data source of such a
# run is declared only in the config of the run.
FILES_TAG = {"tableau/from": "files"}
# The name of the step that publishes files.
STEP = "publish_files"


@dg.op(name=STEP, pool=POOL)
def publish_files(
    context: dg.OpExecutionContext,
    config: PublishFileConfig,
    snapshots: dg.ResourceParam[SnapshotIOManager],
    hyper: HyperResource,
    tableau: TableauServerResource,
) -> None:
    """Publish the rows of the given files to a data source."""
    publication = config.publication()
    declaration = publication.declaration()
    with as_failure(context.log):
        journal = journal_of_step(context, declaration.key)
        file_store = publication.store(
            snapshots.store,
            run_id=context.run.run_id,
            # Called once this run excludes all other refreshes, which may publish until then.
            published=lambda: published_version(
                declaration,
                journal,
                root=tableau_project_root(),
                server=None if config.build_only else lambda: tableau.session(context.log),
            ),
            log=context.log,
        )
        setup = setup_of(
            declaration,
            journal,
            snapshots=file_store,
            hyper=hyper,
            tableau=tableau,
            keep_files=config.build_only,
            log=context.log,
        )
        try:
            done = config.carry_out(setup, user=context.run.tags.get(USER_TAG))
        except RefreshError as error:
            tag_run(context, declaration, error)
            # Name the file in a refusal. But refused credentials have nothing to do with the file.
            if isinstance(error, RefusedError) and not isinstance(error, CredentialsError):
                first, *others = error.refusals
                first = replace(first, problem=f"{config.path}: {first.problem}")
                raise RefusedError(first, *others) from error
            raise
        finally:
            if not config.sends:
                file_store.forget()
    bad_rows = file_store.rows.bad if file_store.rows else None
    _report(context, config, done, bad_rows)
    if isinstance(done, Refreshed):
        collect_snapshots(context, snapshots)


def _report(
    context: dg.OpExecutionContext, config: PublishFileConfig, done: Done, bad: BadRows | None
) -> None:
    declaration = config.declaration()
    if bad:
        left_out = f"Left out {bad.total:,} row{'s' * (bad.total > 1)} that do not fit the columns"
        # Log the bad rows after the summary, because users read the last line.
        context.log.warning("%s: %s: %s", declaration.name, left_out, "; ".join(bad.examples))
    tag_run(context, declaration, done)
    if isinstance(done, Planned):
        context.log_event(dry_run_observation(declaration, done))
    elif isinstance(done, Refreshed):
        results = published_result(context, declaration, done).metadata or {}
        metadata = {**results, "bad rows": bad.total if bad else 0}
        context.log_event(dg.AssetMaterialization(declaration.key.split("/"), metadata=metadata))


# Fill the launchpad with the two keys that every run has to set.
@dg.job(config={"ops": {STEP: {"config": {"name": "", "path": ""}}}}, tags=FILES_TAG)
def publish_file() -> None:
    """Publish CSV, JSON or Parquet files. The run config describes the options."""
    publish_files()
