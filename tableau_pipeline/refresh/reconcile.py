"""Reconciliation: compare what is published with the models.

The server counts the rows, or the file is read back.
"""

import logging
from collections.abc import Callable, Generator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace

from tableauhyperapi import Connection, HyperException

from tableau_pipeline.core.checkpoint import Checkpoint
from tableau_pipeline.core.declaration import Declaration, Reconcile, megabytes
from tableau_pipeline.core.drift import RemoteDatasource
from tableau_pipeline.core.snapshot import Snapshots
from tableau_pipeline.errors import DamagedSnapshotError, RefreshError
from tableau_pipeline.extracts.checks import damage
from tableau_pipeline.extracts.compare import (
    Reconciliation,
    compare,
    extract_tables,
    published_file,
)
from tableau_pipeline.hyper.build import rows_in
from tableau_pipeline.hyper.process import Hyperd, connect
from tableau_pipeline.publishing.site import TableauSite
from tableau_pipeline.refresh.effects import Likeness

# Seconds until the server is asked again. A cache of it may have held the former rows.
_PAUSE = 5
_NEVER = "reconcile: never"
_HIDDEN = (
    "If a filter of the data source or row-level security hides rows from this user, the server "
    "counts too few: declare reconcile: {by: download} with a larger max_mb, or reconcile: never"
)


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
