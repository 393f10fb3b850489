"""Reconciliation: read the published data back and compare it with the models."""

import logging
import zipfile
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from tableauhyperapi import Connection, HyperException, HyperProcess

from tableau_pipeline.core.checkpoint import Checkpoint
from tableau_pipeline.core.declaration import Declaration, Reconcile
from tableau_pipeline.core.server import RemoteDatasource, Server
from tableau_pipeline.core.snapshot import Snapshots
from tableau_pipeline.core.units import megabytes
from tableau_pipeline.errors import RefreshError
from tableau_pipeline.extracts.compare import Reconciliation, compare, count_rows
from tableau_pipeline.hyper.process import connect


class ReconciliationError(RefreshError):
    """The published data differs from the models; `found` shows where."""

    def __init__(self, found: Reconciliation) -> None:
        super().__init__(
            f"What is published differs from the models: {found.problem}. The next run publishes "
            "in full. If this happens again, please report it"
        )
        self.found = found


@dataclass(frozen=True, slots=True)
class Reconciler:
    """Compares published data with models; `folder` holds the downloaded file meanwhile."""

    declaration: Declaration
    snapshots: Snapshots
    server: Server
    hyper: Callable[[], HyperProcess]
    folder: Path
    log: logging.Logger

    def compare(
        self, checkpoint: Checkpoint, remote: RemoteDatasource, *, by_row: bool = False
    ) -> Reconciliation:
        """Compare what a refresh has just left: its rows, and its values if declared."""
        rule = self.declaration.reconcile
        if rule is None:
            return Reconciliation(skipped="reconcile: never")
        # An upper bound: payloads count in full, even where their rows replaced others.
        size = None if checkpoint.size is None else checkpoint.size + checkpoint.grown
        try:
            with self._published(remote, rule, size=size) as connection:
                return compare(
                    connection,
                    checkpoint,
                    self.snapshots,
                    checksums=rule.checksums,
                    by_row=by_row,
                )
        except RefreshError as error:
            return Reconciliation(skipped=str(error))
        except (HyperException, zipfile.BadZipFile, ValueError) as error:
            # A file that may not be read proves nothing. One that came but does not open is
            # broken, and only a publish repairs it.
            return Reconciliation(problem=f"it cannot be read: {error}")

    def judge(self, checkpoint: Checkpoint, remote: RemoteDatasource) -> Reconciliation:
        """Compare the data on the server with a checkpoint, row by row."""
        return self.compare(checkpoint, remote, by_row=True)

    def count(self, remote: RemoteDatasource) -> Mapping[str, int] | None:
        """The published rows of the declared tables; None if the file is too large to count."""
        # Guards need the rows even if the declaration wants nothing compared.
        rule = self.declaration.reconcile or Reconcile()
        names = {
            self.declaration.published_name(table.name): table.name
            for table in self.declaration.tables
        }
        try:
            # Rows are counted where no checkpoint is left, so only the server can tell the size.
            with self._published(remote, rule, size=None) as connection:
                found = count_rows(connection)
                return {names[name]: rows for name, rows in found.items() if name in names}
        except (RefreshError, HyperException, zipfile.BadZipFile, ValueError) as error:
            self.log.warning("The published rows cannot be counted: %s", error)
            return None

    @contextmanager
    def _published(
        self, remote: RemoteDatasource, rule: Reconcile, *, size: int | None
    ) -> Generator[Connection]:
        """Open the published file; `size` is its size by our records, None if not known."""
        if size is None and remote.megabytes is not None:
            size = remote.megabytes * 2**20
        if size is None:
            raise RefreshError("the size of the published file is not known")
        if size > rule.max_bytes:
            raise RefreshError(
                f"its file of up to {megabytes(size)} is larger than "
                f"reconcile: max_mb: {rule.max_bytes / 1e6:g}"
            )
        self.log.info("Reading back what is published, up to %s", megabytes(size))
        self.folder.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(prefix="read back ", dir=self.folder) as folder:
            try:
                package = self.server.download(remote.luid, Path(folder))
            except RefreshError as error:
                raise RefreshError(f"it could not be read back: {error}") from error
            with connect(self.hyper(), _extract(package)) as connection:
                yield connection


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
