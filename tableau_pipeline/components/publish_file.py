"""A job that publishes files as they come, without code."""

import shutil
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from pathlib import Path
from typing import cast, get_args

import dagster as dg
from pydantic import Field, ValidationInfo, field_validator

from tableau_pipeline.components.assets import POOL, RefreshConfig
from tableau_pipeline.components.failures import as_failure
from tableau_pipeline.components.journal import DagsterJournal
from tableau_pipeline.components.keys import asset_key_of
from tableau_pipeline.components.report import dry_run_observation, published_result
from tableau_pipeline.hyper.tables import Column
from tableau_pipeline.hyper.type_policy import Nested, TypePolicy
from tableau_pipeline.refresh.declaration import Declaration, Table
from tableau_pipeline.refresh.errors import RefusedError
from tableau_pipeline.refresh.policy import Diff, Replace
from tableau_pipeline.refresh.step import Refresh
from tableau_pipeline.resources import (
    HyperResource,
    SnapshotIOManager,
    SparkResource,
    TableauServerResource,
    data_dir,
)
from tableau_pipeline.snapshots.collect import needed_by
from tableau_pipeline.snapshots.files import (
    READ_ERRORS,
    Files,
    Format,
    format_of,
    found_files,
    read_files,
    reason,
)
from tableau_pipeline.snapshots.storable import UnstorableError
from tableau_pipeline.snapshots.store import new_folder
from tableau_pipeline.snapshots.write import write_snapshot

_CHOICES = {
    "format": get_args(Format),
    "bad_rows": ("refuse", "drop"),
    "nested": get_args(Nested),
}


class PublishFileConfig(RefreshConfig):
    """Which files become which data source."""

    path: str = Field(description='A file, a folder, or a pattern such as "exports/*.csv".')
    name: str = Field(description="Name of the data source on the Tableau site.")
    project: str = Field(default="Default", description='Path of the project, "A/B".')
    format: str | None = Field(
        default=None, description="csv, json or parquet; default: by the files' ending."
    )
    reader: dict[str, str] = Field(
        default_factory=dict,
        description="Options of Spark's reader: sep, encoding, dateFormat, multiLine, header, ...",
    )
    columns: str | None = Field(
        default=None,
        description='Columns as Spark writes them, "id bigint, day date"; default: found out.',
    )
    bad_rows: str = Field(
        default="refuse",
        description="Rows that do not fit the columns: refuse, or drop; they are always counted.",
    )
    key: list[str] = Field(
        default_factory=list,
        description="Columns that identify a row: then only the rows that changed are sent.",
    )
    nested: str = Field(
        default="refuse", description="Arrays, maps and structs: refuse, or their text as json."
    )
    create_project: bool = Field(default=False, description="Create the project if it is absent.")
    adopt: bool = Field(
        default=False, description="Take over a data source that this pipeline did not publish."
    )

    # Dagster's configs know no Literal.
    @field_validator("format", "bad_rows", "nested")
    @classmethod
    def _one_of(cls, value: str | None, info: ValidationInfo) -> str | None:
        choices = _CHOICES[str(info.field_name)]
        if value is not None and value not in choices:
            raise ValueError(f"{value!r} is not one of {', '.join(choices)}")
        return value

    def declaration(self) -> Declaration:
        """The data source that the files become, by a tag that no declared one has."""
        key = f"files/{asset_key_of(self.name)}"
        policy = Diff(tuple(self.key)) if self.key else Replace()
        return Declaration(
            key=key,
            name=self.name,
            project=self.project,
            tables=(Table(self.name, f"{key}/rows", policy=policy),),
            create_project=self.create_project,
            adopt=self.adopt,
            types=TypePolicy(nested=cast("Nested", self.nested)),
        )

    def files(self) -> Files:
        """The files.

        Raises:
            RefusedError: there are none, or their format is not clear.
        """
        paths = found_files(self.path)
        format_ = cast("Format | None", self.format) or format_of(paths)
        return Files(paths, format_, self.reader, self.columns)


@dg.op(pool=POOL)
def publish_files(
    context: dg.OpExecutionContext,
    config: PublishFileConfig,
    spark: SparkResource,
    snapshots: dg.ResourceParam[SnapshotIOManager],
    hyper: HyperResource,
    tableau: TableauServerResource,
) -> None:
    """Make a published data source equal to files."""
    declaration = config.declaration()
    published = dg.AssetKey.from_user_string(declaration.key)
    (model,) = declaration.models
    journal = DagsterJournal(context, published)
    with as_failure(), _about(config.path):
        bad_rows = _store(context, config, spark, root=Path(snapshots.root), model=model)
        report = Refresh(
            declaration=declaration,
            models=lambda: {model: snapshots.snapshots(model)},
            journal=journal,
            server=lambda: tableau.session(context.log),
            hyper=lambda: hyper.process,
            folder=data_dir(),
            run_id=context.run.run_id,
            log=context.log,
        ).run(config.options())
    if config.dry_run:
        context.log_event(dry_run_observation(published, report))
    elif report.state:
        result = published_result(published, declaration, report)
        metadata = {**(result.metadata or {}), "bad rows": bad_rows}
        context.log_event(dg.AssetMaterialization(published, metadata=metadata))
        snapshots.collect([model], lambda: needed_by(journal))


@dg.job
def publish_file() -> None:
    """Publish CSV, JSON or Parquet files as a data source; see the launchpad for what it takes."""
    publish_files()


def _store(
    context: dg.OpExecutionContext,
    config: PublishFileConfig,
    spark: SparkResource,
    *,
    root: Path,
    model: str,
) -> int:
    """Keep the rows as a snapshot: how many could not be read.

    Raises:
        RefusedError: there is nothing to read, some rows are bad, or types cannot be stored.
    """
    files = config.files()
    context.log.info("Reading %s", ", ".join(map(str, files.paths)))
    folder = new_folder(root, model)
    try:
        reading = read_files(spark.spark_session, files)
        snapshot = write_snapshot(reading.frame, folder, asset_key=model, run_id=context.run.run_id)
    except (UnstorableError, *READ_ERRORS) as error:
        raise RefusedError(reason(error)) from error
    if reading.bad_rows and config.bad_rows == "refuse":
        shutil.rmtree(folder)
        raise RefusedError(
            f"{reading.bad_rows:,} rows do not fit the columns "
            f"{_named(snapshot.columns)}, for instance {reading.sample!r}. Mend the file, say "
            "other columns, or leave such rows out with bad_rows: drop"
        )
    if reading.bad_rows:
        context.log.warning(
            "Left out %s rows that do not fit the columns, for instance %r",
            f"{reading.bad_rows:,}",
            reading.sample,
        )
    return reading.bad_rows


@contextmanager
def _about(path: str) -> Generator[None]:
    """Refusals say which files are meant."""
    try:
        yield
    except RefusedError as error:
        raise RefusedError(f"{path}: {error}") from error


def _named(columns: Iterable[Column]) -> str:
    return ", ".join(f"{column.name} {column.type}" for column in columns)
