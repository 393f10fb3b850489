"""Reconcile: compare the published rows with the rows of the models.

Either the server counts the published rows, or this module downloads and reads the published file.
"""

import logging
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import Literal

from tableauhyperapi import Connection, HyperException, TableName

from tableau_pipeline.core.checkpoint import Checkpoint, TableContent
from tableau_pipeline.core.declaration import Declaration, Reconcile
from tableau_pipeline.core.drift import RemoteDatasource
from tableau_pipeline.core.snapshot import Snapshots
from tableau_pipeline.errors import DamagedSnapshotError, RefreshError
from tableau_pipeline.extracts.checks import damage
from tableau_pipeline.extracts.content import table_source
from tableau_pipeline.extracts.schema import layout_changes
from tableau_pipeline.hyper.build import rows_in, table_names
from tableau_pipeline.hyper.hyper_file import HyperFileError, table_columns
from tableau_pipeline.hyper.parquet import number_of, row_text, select_sql
from tableau_pipeline.hyper.process import Hyperd, connect
from tableau_pipeline.hyper.types import EXTRACT_SCHEMA, Column
from tableau_pipeline.publishing.packages import published_file
from tableau_pipeline.publishing.site import TableauSite
from tableau_pipeline.refresh.effects import Likeness
from tableau_pipeline.rendering import megabytes

# Add up only this many bytes of each row's hash: few enough that the sum over all rows is exact.
_BYTES = 6
# How many seconds to wait before a second count. The first count may come from a cache of the
# server that still had the former rows.
_SECOND_COUNT_DELAY = 5
_NEVER = "reconcile: never"
_HIDDEN_ROWS = (
    "If a filter of the data source or row-level security hides rows from this user, the server "
    "counts too few: declare reconcile: {by: download} with a larger max_mb, or reconcile: never"
)


@dataclass(frozen=True, slots=True)
class Reconciliation:
    """How the published tables compare with the models.

    Attributes:
        problem: the differences, in words; None if no difference was found.
        skipped: why the required comparison was not made; None if it was made. If the values were
            required, the rows may still have been counted.
        by: for each table, "server" if the server counted its rows, or "download" if we counted
            them in the downloaded file.
        rows: for each table, the number of published rows.
        values: whether the values of all rows were compared, and not only the number of rows.
        note: why the values were not compared; None if no explanation is needed.
    """

    problem: str | None = None
    skipped: str | None = None
    by: Mapping[str, Literal["server", "download"]] = field(default_factory=dict)
    rows: Mapping[str, int] = field(default_factory=dict)
    values: bool = False
    note: str | None = None

    @property
    def way(self) -> str:
        """The kind of comparison, in words."""
        if self.values:
            return "checksums"
        return "count" if "download" in self.by.values() else "count on the server"


class ReconciliationError(RefreshError):
    """The published data differs from the models; `found` has the differences."""

    def __init__(self, found: Reconciliation) -> None:
        super().__init__(
            f"What is published differs from the models: {found.problem}. The next run publishes "
            "everything again. If this happens again, please report it"
        )
        self.found = found


