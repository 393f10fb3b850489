"""The job `publish_file`, which publishes files without any code."""

import hashlib
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast, get_args

import dagster as dg
from pydantic import Field, ValidationError, ValidationInfo, field_validator, model_validator

from tableau_pipeline.components.journal import (
    collect_snapshots,
    journal_of,
    journal_of_step,
    setup_of,
)
from tableau_pipeline.components.published_datasource import POOL, RefreshConfig
from tableau_pipeline.components.reporting import dry_run_observation, published_result, tag_run
from tableau_pipeline.core.declaration import (
    Declaration,
    Diff,
    Partitions,
    ReplaceAll,
    Table,
    in_environment,
)
from tableau_pipeline.core.identity import asset_key_of
from tableau_pipeline.errors import CredentialsError, FilesError, RefreshError, RefusedError
from tableau_pipeline.hyper.types import Nested
from tableau_pipeline.ingest.errors import READ_ERRORS, BadRows, Reading, reason
from tableau_pipeline.ingest.file_store import FileStore
from tableau_pipeline.ingest.options import Files, Format, check_options, format_of, matching_files
from tableau_pipeline.ingest.read_files import load
from tableau_pipeline.outcome import Code
from tableau_pipeline.refresh.planning import Planned
from tableau_pipeline.refresh.report import Done, Refreshed
from tableau_pipeline.resources import (
    HyperResource,
    SnapshotIOManager,
    SparkResource,
    TableauServerResource,
    tableau_project_root,
    work_dir,
)
from tableau_pipeline.resources.services import as_failure
from tableau_pipeline.snapshots.spark import runs_here

# How many of the newest runs that publish files are read.
_MAX_RUNS = 1000
_CHOICES = {
    "format": get_args(Format),
    "mode": ("replace", "append"),
    "bad_rows": ("refuse", "drop"),
    "nested": get_args(Nested),
}


class PublishFileConfig(RefreshConfig):
    """Which files to publish as which data source."""

    path: str = Field(
        min_length=1, description='A file, a folder, or a pattern such as "exports/*.csv".'
    )
    name: str = Field(min_length=1, description="Name of the data source on the Tableau site.")
    project: str = Field(default="Default", description='Path of the project, "A/B".')
    mode: str = Field(
        default="replace",
        description="replace: the data source holds the rows of these files only. append: "
        "they are added to those of earlier files; a file of the same name replaces its "
        "own rows.",
    )
    format: str | None = Field(
        default=None, description="csv, json or parquet. Default: by file name suffix."
    )
    reader: dict[str, str] = Field(
        default_factory=dict,
        description="Options for CSV and JSON: sep, decimal, thousands, encoding, "
        "dateFormat, timestampFormat, nullValue, header, ...",
    )
    columns: str | None = Field(
        default=None,
        description='Columns as a Spark schema, "id bigint, day date". Default: inferred.',
    )
    bad_rows: str = Field(
        default="refuse",
        description="Rows that do not fit the columns: refuse or drop. They are counted, "
        "and reported by line, column and value.",
    )
    key: list[str] = Field(
        default_factory=list,
        description="Columns that identify a row. With them, only changed rows are sent.",
    )
    file_column: str | None = Field(
        default=None,
        description="With mode append: name of a column to add, with the file name of "
        "each row. With it, only new and changed files are sent.",
    )
    nested: str = Field(
        default="refuse",
        description="Arrays, maps and structs of Parquet files: refuse, or publish as "
        "json text. Those of JSON files are always json text.",
    )
    create_project: bool = Field(default=False, description="Create the project if it is absent.")
    adopt: bool = Field(
        default=False,
        description="Take over a data source that this pipeline did not publish. Its rows "
        "are replaced; if work of people would go, it is refused, and needs accept: "
        "[overwrite].",
    )

    # Dagster's config classes do not support Literal.
    @field_validator(*_CHOICES)
    @classmethod
    def _one_of(cls, value: str | None, info: ValidationInfo) -> str | None:
        choices = _CHOICES[str(info.field_name)]
        if value is not None and value not in choices:
            raise ValueError(f"{value!r} is not one of {', '.join(choices)}")
        return value

    @model_validator(mode="after")
    def _consistent(self) -> "PublishFileConfig":
        if self.file_column and self.mode != "append":
            raise ValueError("file_column needs mode append")
        # Until the files are found the format may be unknown, so an option of any format passes.
        formats = (cast("Format", self.format),) if self.format else get_args(Format)
        try:
            check_options(self.reader, *formats)
        except RefusedError as error:
            raise ValueError(str(error)) from error
        # A declaration checks its name and its project.
        self.declaration()
        return self

    def declaration(self) -> Declaration:
        """Return the declaration of the data source, with a key that no YAML or code declares."""
        # The hash separates names that differ only in special characters or in the project.
        place = hashlib.sha256(f"{self.project}/{self.name}".encode()).hexdigest()[:8]
        key, policy = f"{KEY_PREFIX}{asset_key_of(self.name)}_{place}", ReplaceAll()
        if self.key:
            policy = Diff(tuple(self.key))
        elif self.file_column:
            policy = Partitions(self.file_column)
        return Declaration(
            key=key,
            name=self.name,
            project=self.project,
            tables=(Table(self.name, f"{key}/rows", policy=policy),),
            create_project=self.create_project,
            adopt=self.adopt,
            nested=cast("Nested", self.nested),
        )


# The tag of the runs that publish files; only their config declares the data source.
FILES_TAG = {"tableau/from": "files"}
# The name of the step, and the prefix of the keys of such data sources.
STEP, KEY_PREFIX = "publish_files", "files/"


