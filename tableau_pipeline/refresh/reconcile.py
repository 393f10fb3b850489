"""Reconciliation: what is published, read back, against the models."""

import logging
import zipfile
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tableauhyperapi import Connection, HyperException, HyperProcess, TableName, escape_name

from tableau_pipeline.core.checkpoint import Checkpoint, TableContent
from tableau_pipeline.core.declaration import Declaration, Reconcile
from tableau_pipeline.core.server import RemoteDatasource, Server
from tableau_pipeline.core.snapshot import Snapshots
from tableau_pipeline.errors import RefreshError
from tableau_pipeline.hyper.process import connect
from tableau_pipeline.hyper.rows import rows
from tableau_pipeline.hyper.tables import EXTRACT_SCHEMA, Column
from tableau_pipeline.hyper.types import hyper_type
from tableau_pipeline.refresh.desired import source

# Of the hash of a value: sums of so many bits stay exact over any number of rows.
_BYTES = 6


@dataclass(frozen=True, slots=True)
class Reconciliation:
    """How the published tables compare with the models.

    Attributes:
        problem: what differs; None if nothing that was looked at does.
        skipped: why nothing was looked at; None if something was.
        rows: that were read back, by table.
        checksums: of the columns that were read back, by "table.column"; the order of rows does
            not matter to them.
    """

    problem: str | None = None
    skipped: str | None = None
    rows: Mapping[str, int] = field(default_factory=dict)
    checksums: Mapping[str, int] = field(default_factory=dict)


class ReconciliationError(RefreshError):
    """What is published is not what the models hold; `found` tells where."""

    def __init__(self, found: Reconciliation) -> None:
        super().__init__(
            f"What is published differs from the models: {found.problem}. The next run publishes "
            "in full. If it comes back, please report it"
        )
        self.found = found


@dataclass(frozen=True, slots=True)
class Reconciler:
    """What it takes to compare; `folder` is for the file while it is read."""

    declaration: Declaration
    snapshots: Snapshots
    server: Server
    hyper: Callable[[], HyperProcess]
    folder: Path
    log: logging.Logger

    def compare(self, checkpoint: Checkpoint, remote: RemoteDatasource) -> Reconciliation:
        """Read back what a refresh has just left: its rows, and its values if so declared."""
        rule = self.declaration.reconcile
        if rule is None:
            return Reconciliation(skipped="reconcile: never")
        return self._compared(checkpoint, remote, rule)

    def judge(self, checkpoint: Checkpoint, remote: RemoteDatasource) -> Reconciliation:
        """Whether the server holds exactly what a checkpoint says, row by row."""
        rule = self.declaration.reconcile
        if rule is None:
            return Reconciliation(skipped="reconcile: never")
        return self._compared(checkpoint, remote, rule, by_row=True)

    def count(self, remote: RemoteDatasource) -> Mapping[str, int] | None:
        """The published rows of the declared tables; None if the file is too large to count."""
        rule = self.declaration.reconcile or Reconcile()
        names = {
            self.declaration.published_name(table.name): table.name
            for table in self.declaration.tables
        }
        try:
            with self._published(remote, rule, size=None) as connection:
                return {
                    names[table.name.unescaped]: _rows(connection, str(table))
                    for schema in connection.catalog.get_schema_names()
                    if schema.name.unescaped == EXTRACT_SCHEMA
                    for table in connection.catalog.get_table_names(schema)
                    if table.name.unescaped in names
                }
        except (RefreshError, HyperException, zipfile.BadZipFile, ValueError) as error:
            self.log.warning("The published rows cannot be counted: %s", error)
            return None

    def _compared(
        self,
        checkpoint: Checkpoint,
        remote: RemoteDatasource,
        rule: Reconcile,
        *,
        by_row: bool = False,
    ) -> Reconciliation:
        size = None if checkpoint.size is None else checkpoint.size + checkpoint.grown
        try:
            with self._published(remote, rule, size=size) as connection:
                return self._differences(connection, checkpoint, rule, by_row=by_row)
        except RefreshError as error:
            return Reconciliation(skipped=f"it could not be read back: {error}")
        except (HyperException, zipfile.BadZipFile, ValueError) as error:
            return Reconciliation(problem=f"it cannot be read: {error}")

    @contextmanager
    def _published(
        self, remote: RemoteDatasource, rule: Reconcile, *, size: int | None
    ) -> Generator[Connection]:
        """The published file, opened; `size` is what our records say of it."""
        if size is None and remote.megabytes is not None:
            size = remote.megabytes * 2**20
        if size is None:
            raise RefreshError("the size of the published file is not known")
        if size > rule.max_bytes:
            raise RefreshError(
                f"its file of up to {size / 1e6:,.1f} MB is larger than "
                f"reconcile: max_mb: {rule.max_bytes / 1e6:g}"
            )
        self.log.info("Reading back what is published, up to %.1f MB", size / 1e6)
        self.folder.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(prefix="read back ", dir=self.folder) as folder:
            package = self.server.download(remote.luid, Path(folder))
            with connect(self.hyper(), _extract(package)) as connection:
                yield connection

    def _differences(
        self, connection: Connection, checkpoint: Checkpoint, rule: Reconcile, *, by_row: bool
    ) -> Reconciliation:
        problems: list[str] = []
        counts, sums = {}, {}
        names = _names(checkpoint)
        existing = _tables(connection)
        if by_row and existing != set(names.values()):
            return Reconciliation(problem="it has other tables")
        for name, table in checkpoint.tables.items():
            published = names[name]
            if published not in existing:
                problems.append(f"{name} is not there")
                continue
            expected = table.content.rows
            counts[name] = _rows(connection, str(published))
            if counts[name] != expected:
                problems.append(f"{name} holds {counts[name]:,} rows, its model {expected:,}")
            elif by_row and not self._same_rows(connection, published, name, table):
                problems.append(f"the rows of {name} differ")
            elif rule.checksums and not by_row:
                found = _checksums(connection, str(published), name, table)
                sums.update({f"{name}.{column}": each for column, each in found.items()})
                wanted = _checksums(connection, self._model(name, table), name, table)
                differing = [column for column in wanted if wanted[column] != found[column]]
                problems += [f"{name}.{column} differs" for column in differing]
        return Reconciliation("; ".join(problems) or None, rows=counts, checksums=sums)

    def _same_rows(
        self, connection: Connection, published: TableName, name: str, table: TableContent
    ) -> bool:
        definition = connection.catalog.get_table_definition(published)
        found = [column.name.unescaped for column in definition.columns]
        if set(found) != {column.name for column in table.columns}:
            return False
        model = self._model(name, table)
        return _row_sum(connection, str(published), table) == _row_sum(connection, model, table)

    def _model(self, name: str, table: TableContent) -> str:
        snapshot = self.snapshots.version(table.model, table.version)
        if snapshot and snapshot.fingerprint != table.all_rows:
            # Of the version as it was written, a part may belong to the model no longer.
            snapshot = self.snapshots.newest(table.model)
        if snapshot is None or snapshot.fingerprint != table.all_rows or snapshot.missing():
            raise RefreshError(f"version {table.version} of the model {table.model} is gone")
        return rows(source(name, snapshot, table.cutoff))