@dataclass(frozen=True, slots=True)
class Reconciler:
    """Compares published data with models.

    A checkpoint, the record of a refresh, names the version of each model that was published.
    """

    declaration: Declaration
    snapshots: Snapshots
    server: TableauSite
    hyper: Callable[[], Hyperd]
    log: logging.Logger
    sleep: Callable[[float], None]

    def compare(self, checkpoint: Checkpoint, remote: RemoteDatasource) -> Reconciliation:
        """Compare the published data with a checkpoint, in the way that `reconcile` declares."""
        if self.declaration.reconcile is None:
            return Reconciliation(skipped=_NEVER)
        rule, reconciliation, reasons = self._rule, Reconciliation(), []
        # To compare values, first try to read the published file. If the file cannot be read, let
        # the server count the rows: the count still finds lost rows.
        ways = (
            [self._compare_download, self._count_on_server]
            if rule.checksums
            else [self._count_on_server, self._compare_download]
        )
        if rule.by != "auto":
            ways = [self._compare_download if rule.by == "download" else self._count_on_server]
        for look in ways:
            reconciliation = look(checkpoint, remote)
            if reconciliation.problem or not (
                reconciliation.skipped or (rule.checksums and not reconciliation.values)
            ):
                return reconciliation
            reasons.append(reconciliation.skipped or "the rows were counted, but not compared")
        return replace(reconciliation, skipped="; ".join(reasons))

    @property
    def _rule(self) -> Reconcile:
        # With `reconcile: never`, use the default rule, because guards against lost rows still need
        # counts.
        return self.declaration.reconcile or Reconcile()

    def compare_rows(self, checkpoint: Checkpoint, remote: RemoteDatasource) -> Reconciliation:
        """Compare the values of the published rows with a checkpoint."""
        if self.declaration.reconcile is None:
            return Reconciliation(skipped=_NEVER)
        return self._compare_download(checkpoint, remote, values=True)

    def likeness(self, checkpoint: Checkpoint, remote: RemoteDatasource) -> Likeness:
        """Compare the published rows with a checkpoint by values, or if that fails, by counts.

        Return None if neither comparison is possible, or if the declaration has `reconcile: never`.
        """
        reconciliation = self.compare_rows(checkpoint, remote)
        by_values = not reconciliation.skipped
        if reconciliation.skipped and self.declaration.reconcile and self._rule.by != "download":
            reconciliation = self._count_on_server(checkpoint, remote)
        if reconciliation.skipped:
            return None
        if reconciliation.problem:
            return "differs"
        return "equal" if by_values else "counts"

    def audit(self, checkpoint: Checkpoint, remote: RemoteDatasource) -> Reconciliation:
        """Compare the values if the published file can be read; otherwise, see `compare`."""
        reconciliation = self.compare_rows(checkpoint, remote)
        if not reconciliation.skipped:
            return reconciliation
        note = f"values not compared: {reconciliation.skipped}"
        return replace(self.compare(checkpoint, remote), note=note)

    def count(self, remote: RemoteDatasource) -> Mapping[str, int] | None:
        """Return the number of published rows of each declared table; None if counting fails."""
        names = {
            self.declaration.published_name(table.name): table.name
            for table in self.declaration.tables
        }
        try:
            try:
                # Without a checkpoint, our records lack the size of the file: ask the server.
                with self._open_published(remote, self._rule, size=None) as connection:
                    tables = extract_tables(connection)
                    counts = {table.name.unescaped: rows_in(connection, table) for table in tables}
            except RefreshError:
                if self._rule.by == "download":
                    raise
                # Let the server count only if the file cannot be read: the server may count too few
                # rows.
                counts = self.server.count(remote.luid, dict.fromkeys(names))
        except (RefreshError, HyperException, ValueError) as error:
            self.log.warning("The published rows cannot be counted: %s", error)
            return None
        return {names[name]: rows for name, rows in counts.items() if name in names}

    def _count_on_server(self, checkpoint: Checkpoint, remote: RemoteDatasource) -> Reconciliation:
        """Compare the server's counts of rows with a checkpoint.

        If a count differs, the server counts the rows of this table again. If the second count
        differs, too, the rows in the published file decide, if the file can be read.
        """
        # The server counts the values of a column, without NULLs. So let it count a key column, if
        # the table has a key: we checked before the publish that keys have no NULLs.
        keys = {edge.one: edge.key[0] for edge in self.declaration.relationships}
        keys |= {name: table.key[0] for name, table in checkpoint.tables.items() if table.key}
        names = {checkpoint.target(name).name.unescaped: name for name in checkpoint.tables}
        columns = {published: keys.get(name) for published, name in names.items()}
        expected = {published: checkpoint.rows[name] for published, name in names.items()}
        try:
            counted = dict(self.server.count(remote.luid, columns))
            differing = {name: columns[name] for name in columns if counted[name] != expected[name]}
            if differing:
                self.sleep(_SECOND_COUNT_DELAY)
                counted.update(self.server.count(remote.luid, differing, fresh=True))
        except RefreshError as error:
            return Reconciliation(skipped=f"the server cannot count: {error}")
        problem = "; ".join(
            f"the server counts {rows:,} rows in {names[name]}, its model has {expected[name]:,}"
            for name, rows in counted.items()
            if rows != expected[name]
        )
        reconciliation = Reconciliation(
            by=dict.fromkeys(checkpoint.tables, "server"),
            rows={names[name]: rows for name, rows in counted.items()},
        )
        if not problem:
            return reconciliation
        # The server may count too few rows, because of filters, caches and rights. So a refresh
        # fails because of a count only if the file cannot be read.
        self.log.warning("%s. Now the published file decides", problem)
        read = self._compare_download(checkpoint, remote)
        if not read.skipped:
            return read
        return replace(reconciliation, problem=f"{problem} ({read.skipped}). {_HIDDEN_ROWS}")

    def _compare_download(
        self, checkpoint: Checkpoint, remote: RemoteDatasource, *, values: bool = False
    ) -> Reconciliation:
        rule = self._rule
        # Use an upper bound of the size: add the sizes of all updates since the last full publish,
        # even if their rows replaced other rows.
        size = None if checkpoint.size is None else checkpoint.size + checkpoint.grown
        try:
            with self._open_published(remote, rule, size=size) as connection:
                return compare(
                    connection, checkpoint, self.snapshots, values=values or rule.checksums
                )
        except RefreshError as error:
            return Reconciliation(skipped=str(error))
        except (HyperException, ValueError) as error:
            if reason := self._damage(checkpoint):
                return Reconciliation(skipped=reason)
            # Hyper cannot read the downloaded file, so the published file is broken, and only a
            # publish repairs it. A RefreshError, in contrast, says nothing about the file.
            return Reconciliation(problem=f"the published file cannot be read: {error}")

    def _damage(self, checkpoint: Checkpoint) -> str | None:
        """Return why the rows of the models cannot be read; None if they can be read."""
        for model, number in checkpoint.versions:
            try:
                snapshot = self.snapshots.version(model, number)
            except DamagedSnapshotError as error:
                return str(error)
            if snapshot and (problem := damage(self.hyper, snapshot)):
                return f"version {number} of the model {model} cannot be read: {problem}"
        return None

    @contextmanager
    def _open_published(
        self, remote: RemoteDatasource, rule: Reconcile, *, size: int | None
    ) -> Generator[Connection]:
        """Download and open the published file.

        Args:
            size: the size of the file in bytes, by our records; None to ask the server.

        Raises:
            RefreshError: the file is too large, its size is unknown, or it cannot be downloaded.
        """
        if size is None:
            size_in_mb = remote.megabytes
            size_in_mb = self.server.megabytes(remote.luid) if size_in_mb is None else size_in_mb
            size = None if size_in_mb is None else size_in_mb * 2**20
        if size is None:
            raise RefreshError("the size of the published file is not known")
        if size > rule.max_bytes:
            raise RefreshError(
                f"the published file of up to {megabytes(size)} is larger than "
                f"reconcile: max_mb: {rule.max_bytes / 1e6:g}"
            )
        self.log.info("Reading back what is published, up to %s", megabytes(size))
        with ExitStack() as stack:
            try:
                file = published_file(self.server, remote, limit=rule.max_bytes)
                extract = stack.enter_context(file)
            except RefreshError as error:
                raise RefreshError(f"the file could not be read back: {error}") from error
            yield stack.enter_context(connect(self.hyper(), extract))


