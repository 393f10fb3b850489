"""Build the files that a refresh sends: full extracts, and payloads of updates."""

import logging
from collections.abc import Callable, Collection, Generator, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

from tableauhyperapi import HyperException, escape_name

from tableau_pipeline.core.checkpoint import Checkpoint, TableContent
from tableau_pipeline.core.declaration import Declaration, Table
from tableau_pipeline.core.snapshot import Snapshot, Snapshots
from tableau_pipeline.errors import DamagedSnapshotError, RefusedError
from tableau_pipeline.extracts.affected_rows import TableChange, TableVersion
from tableau_pipeline.extracts.checks import check_rows, damage, readable
from tableau_pipeline.extracts.content import Models, desired_table, table_source
from tableau_pipeline.extracts.delta import Delta, build_delta, differing_rows, split_delta
from tableau_pipeline.hyper.build import Extract, build_extract
from tableau_pipeline.hyper.messages import is_out_of_memory, may_be_damaged
from tableau_pipeline.hyper.parquet import TableSource, select_sql
from tableau_pipeline.hyper.process import Hyperd, connect
from tableau_pipeline.outcome import Code, Refusal
from tableau_pipeline.rendering import megabytes


@dataclass(frozen=True)
class Builder:
    """Builds files in one folder; the newest files stay there until the next refresh.

    Methods that read the rows of a model raise a RefusedError if the rows cannot be published.

    Attributes:
        samples: whether such a RefusedError may show values of rows.
        pinned_for: what is impossible without the recorded rows, and the remedy; set only by
            `pinned`.
    """

    declaration: Declaration
    models: Models
    snapshots: Snapshots
    hyper: Callable[[], Hyperd]
    folder: Path
    now: Callable[[], datetime]
    log: logging.Logger
    samples: bool = False
    pinned_for: tuple[str, str] | None = None
    # The reasons why versions cannot be read; each key is a model and the number of a version.
    _damaged: dict[tuple[str, int], str] = field(default_factory=dict, init=False)

    def desired(self, checkpoint: Checkpoint | None) -> Mapping[str, TableContent]:
        """Return the desired content of each table.

        Files are opened only for content that `checkpoint`, a record of a refresh, does not have.
        """
        recorded, now = checkpoint.tables if checkpoint else {}, self.now()
        return {
            table.name: desired_table(
                self.hyper, table, self.models[table.model], known=recorded.get(table.name), now=now
            )
            for table in self.declaration.tables
        }

    def emptied(self) -> "Builder":
        """Return a builder of the same tables without rows."""
        # Use the version number 0, which no model has, so that no later refresh uses the empty
        # tables for comparison.
        empty = {"number": 0, "parts": ()}
        models = {model: shot.model_copy(update=empty) for model, shot in self.models.items()}
        return replace(self, models=models)

    def pinned(self, tables: Mapping[str, TableContent], *, doing: str, remedy: str) -> "Builder":
        """Return a builder that reads the rows that a record of a refresh names.

        Args:
            tables: the recorded content of each table; {} if there is no record.
            doing: what is impossible without these rows, in words.
            remedy: what the user can do, as a sentence.

        Raises:
            RefusedError: these rows are not known, or no longer exist.
        """
        models = {**self.models}
        for table in self.declaration.tables:
            recorded = tables.get(table.name)
            snapshot = self.snapshots.version(table.model, recorded.version) if recorded else None
            expected = (recorded.columns, recorded.all_rows) if recorded else None
            is_known = snapshot and (snapshot.columns, snapshot.fingerprint) == expected
            # The owner of a lake table may have removed files of its older versions.
            if snapshot is None or not is_known or snapshot.missing():
                raise _no_longer_there(table, doing, remedy)
            models[table.model] = snapshot
        return replace(self, models=models, pinned_for=(doing, remedy))

    @contextmanager
    def reading(self) -> Generator[None]:
        """Within the block, turn errors of hyperd into errors that name the cause, if it is found.

        Raises:
            RefreshError: see `readable`.
            RefusedError: see `readable`; or `pinned` made this builder, and the recorded rows are
                missing or damaged.
        """
        with readable(self.hyper, self.declaration, self.models):
            try:
                yield
            except HyperException as error:
                if self.pinned_for and not is_out_of_memory(error):
                    self._check_pinned(error, *self.pinned_for)
                raise

    def _check_pinned(self, error: HyperException, doing: str, remedy: str) -> None:
        """Refuse if recorded rows are gone or damaged: no newer rows can replace them."""
        for table in self.declaration.tables:
            snapshot = self.models[table.model]
            if snapshot.missing() or (may_be_damaged(error) and damage(self.hyper, snapshot)):
                raise _no_longer_there(table, doing, remedy) from error

    def file(self, desired: Mapping[str, TableContent]) -> Extract:
        """Build the whole data source."""
        # Check first, so that a refused refresh leaves the last file in place for inspection.
        self.check(desired)
        name_of = self.declaration.published_name
        sources = self._sources(desired, desired).items()
        extract = build_extract(
            self.hyper(),
            self._new_path(),
            tables=[replace(source, name=name_of(name)) for name, source in sources],
            relationships=self.declaration.relationships,
        )
        rows = ", ".join(f"{table} {count:,}" for table, count in extract.rows.items())
        self.log.info("Built %s (%s): rows %s", extract.path, megabytes(extract.size), rows)
        return extract

    def check(self, desired: Mapping[str, TableContent]) -> None:
        """Check the rows without building anything."""
        self._check_rows(self._sources(desired, desired))

    def check_unchanged(
        self,
        desired: Mapping[str, TableContent],
        checkpoint: Checkpoint,
        *,
        changed: Collection[str],
    ) -> None:
        """Check unchanged tables whose rows were not yet checked for the desired key or cursor."""
        tables = {
            name
            for name, table in desired.items()
            if name not in changed and not _is_checked(table, checkpoint.tables[name])
        }
        if tables:
            self._check_rows(self._sources(desired, tables))

    def _check_rows(
        self, tables: Mapping[str, TableSource], known: Mapping[str, TableChange] | None = None
    ) -> None:
        check_rows(self.hyper(), self.declaration, tables, known=known, samples=self.samples)

    def texts(self, table: str, content: TableContent, column: str) -> set[str | None]:
        """Return the different values of a text column of a table."""
        source = table_source(table, self.models[content.model], content.cutoff, only=[column])
        name, hyper = escape_name(column), self.hyper()
        query = f"SELECT DISTINCT {name} FROM {select_sql(source)} source"  # noqa: S608
        with connect(hyper) as connection:
            return {value for (value,) in connection.execute_list_query(query)}

    def changed_rows(self, name: str, now: TableContent, before: TableContent) -> int | None:
        """Count how many rows differ between two versions, in the columns that both versions have.

        Returns:
            The larger of two counts: the rows that only the old version has, and the rows that only
            the new version has. So a changed row counts once. None if the rows of `before` are no
            longer stored, or are damaged.
        """
        change = self._change(name, now, before)
        if change.old is None:
            return None
        try:
            with connect(self.hyper()) as connection:
                return max(differing_rows(connection, change, before.columns))
        except HyperException as error:
            if is_out_of_memory(error) or not self._find_damage([before]):
                raise
        return None

    def delta(
        self, tables: Collection[str], desired: Mapping[str, TableContent], checkpoint: Checkpoint
    ) -> Delta:
        """Build the payload and the actions of an update of some tables."""
        try:
            return self._delta(tables, desired, checkpoint)
        except HyperException as error:
            published = [checkpoint.tables[name] for name in tables]
            if is_out_of_memory(error) or not self._find_damage(published):
                raise
        # Try again: `_find_damage` has noted the damaged versions, so their tables are sent whole.
        return self._delta(tables, desired, checkpoint)

    def _delta(
        self, tables: Collection[str], desired: Mapping[str, TableContent], checkpoint: Checkpoint
    ) -> Delta:
        hyper, declaration = self.hyper(), self.declaration
        changes = {
            name: self._change(name, desired[name], checkpoint.tables[name]) for name in tables
        }
        checked = {
            name: change
            for name, change in changes.items()
            if _is_checked(desired[name], checkpoint.tables[name])
        }
        self._check_rows(self._sources(desired, tables), known=checked)
        delta = build_delta(
            hyper,
            self._new_path(),
            changes=[*changes.values()],
            targets={name: declaration.target(name) for name in tables},
            models=self.models,
        )
        # The check above skips tables whose published keys were checked, because grouping all rows
        # by key is slower than finding the changed rows. The delta shows whether the key of a
        # skipped table also identifies its new rows. Check the table now if the delta leaves this
        # open.
        identified = {
            table_delta.change.table.name
            for table_delta in delta.tables
            if table_delta.is_identified
        }
        if unidentified := {
            name for name in checked if name not in identified and desired[name].key
        }:
            self._check_rows(self._sources(desired, unidentified))
        payload = delta.extract
        self.log.info("Built the payload %s (%s)", payload.path, megabytes(payload.size))
        return delta

    def split(self, delta: Delta, limit: int) -> list[Delta]:
        """Split an update into parts of at most `limit` bytes; return [] if that is impossible."""
        return split_delta(self.hyper(), delta, limit)

    def _new_path(self) -> Path:
        """Remove the files of earlier refreshes; return the path for a new file."""
        # In Python, "*" also matches names that begin with a dot. Half-built files have such names.
        for file in self.folder.glob("*"):
            file.unlink()
        # Never use a name twice. If a newer refresh has removed the file of this refresh, sending
        # that file must fail. Under the same name, this refresh would send the newer file.
        return self.folder / f"{datetime.now(UTC):%Y%m%dT%H%M%S%f}.hyper"

    def _sources(
        self, desired: Mapping[str, TableContent], tables: Collection[str]
    ) -> dict[str, TableSource]:
        """Return the desired rows of the given tables; the keys are table names."""
        return {
            table.name: table_source(
                table.name, self.models[table.model], desired[table.name].cutoff
            )
            for table in self.declaration.tables
            if table.name in tables
        }

    def _change(self, name: str, now: TableContent, before: TableContent) -> TableChange:
        table = next(table for table in self.declaration.tables if table.name == name)
        old, whole = self._published_snapshot(before)
        new, contents = self.models[table.model], (now.content, before.content)
        if old and not (old.fingerprint.is_additive and new.fingerprint.is_additive):
            # At least one version lacks stored hashes, and only hashes of the same kind can
            # be compared. So let hyperd compute the hashes of both versions.
            new, old = new.unhashed(), old.unhashed()
            contents = (now.content.unhashed(), before.content.unhashed())
        return TableChange(
            table=table,
            columns=now.columns,
            new=TableVersion(new, contents[0], now.cutoff),
            old=TableVersion(old, contents[1], before.cutoff) if old else None,
            published_rows=before.content.rows,
            whole=whole,
        )

    def _published_snapshot(self, table: TableContent) -> tuple[Snapshot | None, str | None]:
        """Return the published version of a table, or the reason why it is unavailable."""
        if reason := self._damaged.get((table.model, table.version)):
            return None, reason
        try:
            snapshot = self.snapshots.version(table.model, table.version)
        except DamagedSnapshotError as error:
            return None, f"the snapshot that is published cannot be read ({error})"
        if snapshot is None:
            return None, "the snapshot that is published is gone"
        # A lake numbers the versions of each table separately, so a new table of the same name may
        # have a version with this number. Compare the fingerprints to notice this. Do not compare
        # additive fingerprints, which may be sums over partitions: the record of a partitioned
        # model may lack some partitions.
        is_summed = snapshot.fingerprint.is_additive and table.all_rows.is_additive
        if snapshot.fingerprint != table.all_rows and not is_summed:
            return None, (
                "the table of the lake that is published has been replaced by another one, or its "
                "name mapping has changed"
            )
        if missing := snapshot.missing():
            return None, f"a file of the snapshot that is published is gone ({missing[0]})"
        return snapshot, None

    def _find_damage(self, published: Iterable[TableContent]) -> bool:
        """Remember the published versions that cannot be read; return whether any were found."""
        is_any_damaged = False
        for table in published:
            old, _ = self._published_snapshot(table)
            if old and (problem := damage(self.hyper, old)):
                reason = f"a file of the snapshot that is published cannot be read ({problem})"
                self._damaged[table.model, table.version] = reason
                is_any_damaged = True
        return is_any_damaged


def _no_longer_there(table: Table, doing: str, remedy: str) -> RefusedError:
    refusal = Refusal(
        f'{doing}: the rows of table "{table.name}" that a refresh published are not '
        "known, or no longer there",
        Code.PUBLISHED_VERSION,
        table=table.name,
        remedy=remedy,
    )
    return RefusedError(refusal)


def _is_checked(desired: TableContent, published: TableContent) -> bool:
    """Whether the published rows need no further check for the desired key and cursor."""
    return (desired.key, desired.cursor) in (((), None), (published.key, published.cursor))
