"""A job that publishes files, and tables of databases, as they come, without code."""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import cast

import dagster as dg

from tableau_pipeline.components.assets import POOL
from tableau_pipeline.components.failures import as_failure
from tableau_pipeline.components.file_config import PublishFileConfig
from tableau_pipeline.components.journal import DagsterJournal
from tableau_pipeline.components.report import dry_run_observation, published_result, run_tags
from tableau_pipeline.core.journal import Journal
from tableau_pipeline.core.snapshot import Snapshot
from tableau_pipeline.errors import RefusedError
from tableau_pipeline.refresh.as_it_is import AsItIs
from tableau_pipeline.refresh.step import Refresh
from tableau_pipeline.resources import (
    HyperResource,
    SnapshotIOManager,
    SparkResource,
    TableauServerResource,
    data_dir,
)
from tableau_pipeline.snapshots.collect import MAY_HAVE_LANDED, folders_of, needed_by
from tableau_pipeline.snapshots.database_table import DatabaseTable
from tableau_pipeline.snapshots.file_store import FileStore
from tableau_pipeline.snapshots.files import (
    READ_ERRORS,
    Files,
    Format,
    Reading,
    format_of,
    found_files,
    read_files,
    reason,
)
from tableau_pipeline.snapshots.store import new_folder


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
    with as_failure(), _about(config), _root(config, snapshots) as root:
        rows = _Rows(context, config, spark, new_folder(root, model))
        refresh = Refresh(
            declaration=declaration,
            models=lambda: {model: rows.kept(model, _existing(journal, snapshots, model))},
            journal=journal,
            server=lambda: tableau.session(context.log),
            hyper=lambda: hyper.process,
            folder=data_dir(),
            run_id=context.run.run_id,
            log=context.log,
        )
        if config.mode == "as_is":
            report = AsItIs(refresh, _only_file(config)).run(config.options())
        else:
            report = refresh.run(config.options())
    decided = report.plan.decision if report.plan else "build"
    context.instance.add_run_tags(context.run.run_id, run_tags(declaration, decided))
    if config.dry_run:
        context.log_event(dry_run_observation(published, declaration, report))
    elif report.state:
        result = published_result(published, declaration, report)
        metadata = {**(result.metadata or {}), "bad rows": rows.bad}
        context.log_event(dg.AssetMaterialization(published, metadata=metadata))
        snapshots.collect([model], lambda: needed_by(journal))


@dg.job
def publish_file() -> None:
    """Publish CSV, JSON or Parquet files, or a table of a database; see the launchpad for how."""
    publish_files()


@dataclass
class _Rows:
    """The rows of the files; read when it is the data source's turn.

    Attributes:
        folder: where they are kept.
        bad: how many could not be read.
    """

    context: dg.OpExecutionContext
    config: PublishFileConfig
    spark: SparkResource
    folder: Path
    bad: int = 0

    def kept(
        self, model: str, existing: Callable[[], tuple[Snapshot, ...]]
    ) -> tuple[Snapshot, ...]:
        """All that the data source shall hold.

        Raises:
            RefusedError: there is nothing to read, some rows are bad, or types cannot be stored.
        """
        config = self.config
        reading = self._reading()
        store = FileStore(
            self.folder, model, self.context.run.run_id, drop_bad_rows=config.bad_rows == "drop"
        )
        if config.mode == "append":
            kept = store.append(reading, existing(), file_column=config.file_column)
        else:
            kept = store.replace(reading)
        if reading.bad_rows:
            self.bad = reading.bad_rows
            self.context.log.warning(
                "Left out %s rows that do not fit the columns, for instance %r",
                f"{self.bad:,}",
                reading.sample,
            )
        return kept

    def _reading(self) -> Reading:
        config, session = self.config, self.spark.spark_session
        try:
            if config.is_database:
                table = DatabaseTable(config.path, str(config.table), config.credentials)
                table.check(config.reader)
                self.context.log.info("Reading %s of %s", table.table, table.url)
                return Reading(table.read(session, config.reader))
            files = _files(config)
            self.context.log.info("Reading %s", ", ".join(map(str, files.paths)))
            return read_files(session, files)
        except READ_ERRORS as error:
            raise RefusedError(reason(error)) from error


def _existing(
    journal: Journal, snapshots: SnapshotIOManager, model: str
) -> Callable[[], tuple[Snapshot, ...]]:
    """Finds what the data source holds, or may hold: not what was kept and then refused.

    Only where no record tells, the newest snapshots count.
    """

    def found() -> tuple[Snapshot, ...]:
        sent = [each.target for each in journal.intents() if each.outcome in MAY_HAVE_LANDED]
        state = next((each for each in (*reversed(sent), journal.state()) if each), None)
        if state is None:
            return snapshots.snapshots(model)
        folders = [*folders_of(state)]
        if not folders:
            raise RefusedError(
                "its rows were published as they are (mode as_is), and are not kept here to add "
                "to: publish all files with mode replace first"
            )
        try:
            return tuple(map(Snapshot.read, folders))
        except FileNotFoundError as error:
            raise RefusedError(
                f"the rows that were published before are gone from the disk ({error.filename}): "
                "publish all files with mode replace"
            ) from error

    return found


def _only_file(config: PublishFileConfig) -> Path:
    paths = found_files(config.path)
    if len(paths) > 1:
        raise RefusedError(
            f"mode as_is sends one file, but there are {len(paths)}: {paths[0].name}, "
            f"{paths[1].name}, ...; with mode replace they become one data source"
        )
    return paths[0]


def _files(config: PublishFileConfig) -> Files:
    paths = found_files(config.path)
    format_ = cast("Format | None", config.format) or format_of(paths)
    return Files(paths, format_, config.reader, config.columns)


@contextmanager
def _root(config: PublishFileConfig, snapshots: SnapshotIOManager) -> Generator[Path]:
    """Where snapshots go: of what is not to be published, none stays."""
    if config.publish and not config.dry_run:
        yield Path(snapshots.root)
        return
    data_dir().mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix="not published ", dir=data_dir()) as scratch:
        yield Path(scratch)


@contextmanager
def _about(config: PublishFileConfig) -> Generator[None]:
    """Refusals say which files are meant."""
    try:
        yield
    except RefusedError as error:
        raise RefusedError(f"{config.table or config.path}: {error}") from error