def compare(
    connection: Connection,
    checkpoint: Checkpoint,
    snapshots: Snapshots,
    *,
    values: bool,
) -> Reconciliation:
    """Compare the tables of an open published file with a checkpoint.

    Args:
        values: whether to compare the rows themselves, in any order, and the names of tables and
            columns. Otherwise, compare only the numbers of rows.

    Raises:
        RefreshError: the snapshot of a model is gone, so the values cannot be compared.
    """
    problems: list[str] = []
    counts = {}
    names = {name: checkpoint.target(name) for name in checkpoint.tables}
    existing = extract_tables(connection)
    if values and existing != set(names.values()):
        return Reconciliation(problem="it has other tables")
    for name, table in checkpoint.tables.items():
        published = names[name]
        if published not in existing:
            problems.append(f"{name} is not there")
            continue
        expected = table.content.rows
        counts[name] = rows_in(connection, published)
        if counts[name] != expected:
            problems.append(f"{name} holds {counts[name]:,} rows, its model {expected:,}")
        elif values and not _same_rows(
            connection, published, table, select_model(name, table, snapshots)
        ):
            problems.append(f"the rows of {name} differ")
    return Reconciliation(
        "; ".join(problems) or None,
        by=dict.fromkeys(counts, "download"),
        rows=counts,
        values=values,
    )


