"""The files that a refresh builds: whole data sources, and payloads of updates."""

import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import zip_longest
from pathlib import Path

from tableauhyperapi import HyperProcess

from tableau_pipeline.core.checkpoint import TableState
from tableau_pipeline.core.declaration import Declaration
from tableau_pipeline.core.snapshot import Snapshot
from tableau_pipeline.hyper.build import Extract, build_extract
from tableau_pipeline.refresh.change import Change, Side
from tableau_pipeline.refresh.contents import Models, source
from tableau_pipeline.refresh.increment import Increment, build_increment
from tableau_pipeline.refresh.plan import Update, View
from tableau_pipeline.refresh.rows_check import check_rows, count_orphans
from tableau_pipeline.refresh.slices import Slice


@dataclass(frozen=True, slots=True)
class Files:
    """Builds files in one folder, which it keeps tidy.

    Attributes:
        needed: files of earlier refreshes that have to stay.
    """

    declaration: Declaration
    models: Models
    hyper: Callable[[], HyperProcess]
    folder: Path
    needed: Callable[[], Collection[Path | None]]
    log: logging.Logger

    def whole(self, tables: Mapping[str, TableState]) -> Extract:
        """The whole data source as it shall be.

        Raises:
            RefusedError: the rows of a model are not fit to be published.
        """
        declaration = self.declaration
        self.check(tables)
        self._tidy()
        extract = build_extract(
            self.hyper(),
            self._new(),
            tables=[
                source(
                    declaration.published_name(table.name),
                    self.models[table.model],
                    tables[table.name].cutoff,
                )
                for table in declaration.tables
            ],
            relationships=declaration.relationships,
        )
        rows = ", ".join(f"{table} {count:,}" for table, count in extract.rows.items())
        self.log.info("Built %s (%.1f MB): rows %s", extract.path, extract.size / 1e6, rows)
        return extract

    def check(self, tables: Mapping[str, TableState]) -> None:
        """Look at the rows, build nothing.

        Raises:
            RefusedError: the rows of a model are not fit to be published.
        """
        check_rows(self.hyper(), self.declaration, self.models, tables, tables=tables)

    def increment(self, update: Update, tables: Mapping[str, TableState], view: View) -> Increment:
        """The payload and the actions of an update.

        Raises:
            RefusedError: the rows of a model are not fit to be published.
        """
        hyper, declaration, models = self.hyper(), self.declaration, self.models
        known = {
            name
            for name, table in tables.items()
            if table.key and all(base.tables[name].key == table.key for base in view.bases)
        }
        check_rows(hyper, declaration, models, tables, tables=update.tables, identified=known)
        self._tidy()
        increment = self.slice(update, tables, view, piece=Slice(0, 1))
        # Grouping all rows by their key takes longer than finding those that changed.
        if doubtful := known & set(update.tables) - increment.identified:
            check_rows(hyper, declaration, models, tables, tables=doubtful)
        return increment

    def slice(
        self, update: Update, tables: Mapping[str, TableState], view: View, *, piece: Slice
    ) -> Increment:
        """A slice of an update whose rows were checked."""
        increment = build_increment(
            self.hyper(),
            self._new(),
            changes=[
                self._change(name, tables, view, reason) for name, reason in update.tables.items()
            ],
            targets={name: self.declaration.target(name) for name in update.tables},
            models=self.models,
            piece=piece,
        )
        payload = increment.extract
        self.log.info("Built the payload %s (%.1f MB)", payload.path, payload.size / 1e6)
        return increment

    def orphans(self, tables: Mapping[str, TableState], changed: Collection[str]) -> dict[str, int]:
        """Rows of the new content that point at no row of the other table, by relationship."""
        found = count_orphans(self.hyper(), self.declaration, self.models, tables, tables=changed)
        for edge, count in found.items():
            self.log.warning("Relationship %s: %s rows have no partner", edge, f"{count:,}")
        return found

    def _tidy(self) -> None:
        """Remove the files of earlier refreshes."""
        needed = self.needed()
        for file in self.folder.glob("*"):
            if file not in needed:
                file.unlink()

    def _new(self) -> Path:
        return self.folder / f"{datetime.now(UTC):%Y%m%dT%H%M%S%f}.hyper"

    def _change(
        self, name: str, tables: Mapping[str, TableState], view: View, reason: str | None
    ) -> tuple[Change, str | None]:
        table = next(table for table in self.declaration.tables if table.name == name)
        state = tables[name]
        bases = [base.tables[name] for base in view.bases]
        snapshots = [
            [Snapshot.read(each).declared(self.declaration.types) for each in base.folders]
            for base in bases
            if not reason
        ]
        if missing := [each for found in snapshots for one in found for each in one.missing()]:
            reason = f"a file of the snapshot that is published is gone ({missing[0]})"
        change = Change(
            table=table,
            columns=state.columns,
            new=Side.of(state, self.models[table.model]),
            olds=[
                Side.of(base, [] if reason else found)
                for base, found in zip_longest(bases, snapshots)
            ],
        )
        return change, reason
