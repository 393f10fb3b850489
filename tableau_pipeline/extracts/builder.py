"""Build the files of a refresh: whole data sources, and payloads of updates."""

import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

from tableauhyperapi import HyperException

from tableau_pipeline.core.checkpoint import Checkpoint, TableContent
from tableau_pipeline.core.declaration import Declaration
from tableau_pipeline.core.snapshot import Snapshot, Snapshots
from tableau_pipeline.errors import DamagedSnapshotError, RefusedError
from tableau_pipeline.extracts.affected import TableChange, TableVersion
from tableau_pipeline.extracts.checks import check_rows, damage
from tableau_pipeline.extracts.content import Models, desired_table, table_source
from tableau_pipeline.extracts.delta import Delta, build_delta, split_delta
from tableau_pipeline.hyper.build import Extract, build_extract
from tableau_pipeline.hyper.parquet import TableSource
from tableau_pipeline.hyper.process import Hyperd, is_out_of_memory
from tableau_pipeline.outcome import Code
from tableau_pipeline.rendering import megabytes


@dataclass(frozen=True)
class Builder:
    """Builds files in one folder; the newest ones stay there until the next refresh.

    All that read the rows of a model raise a RefusedError if they cannot be published.
    """

    declaration: Declaration
    models: Models
    snapshots: Snapshots
    hyper: Callable[[], Hyperd]
    folder: Path
    now: Callable[[], datetime]
    log: logging.Logger
    # Why a published version cannot be read, by model and number.
    _damaged: dict[tuple[str, int], str] = field(default_factory=dict, init=False)

    def desired(self, checkpoint: Checkpoint | None) -> Mapping[str, TableContent]:
        """Return the desired content of each table; open files only if no checkpoint has it."""
        known, now = checkpoint.tables if checkpoint else {}, self.now()
        return {
            each.name: desired_table(
                self.hyper, each, self.models[each.model], known=known.get(each.name), now=now
            )
            for each in self.declaration.tables
        }

    def pinned(self, checkpoint: Checkpoint | None) -> tuple["Builder", Mapping[str, TableContent]]:
        """Return the builder of what a checkpoint says is published, and that content.

        Raises:
            RefusedError: it is not known, or no longer there.
        """
        tables, models = checkpoint.tables if checkpoint else {}, {**self.models}
        for table in self.declaration.tables:
            known = tables.get(table.name)
            found = self.snapshots.version(table.model, known.version) if known else None
            rows = (known.columns, known.all_rows) if known else None
            if not found or (found.columns, found.fingerprint) != rows:
                raise RefusedError(
                    f'The metadata of "{self.declaration.name}" cannot be published alone: the '
                    f'rows of table "{table.name}" that the last refresh published are not known, '
                    "or no longer there. Refresh without metadata_only",
                    code=Code.PUBLISHED_VERSION,
                )
            models[table.model] = found
        return replace(self, models=models), tables

    def file(self, desired: Mapping[str, TableContent]) -> Extract:
        """Build the whole data source."""
        # Checked first: a refused refresh must leave the last file there to be looked at.
        self.check(desired)
        name_of = self.declaration.published_name
        sources = self._sources(desired, desired).items()
        extract = build_extract(
            self.hyper(),
            self._new(),
            tables=[replace(source, name=name_of(name)) for name, source in sources],
            relationships=self.declaration.relationships,
        )
        rows = ", ".join(f"{table} {count:,}" for table, count in extract.rows.items())
        self.log.info("Built %s (%s): rows %s", extract.path, megabytes(extract.size), rows)
        return extract

    def check(self, desired: Mapping[str, TableContent]) -> None:
        """Check the rows without building anything."""
        check_rows(self.hyper(), self.declaration, self._sources(desired, desired))

    def check_unchanged(
        self,
        desired: Mapping[str, TableContent],
        checkpoint: Checkpoint,
        *,
        changed: Collection[str],
    ) -> None:
        """Check the unchanged tables whose key differs from the one they were published with."""
        tables = {
            name
            for name, table in desired.items()
            if name not in changed and not _is_checked(table, checkpoint.tables[name])
        }
        if tables:
            check_rows(self.hyper(), self.declaration, self._sources(desired, tables))

    def delta(
        self, tables: Collection[str], desired: Mapping[str, TableContent], checkpoint: Checkpoint
    ) -> Delta:
        """Build the payload and the actions of an update of some tables."""
        try:
            return self._delta(tables, desired, checkpoint)
        except HyperException as error:
            if is_out_of_memory(error) or not self._find_damage(tables, checkpoint):
                raise
        # Tables whose published version is damaged are sent whole.
        return self._delta(tables, desired, checkpoint)

    def _delta(
        self, tables: Collection[str], desired: Mapping[str, TableContent], checkpoint: Checkpoint
    ) -> Delta:
        hyper, declaration = self.hyper(), self.declaration
        changes = {
            name: self._change(name, desired[name], checkpoint.tables[name]) for name in tables
        }
        known = {
            name: change
            for name, change in changes.items()
            if _is_checked(desired[name], checkpoint.tables[name])
        }
        check_rows(hyper, declaration, self._sources(desired, tables), known=known)
        delta = build_delta(
            hyper,
            self._new(),
            changes=[*changes.values()],
            targets={name: declaration.target(name) for name in tables},
            models=self.models,
        )
        # Grouping all rows by key is slower than finding the changed ones, so known keys were
        # skipped.
        identified = {each.change.table.name for each in delta.tables if each.is_identified}
        if doubtful := {name for name in known if name not in identified and desired[name].key}:
            check_rows(hyper, declaration, self._sources(desired, doubtful))
        payload = delta.extract
        self.log.info("Built the payload %s (%s)", payload.path, megabytes(payload.size))
        return delta

    def split(self, delta: Delta, limit: int) -> list[Delta]:
        """Split an update into several with at most `limit` bytes each; [] if impossible."""
        return split_delta(self.hyper(), delta, limit)

    def _new(self) -> Path:
        """Remove the files of earlier refreshes; return the path of a new one."""
        # Unlike in a shell, this also finds the half-built files, whose names begin with a dot.
        for file in self.folder.glob("*"):
            file.unlink()
        # No name is used twice: a refresh that was overtaken must find its file missing, and not
        # send the newer one instead.
        return self.folder / f"{datetime.now(UTC):%Y%m%dT%H%M%S%f}.hyper"

    def _sources(
        self, desired: Mapping[str, TableContent], tables: Collection[str]
    ) -> dict[str, TableSource]:
        """Return the desired rows of some tables."""
        return {
            each.name: table_source(each.name, self.models[each.model], desired[each.name].cutoff)
            for each in self.declaration.tables
            if each.name in tables
        }

    def _change(self, name: str, now: TableContent, before: TableContent) -> TableChange:
        table = next(table for table in self.declaration.tables if table.name == name)
        old, whole = self._published(before)
        return TableChange(
            table=table,
            columns=now.columns,
            new=TableVersion(self.models[table.model], now.content, now.cutoff),
            old=TableVersion(old, before.content, before.cutoff) if old else None,
            published_rows=before.content.rows,
            whole=whole,
        )

    def _published(self, table: TableContent) -> tuple[Snapshot | None, str | None]:
        """Return the published version of a table; None, and why, if it is not available."""
        if reason := self._damaged.get((table.model, table.version)):
            return None, reason
        try:
            found = self.snapshots.version(table.model, table.version)
        except DamagedSnapshotError as error:
            return None, f"the snapshot that is published cannot be read ({error})"
        if found is None:
            return None, "the snapshot that is published is gone"
        # A lake numbers its own versions: another table may have this one, too. The version of a
        # partitioned model may be recorded without some of its partitions.
        is_summed = found.fingerprint.is_additive and table.all_rows.is_additive
        if found.fingerprint != table.all_rows and not is_summed:
            return None, (
                "the table of the lake that is published has been replaced by another one, or its "
                "name mapping has changed"
            )
        if missing := found.missing():
            return None, f"a file of the snapshot that is published is gone ({missing[0]})"
        return found, None

    def _find_damage(self, tables: Collection[str], checkpoint: Checkpoint) -> bool:
        """Take note of the published versions that cannot be read; return whether there is one."""
        found = False
        for table in (checkpoint.tables[name] for name in tables):
            old, _ = self._published(table)
            if old and (problem := damage(self.hyper, old)):
                reason = f"a file of the snapshot that is published cannot be read ({problem})"
                self._damaged[table.model, table.version] = reason
                found = True
        return found


def _is_checked(desired: TableContent, published: TableContent) -> bool:
    """Whether the published rows were found to meet the condition of the table's policy, if any."""
    return (desired.key, desired.cursor) in (((), None), (published.key, published.cursor))