def select_model(name: str, table: TableContent, snapshots: Snapshots) -> str:
    """Return SQL for the rows that a table with this content has, from a snapshot of its model.

    Raises:
        RefreshError: the snapshot is gone.
    """
    snapshot = snapshots.version(table.model, table.version)
    if snapshot and snapshot.fingerprint != table.all_rows:
        # The version may have partitions that no longer belong to the model. `newest` leaves these
        # partitions out.
        snapshot = snapshots.newest(table.model)
    if snapshot is None or snapshot.fingerprint != table.all_rows or snapshot.missing():
        raise RefreshError(f"version {table.version} of the model {table.model} is gone")
    return select_sql(table_source(name, snapshot, table.cutoff))


def _same_rows(
    connection: Connection, published: TableName, table: TableContent, model: str
) -> bool:
    definition = connection.catalog.get_table_definition(published)
    names = {column.name.unescaped for column in definition.columns}
    if names != {column.name for column in table.columns}:
        return False
    published_sum, model_sum = (
        # Compute the same hash on both sides, because the model's own row hashes are not published.
        connection.execute_scalar_query(
            f"SELECT SUM(CAST({number_of('hash', _BYTES)} AS NUMERIC(38,0))) "  # noqa: S608
            f"FROM (SELECT sha256({row_text(table.columns)}) AS hash FROM {rows} source) hashed"
        )
        for rows in (published, model)
    )
    return published_sum == model_sum


def extract_tables(connection: Connection) -> set[TableName]:
    """Return the tables in the schema "Extract" of an open file."""
    return {
        TableName(EXTRACT_SCHEMA, table.name)
        for table in table_names(connection)
        if table.schema_name and table.schema_name.name.unescaped == EXTRACT_SCHEMA
    }


def layout_differences(
    server: TableauSite,
    remote: RemoteDatasource,
    hyper: Callable[[], Hyperd],
    declaration: Declaration,
    desired: Mapping[str, Sequence[Column]],
) -> Sequence[str]:
    """Return phrases for how the tables of a data source differ from the declared tables."""
    try:
        with published_file(server, remote) as extract:
            columns_by_table = table_columns(hyper(), extract)
    except (HyperFileError, ValueError) as error:
        return [f"its tables cannot be read ({error})"]
    schemas = {table.schema_name.name.unescaped for table in columns_by_table if table.schema_name}
    if others := schemas - {EXTRACT_SCHEMA}:
        return [f'its tables cannot be read (it has the schema "{min(others)}")']
    columns_by_name = {table.name.unescaped: columns for table, columns in columns_by_table.items()}
    return layout_changes(columns_by_name, declaration, desired)