def published_files(instance: dg.DagsterInstance) -> Mapping[str, tuple[Declaration, dg.RunRecord]]:
    """Return the data sources that runs of `publish_file` published or failed to publish, by key.

    Each comes with the newest such run.
    """
    published: dict[str, tuple[Declaration, dg.RunRecord]] = {}
    for record in instance.get_run_records(dg.RunsFilter(tags=FILES_TAG), limit=_MAX_RUNS):
        # A user may have entered an invalid config in the launchpad.
        with suppress(LookupError, TypeError, ValidationError):
            run_config: Any = record.dagster_run.run_config
            config = PublishFileConfig(**run_config["ops"][STEP]["config"])
            if config.sends:
                declaration = config.declaration()
                published.setdefault(declaration.key, (declaration, record))
    return published


@dg.op(name=STEP, pool=POOL)
def publish_files(
    context: dg.OpExecutionContext,
    config: PublishFileConfig,
    spark: SparkResource,
    snapshots: dg.ResourceParam[SnapshotIOManager],
    hyper: HyperResource,
    tableau: TableauServerResource,
) -> None:
    """Make a published data source equal to the given files."""
    declaration = config.declaration()
    with as_failure(context.log), ExitStack() as scratch:
        file_store = FileStore(
            store=snapshots.store,
            read=lambda: _read_files(context, config, spark, scratch=scratch),
            run_id=context.run.run_id,
            # Called when it is this run's turn: an earlier run may have published another version.
            built_on=(lambda: _published_version(context, config, tableau))
            if config.mode == "append"
            else None,
            file_column=config.file_column,
            drop_bad_rows=config.bad_rows == "drop",
        )
        setup = setup_of(
            declaration,
            journal_of_step(context, declaration.key),
            snapshots=file_store,
            hyper=hyper,
            tableau=tableau,
            keep_files=config.build_only,
            log=context.log,
        )
        try:
            done = config.carry_out(setup)
        except RefreshError as error:
            tag_run(context, declaration, error)
            # Refused credentials say nothing about a file.
            if isinstance(error, RefusedError) and not isinstance(error, CredentialsError):
                first, *others = error.refusals
                first = replace(first, text=f"{config.path}: {first.text}")
                raise RefusedError(first, *others) from error
            raise
        finally:
            if not config.sends:
                file_store.forget()
    bad_rows = file_store.read_rows.bad if file_store.read_rows else None
    _report(context, config, done, bad_rows)
    if isinstance(done, Refreshed):
        collect_snapshots(context, snapshots)


def _report(
    context: dg.OpExecutionContext, config: PublishFileConfig, done: Done, bad: BadRows | None
) -> None:
    declaration = config.declaration()
    if bad:
        left_out = f"Left out {bad.total:,} row{'s' * (bad.total > 1)} that do not fit the columns"
        # Log this after the summary, because users read the last line.
        context.log.warning("%s: %s: %s", declaration.name, left_out, "; ".join(bad.examples))
    tag_run(context, declaration, done)
    if isinstance(done, Planned):
        context.log_event(dry_run_observation(declaration, done))
    elif isinstance(done, Refreshed):
        results = published_result(context, declaration, done).metadata or {}
        metadata = {**results, "bad rows": bad.total if bad else 0}
        context.log_event(dg.AssetMaterialization(declaration.key.split("/"), metadata=metadata))


# The launchpad opens with the two keys that every run has to set.
@dg.job(config={"ops": {STEP: {"config": {"name": "", "path": ""}}}}, tags=FILES_TAG)
def publish_file() -> None:
    """Publish CSV, JSON or Parquet files. See the run config for options."""
    publish_files()


def _read_files(
    context: dg.OpExecutionContext,
    config: PublishFileConfig,
    spark: SparkResource,
    *,
    scratch: ExitStack,
) -> Reading:
    session = spark.spark_session
    try:
        paths = matching_files(config.path)
        format_ = cast("Format | None", config.format) or format_of(paths)
        files = Files(paths, format_, config.reader, config.columns)
        context.log.info("Reading %s", ", ".join(map(str, files.paths)))
        # Executors on other hosts can read the data folder if it is a path.
        parent = work_dir(keep=not runs_here(session))
        parent.mkdir(parents=True, exist_ok=True)
        folder = scratch.enter_context(TemporaryDirectory(prefix="files ", dir=parent))
        return load(session, files, Path(folder))
    except READ_ERRORS as error:
        raise FilesError(reason(error)) from error


def _published_version(
    context: dg.OpExecutionContext, config: PublishFileConfig, tableau: TableauServerResource
) -> int | None:
    """Return the published version of the rows; None if there is no data source to add to.

    This may not be the newest stored version, which may have been refused.

    Raises:
        RefusedError: the data source exists, but no record says which version it holds.
    """
    declaration = config.declaration()
    (model,) = declaration.models
    journal = journal_of(context.instance, declaration.key)
    version = journal.history().published_version(model)
    # A build does not sign in to the server, so its file may lack the rows of earlier files.
    if version is None and not config.build_only:
        target = in_environment(declaration, tableau_project_root())
        with tableau.session(context.log) as server:
            project = server.find_project(target.project)
            if project and (remote := server.find_by_name(target.name, project_id=project)):
                raise RefusedError(
                    f'A data source "{remote.name}" exists in project "{target.project_path}", but '
                    "no record says which rows it holds, so nothing can be added to them: publish "
                    "all files with mode replace first",
                    code=Code.PUBLISHED_VERSION,
                )
    return version
