"""The rows of files, or of a database table, stored as versions of a model without code."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from pyspark.sql import functions as F

from tableau_pipeline.core.snapshot import Part, Snapshot
from tableau_pipeline.errors import RefusedError
from tableau_pipeline.hyper.types import Column
from tableau_pipeline.ingest.errors import READ_ERRORS, Reading, reason
from tableau_pipeline.snapshots.store import SnapshotStore
from tableau_pipeline.snapshots.write import (
    UnstorableError,
    columns_of,
    commit,
    discard_on_error,
    stored_parts,
    write_snapshot,
)

# The partition key of rows that were stored before files were added one by one.
_EARLIER = "earlier rows"
# The name of each row's file, from a hidden column of Spark in which it is escaped as in a URI.
_FILE = "url_decode(replace(_metadata.file_name, '+', '%2B'))"


@dataclass
class FileStore:
    """Implements `core.snapshot.Snapshots` for rows that are read when a refresh asks for them.

    Attributes:
        read: reads the rows once it is the data source's turn; called once.
        built_on: returns the version to whose rows these are added, None if nothing is published;
            a file's new rows replace its old ones. Never the newest one that is stored: rows that
            were refused must not be published with the next file. Without it, the model has only
            these rows.
        file_column: the name of a column to add, with the name of each row's file.
        drop_bad_rows: leave out bad rows instead of refusing all.
        read_rows: the result of `read`, once it was called.
    """

    store: SnapshotStore
    read: Callable[[], Reading]
    run_id: str
    built_on: Callable[[], int | None] | None = None
    file_column: str | None = None
    drop_bad_rows: bool = False
    read_rows: Reading | None = field(default=None, init=False)
    _written: dict[str, Snapshot] = field(default_factory=dict, init=False)

    def newest(self, asset_key: str) -> Snapshot:
        """Read the files and store their rows; later calls return the same version.

        Raises:
            RefusedError: there is nothing to read, some rows are bad, their types cannot be
                stored, or they cannot be added to the earlier rows. Nothing is stored.
        """
        if asset_key not in self._written:
            reading = self.read()
            if not self.drop_bad_rows:
                reading.check_rows()
            try:
                if self.built_on:
                    base = self._base(asset_key, self.built_on())
                    self._written[asset_key] = self._append(asset_key, reading, base)
                else:
                    self._written[asset_key] = write_snapshot(
                        reading.frame,
                        self.store,
                        asset_key=asset_key,
                        run_id=self.run_id,
                        before_commit=reading.check_unchanged,
                    )
            except (UnstorableError, *READ_ERRORS) as error:
                # The files are at fault, whether Spark or the store does not take them.
                raise RefusedError(reason(error)) from error
            self.read_rows = reading
        return self._written[asset_key]

    def version(self, asset_key: str, number: int) -> Snapshot | None:
        """Return a version that was stored before; None if there is none."""
        written = self._written.get(asset_key)
        if written and written.number == number:
            return written
        return self.store.version(asset_key, number)

    def _append(self, asset_key: str, reading: Reading, base: Snapshot | None) -> Snapshot:
        digests, frame = (
            {path.name: digest for path, digest in reading.digests.items()},
            reading.frame,
        )
        if len(digests) < len(reading.digests):
            raise RefusedError(
                "Two of the files have the same name, which determines the rows that a file "
                f"replaces: rename one of {', '.join(map(str, reading.digests))}"
            )
        if self.file_column:
            if self.file_column.casefold() in map(str.casefold, frame.columns):
                raise RefusedError(
                    f'file_column "{self.file_column}": the files already have such a column. '
                    "Choose another name"
                )
            frame = frame.withColumn(self.file_column, F.expr(_FILE))
        kept = [
            part if part.partition else part.model_copy(update={"partition": _EARLIER})
            for part in (base.parts if base else ())
            if part.partition not in digests
        ]
        with discard_on_error(self.store, asset_key) as folder:
            parts = stored_parts(
                frame,
                self.store,
                folder,
                expression=_FILE,
                partitions=[*digests],
                asset_key=asset_key,
            )
            reading.check_unchanged()
            if base:
                for part in kept:
                    _check_columns(part, part.columns or base.columns, columns_of(frame))
            named = [
                part.model_copy(update={"digest": digests[str(part.partition)]}) for part in parts
            ]
            return commit(
                frame,
                self.store,
                named,
                asset_key=asset_key,
                run_id=self.run_id,
                parts=lambda new, _: sorted([*kept, *new], key=lambda part: str(part.partition)),
            )

    def _base(self, asset_key: str, number: int | None) -> Snapshot | None:
        if number is None:
            return None
        base = self.store.version(asset_key, number)
        if base is None or base.missing():
            raise RefusedError(
                "The rows that were published before are not stored here, so nothing can be added: "
                "they were removed from the disk. Publish all files with mode replace first"
            )
        return base


def _check_columns(kept: Part, before: Sequence[Column], columns: Sequence[Column]) -> None:
    """Check that the rows to add have the columns of a part of the earlier version."""
    if tuple(before) != tuple(columns):
        differing = [each for each in columns if each not in before]
        differing += [each for each in before if each not in columns]
        described = ", ".join(f"{each.name} ({each.type})" for each in differing)
        raise RefusedError(
            f"The columns differ from those of {kept.partition}, to which rows are to be added: "
            f"{described or 'their order differs'}. Declare the types in columns, or publish all "
            "files again with mode: replace"
        )
