"""Reconciliation: compare what is published with the models.

The server counts the rows, or the file is read back.
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

# The number of bytes of each hash that are summed: such sums stay exact for any number of rows.
_BYTES = 6
# Seconds until the server is asked again. A cache of it may have held the former rows.
_PAUSE = 5
_NEVER = "reconcile: never"
_HIDDEN = (
    "If a filter of the data source or row-level security hides rows from this user, the server "
    "counts too few: declare reconcile: {by: download} with a larger max_mb, or reconcile: never"
)


@dataclass(frozen=True, slots=True)
class Reconciliation:
    """How the published tables compare with the models.

    Attributes:
        problem: what differs; None if nothing that was compared does.
        skipped: why nothing was compared; None if something was.
        by: how the rows were counted, by table: in the downloaded file, or by the server.
        rows: the number of rows that were found, by table.
        values: whether the values of all rows were compared, and not only their number.
        note: why not more was compared; None if all that could be was.
    """

    problem: str | None = None
    skipped: str | None = None
    by: Mapping[str, Literal["server", "download"]] = field(default_factory=dict)
    rows: Mapping[str, int] = field(default_factory=dict)
    values: bool = False
    note: str | None = None

    @property
    def way(self) -> str:
        """In which way something was compared, in words."""
        if self.values:
            return "checksums"
        return "count" if "download" in self.by.values() else "count on the server"


class ReconciliationError(RefreshError):
    """The published data differs from the models; `found` shows where."""

    def __init__(self, found: Reconciliation) -> None:
        super().__init__(
            f"What is published differs from the models: {found.problem}. The next run publishes "
            "everything again. If this happens again, please report it"
        )
        self.found = found


@dataclass(frozen=True, slots=True)
class Reconciler:
    """Compares published data with models."""

    declaration: Declaration
    snapshots: Snapshots
    server: TableauSite
    hyper: Callable[[], Hyperd]
    log: logging.Logger
    sleep: Callable[[float], None]

    def compare(self, checkpoint: Checkpoint, remote: RemoteDatasource) -> Reconciliation:
        """Compare what a refresh has just left: its rows, and its values if declared."""
        if self.declaration.reconcile is None:
            return Reconciliation(skipped=_NEVER)
        rule, found, why = self._rule, Reconciliation(), []
        # Values are compared by reading them. If they cannot be, lost rows are found all the same.
        ways = (
            [self._downloaded, self._asked] if rule.checksums else [self._asked, self._downloaded]
        )
        if rule.by != "auto":
            ways = [self._downloaded if rule.by == "download" else self._asked]
        for look in ways:
            found = look(checkpoint, remote)
            if found.problem or not (found.skipped or (rule.checksums and not found.values)):
                return found
            why.append(found.skipped or "the rows were counted, but not compared")
        return replace(found, skipped="; ".join(why))

    @property
    def _rule(self) -> Reconcile:
        # Guards need the rows even if the declaration wants nothing compared.
        return self.declaration.reconcile or Reconcile()

    def compare_rows(self, checkpoint: Checkpoint, remote: RemoteDatasource) -> Reconciliation:
        """Compare the values on the server with a checkpoint."""
        if self.declaration.reconcile is None:
            return Reconciliation(skipped=_NEVER)
        return self._downloaded(checkpoint, remote, values=True)

    def likeness(self, checkpoint: Checkpoint, remote: RemoteDatasource) -> Likeness:
        """Tell how what is published compares with a checkpoint: by values, or by counts."""
        found = self.compare_rows(checkpoint, remote)
        by_values = not found.skipped
        if found.skipped and self.declaration.reconcile and self._rule.by != "download":
            found = self._asked(checkpoint, remote)
        if found.skipped:
            return None
        if found.problem:
            return "differs"
        return "equal" if by_values else "counts"

    def audit(self, checkpoint: Checkpoint, remote: RemoteDatasource) -> Reconciliation:
        """Compare the values if the file may be read, or else as a refresh does."""
        judged = self.compare_rows(checkpoint, remote)
        if not judged.skipped:
            return judged
        note = f"values not compared: {judged.skipped}"
        return replace(self.compare(checkpoint, remote), note=note)

    def count(self, remote: RemoteDatasource) -> Mapping[str, int] | None:
        """The published rows of the declared tables; None if they cannot be counted."""
        names = {
            self.declaration.published_name(table.name): table.name
            for table in self.declaration.tables
        }
        try:
            try:
                # Without a checkpoint, only the server can tell the size.
                with self._published(remote, self._rule, size=None) as connection:
                    tables = extract_tables(connection)
                    found = {each.name.unescaped: rows_in(connection, each) for each in tables}
            except RefreshError:
                if self._rule.by == "download":
                    raise
                # It may count too few, so a file that may be read is better.
                found = self.server.count(remote.luid, dict.fromkeys(names))
        except (RefreshError, HyperException, ValueError) as error:
            self.log.warning("The published rows cannot be counted: %s", error)
            return None
        return {names[name]: rows for name, rows in found.items() if name in names}

    def _asked(self, checkpoint: Checkpoint, remote: RemoteDatasource) -> Reconciliation:
        """Have the server count; a different number is asked for once more, and is no proof."""
        # Both kinds of keys were checked before the rows were sent.
        keys = {edge.one: edge.key[0] for edge in self.declaration.relationships}
        keys |= {name: table.key[0] for name, table in checkpoint.tables.items() if table.key}
        names = {checkpoint.target(name).name.unescaped: name for name in checkpoint.tables}
        columns = {published: keys.get(name) for published, name in names.items()}
        expected = {published: checkpoint.rows[name] for published, name in names.items()}
        try:
            counted = dict(self.server.count(remote.luid, columns))
            differing = {each: columns[each] for each in columns if counted[each] != expected[each]}
            if differing:
                self.sleep(_PAUSE)
                counted.update(self.server.count(remote.luid, differing, fresh=True))
        except RefreshError as error:
            return Reconciliation(skipped=f"the server cannot tell: {error}")
        problem = "; ".join(
            f"the server counts {rows:,} rows in {names[each]}, its model has {expected[each]:,}"
            for each, rows in counted.items()
            if rows != expected[each]
        )
        found = Reconciliation(
            by=dict.fromkeys(checkpoint.tables, "server"),
            rows={names[each]: rows for each, rows in counted.items()},
        )
        if not problem:
            return found
        # Filters, caches and rights can hide rows from the server's own counts, so they alone do
        # not fail a refresh if the file can be read.
        self.log.warning("%s. The file decides", problem)
        read = self._downloaded(checkpoint, remote)
        if not read.skipped:
            return read
        return replace(found, problem=f"{problem} ({read.skipped}). {_HIDDEN}")

    def _downloaded(
        self, checkpoint: Checkpoint, remote: RemoteDatasource, *, values: bool = False
    ) -> Reconciliation:
        rule = self._rule
        # An upper bound: payloads count with all rows, even where their rows replaced others.
        size = None if checkpoint.size is None else checkpoint.size + checkpoint.grown
        try:
            with self._published(remote, rule, size=size) as connection:
                return compare(
                    connection, checkpoint, self.snapshots, values=values or rule.checksums
                )
        except RefreshError as error:
            return Reconciliation(skipped=str(error))
        except (HyperException, ValueError) as error:
            if damaged := self._damage(checkpoint):
                return Reconciliation(skipped=damaged)
            # A file that may not be read proves nothing. One that came but does not open is
            # broken, and only a publish repairs it.
            return Reconciliation(problem=f"it cannot be read: {error}")

    def _damage(self, checkpoint: Checkpoint) -> str | None:
        """Why the rows of the models cannot be read; None if they can."""
        for model, number in checkpoint.versions:
            try:
                found = self.snapshots.version(model, number)
            except DamagedSnapshotError as error:
                return str(error)
            if found and (problem := damage(self.hyper, found)):
                return f"version {number} of the model {model} cannot be read: {problem}"
        return None

    @contextmanager
    def _published(
        self, remote: RemoteDatasource, rule: Reconcile, *, size: int | None
    ) -> Generator[Connection]:
        """Open the published file; `size` is its size by our records, None if not known."""
        if size is None:
            told = remote.megabytes
            told = self.server.megabytes(remote.luid) if told is None else told
            size = None if told is None else told * 2**20
        if size is None:
            raise RefreshError("the size of the published file is not known")
        if size > rule.max_bytes:
            raise RefreshError(
                f"its file of up to {megabytes(size)} is larger than "
                f"reconcile: max_mb: {rule.max_bytes / 1e6:g}"
            )
        self.log.info("Reading back what is published, up to %s", megabytes(size))
        with ExitStack() as stack:
            try:
                file = published_file(self.server, remote, limit=rule.max_bytes)
                extract = stack.enter_context(file)
            except RefreshError as error:
                raise RefreshError(f"it could not be read back: {error}") from error
            yield stack.enter_context(connect(self.hyper(), extract))


def compare(
    connection: Connection,
    checkpoint: Checkpoint,
    snapshots: Snapshots,
    *,
    values: bool,
) -> Reconciliation:
    """Compare the tables of an open, published file with a checkpoint.

    Args:
        values: compare the rows themselves, too, in any order, and the names of tables and columns.

    Raises:
        RefreshError: the snapshot of a model is gone, so nothing can be compared.
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
    """Return SQL for the rows of a model that a table of this content holds."""
    snapshot = snapshots.version(table.model, table.version)
    if snapshot and snapshot.fingerprint != table.all_rows:
        # The version may contain partitions that no longer belong to the model.
        snapshot = snapshots.newest(table.model)
    if snapshot is None or snapshot.fingerprint != table.all_rows or snapshot.missing():
        raise RefreshError(f"version {table.version} of the model {table.model} is gone")
    return select_sql(table_source(name, snapshot, table.cutoff))


