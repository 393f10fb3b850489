"""Reconciliation: what is published, read back, against the models."""

import logging
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tableauhyperapi import Connection, HyperException, HyperProcess, escape_name

from tableau_pipeline.core.checkpoint import State
from tableau_pipeline.core.declaration import Declaration, Reconcile, Table
from tableau_pipeline.core.server import Server
from tableau_pipeline.errors import RefreshError
from tableau_pipeline.hyper.process import connect
from tableau_pipeline.hyper.rows import rows
from tableau_pipeline.hyper.types import hyper_type
from tableau_pipeline.refresh.contents import Models, source

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


class UnequalError(RefreshError):
    """What is published is not what the models hold; `found` tells where."""

    def __init__(self, found: Reconciliation) -> None:
        super().__init__(
            f"What is published differs from the models: {found.problem}. The next run publishes "
            "in full. If it comes back, please report it"
        )
        self.found = found


@dataclass(frozen=True, slots=True)
class Reconciling:
    """What it takes to compare; `folder` is for the file while it is read."""

    declaration: Declaration
    models: Models
    server: Server
    hyper: HyperProcess
    folder: Path
    log: logging.Logger

    def compare(self, state: State) -> Reconciliation:
        """Read back what a refresh has just left."""
        rule = self.declaration.reconcile or Reconcile()
        if state.size is None:
            return Reconciliation(skipped="the size of the published file is not known")
        size = state.size + state.grown
        if size > rule.max_bytes:
            return Reconciliation(
                skipped=f"its file of up to {size / 1e6:,.1f} MB is larger than "
                f"reconcile: max_mb: {rule.max_bytes / 1e6:g}"
            )
        self.log.info("Reading back what was published, up to %.1f MB", size / 1e6)
        self.folder.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(prefix="read back ", dir=self.folder) as folder:
            try:
                package = self.server.download(str(state.luid), Path(folder))
            except RefreshError as error:
                return Reconciliation(skipped=f"it could not be read back: {error}")
            try:
                return self._compare(_extract(package), state, checksums=rule.checksums)
            except (HyperException, zipfile.BadZipFile, ValueError) as error:
                return Reconciliation(problem=f"it cannot be read: {error}")

    def _compare(self, file: Path, state: State, *, checksums: bool) -> Reconciliation:
        problems, counts, sums = [], {}, {}
        with connect(self.hyper, file) as connection:
            for table in self.declaration.tables:
                published = f"{self.declaration.target(table.name)}"
                expected = state.tables[table.name].content.rows
                counts[table.name] = _rows(connection, published)
                if counts[table.name] != expected:
                    problems.append(
                        f"{table.name} holds {counts[table.name]:,} rows, its model {expected:,}"
                    )
                elif checksums:
                    found = _checksums(connection, published, state, table)
                    sums.update({f"{table.name}.{name}": each for name, each in found.items()})
                    wanted = _checksums(connection, self._model(table, state), state, table)
                    differing = [name for name in wanted if wanted[name] != found[name]]
                    problems += [f"{table.name}.{name} differs" for name in differing]
        return Reconciliation("; ".join(problems) or None, rows=counts, checksums=sums)

    def _model(self, table: Table, state: State) -> str:
        cutoff = state.tables[table.name].cutoff
        return rows(source(table.name, self.models[table.model], cutoff))


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


def _checksums(connection: Connection, relation: str, state: State, table: Table) -> dict[str, int]:
    """Of each column, the sum of the first bytes of its values' SHA-256; NULL counts as a value."""
    bytes_ = " + ".join(
        f"CAST(get_byte(h, {number}) AS BIGINT) * {256**number}" for number in range(_BYTES)
    )
    found = {}
    for column in state.tables[table.name].columns:
        value = escape_name(column.name)
        # Bytes need not be text.
        is_text = hyper_type(column, table=table.name) != "BYTES"
        text = f"CAST({value} AS TEXT)" if is_text else f"encode({value}, 'hex')"
        total: Any = connection.execute_scalar_query(
            f"SELECT SUM(CAST({bytes_} AS NUMERIC(38,0))) "  # noqa: S608
            f"FROM (SELECT sha256(COALESCE('=' || {text}, '')) AS h FROM {relation} source) hashed"
        )
        found[column.name] = int(total or 0)
    return found