def _names(checkpoint: Checkpoint) -> dict[str, TableName]:
    """Where a checkpoint's tables are in the published file."""
    single = len(checkpoint.tables) == 1
    return {
        name: TableName(EXTRACT_SCHEMA, EXTRACT_SCHEMA if single else name)
        for name in checkpoint.tables
    }


def _tables(connection: Connection) -> set[TableName]:
    return {
        TableName(EXTRACT_SCHEMA, table.name)
        for schema in connection.catalog.get_schema_names()
        if schema.name.unescaped == EXTRACT_SCHEMA
        for table in connection.catalog.get_table_names(schema)
    }


def _extract(package: Path) -> Path:
    """The `.hyper` file in a packaged data source.

    Raises:
        ValueError: there is none, or several.
    """
    with zipfile.ZipFile(package) as opened:
        members = [name for name in opened.namelist() if name.endswith(".hyper")]
        if len(members) != 1:
            raise ValueError(f"the package holds {len(members)} .hyper files, not one")
        return Path(opened.extract(members[0], package.parent))


def _rows(connection: Connection, relation: str) -> int:
    return int(str(connection.execute_scalar_query(f"SELECT COUNT(*) FROM {relation}")))  # noqa: S608


def _text(column: Column, table: str) -> str:
    """A value as text; bytes need not be text."""
    value, type_ = escape_name(column.name), hyper_type(column, table=table)
    if type_ == "BYTES":
        return f"encode({value}, 'hex')"
    text = f"CAST({value} AS TEXT)"
    if type_ in ("DOUBLE PRECISION", "REAL"):
        # In a column that has both zeros, hyperd stores one of them.
        return f"CASE WHEN {value} = 0 THEN '0' ELSE {text} END"
    return text


def _sum(connection: Connection, text: str, relation: str) -> int:
    """The sum of the first bytes of the SHA-256 of a text, over all rows."""
    bytes_ = " + ".join(
        f"CAST(get_byte(h, {number}) AS BIGINT) * {256**number}" for number in range(_BYTES)
    )
    total: Any = connection.execute_scalar_query(
        f"SELECT SUM(CAST({bytes_} AS NUMERIC(38,0))) "  # noqa: S608
        f"FROM (SELECT sha256({text}) AS h FROM {relation} source) hashed"
    )
    return int(total or 0)


def _checksums(
    connection: Connection, relation: str, name: str, table: TableContent
) -> dict[str, int]:
    """Of each column, the sum over its values; NULL counts as a value."""
    return {
        column.name: _sum(connection, f"COALESCE('=' || {_text(column, name)}, '')", relation)
        for column in table.columns
    }


def _row_sum(connection: Connection, relation: str, table: TableContent) -> int:
    """The sum over whole rows; lengths keep apart what would read the same."""
    texts = [_text(column, "") for column in table.columns]
    row = " || ".join(f"COALESCE(LENGTH({t}) || '=' || {t}, '-') || ';'" for t in texts)
    return _sum(connection, row, relation)