def _same_rows(
    connection: Connection, published: TableName, table: TableContent, model: str
) -> bool:
    definition = connection.catalog.get_table_definition(published)
    found = [column.name.unescaped for column in definition.columns]
    if set(found) != {column.name for column in table.columns}:
        return False
    found, expected = (
        # The row hashes of the model are not published, so both sides are hashed alike here.
        connection.execute_scalar_query(
            f"SELECT SUM(CAST({number_of('hash', _BYTES)} AS NUMERIC(38,0))) "  # noqa: S608
            f"FROM (SELECT sha256({row_text(table.columns)}) AS hash FROM {rows} source) hashed"
        )
        for rows in (published, model)
    )
    return found == expected


def extract_tables(connection: Connection) -> set[TableName]:
    """Return the tables in the extract schema of an open file."""
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
    """In what the tables of a data source differ from those to publish, as phrases."""
    try:
        with published_file(server, remote) as extract:
            found = table_columns(hyper(), extract)
    except (HyperFileError, ValueError) as error:
        return [f"its tables cannot be read ({error})"]
    schemas = {table.schema_name.name.unescaped for table in found if table.schema_name}
    if others := schemas - {EXTRACT_SCHEMA}:
        return [f'its tables cannot be read (it has the schema "{min(others)}")']
    named = {table.name.unescaped: columns for table, columns in found.items()}
    return layout_changes(named, declaration, desired)
