"""Store the rows of files as versions of a model that needs no code."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from pyspark.sql import functions as F

from tableau_pipeline.core.snapshot import Part, Snapshot
from tableau_pipeline.errors import FilesError, RefusedError
from tableau_pipeline.ingest.errors import READ_ERRORS, Reading, reason
from tableau_pipeline.outcome import Code
from tableau_pipeline.snapshots.version_store import SnapshotStore
from tableau_pipeline.snapshots.write import (
    UnstorableError,
    columns_of,
    write_partitions,
    write_snapshot,
)

# The partition key of rows that were stored before files were added one by one.
_EARLIER_ROWS = "earlier rows"


@dataclass
class FileStore:
    """Implements `core.snapshot.Snapshots` for files that are read when a refresh asks for rows.

    Attributes:
        read: reads the rows; called once, when the refresh of the data source needs them.
        built_on: returns the number of the version to which these rows are added, or None if
            nothing is published; a file's new rows replace its old ones. It must not return the
            newest stored version: rows that were refused must not be published with the next file.
            Without `built_on`, the model has only these rows.
        file_column: the name of a column to add, with the name of each row's file.
        drop_bad_rows: leave out bad rows instead of refusing all.
        read_rows: the result of `read`, once its rows were stored.
    """

    store: SnapshotStore
    read: Callable[[], Reading]
    run_id: str
    built_on: Callable[[], int | None] | None = None
    file_column: str | None = None
    drop_bad_rows: bool = False
    read_rows: Reading | None = field(default=None, init=False)
    _written: Snapshot | None = field(default=None, init=False)

    def newest(self, asset_key: str) -> Snapshot:
        """Read the files and store their rows, or refuse them; later calls return that version."""
        if self._written is None:
            reading = self.read()
            if not self.drop_bad_rows:
                reading.check_rows()
            try:
                self._written = self._write(asset_key, reading)
            except (UnstorableError, *READ_ERRORS) as error:
                # Whether Spark or the store rejects the rows, the files are at fault.
                raise FilesError(reason(error)) from error
            self.read_rows = reading
        return self._written

    def forget(self) -> None:
        """Remove the stored version, if any, because it was not published."""
        if self._written:
            self.store.remove(self._written)

    def version(self, asset_key: str, number: int) -> Snapshot | None:
        """Return a stored version; None if it does not exist."""
        return self.store.version(asset_key, number)

    def _write(self, asset_key: str, reading: Reading) -> Snapshot:
        if self.built_on is None:
            return write_snapshot(
                reading.frame,
                self.store,
                asset_key=asset_key,
                run_id=self.run_id,
                before_commit=reading.check_unchanged,
            )
        number = self.built_on()
        base = None if number is None else self.store.version(asset_key, number)
        if number is not None and (base is None or base.missing()):
            raise RefusedError(
                "The rows that were published before are not stored here, so nothing can be added: "
                "they were removed from the disk. Publish all files with mode replace first",
                code=Code.PUBLISHED_VERSION,
            )
        return self._append(asset_key, reading, base)

    def _append(self, asset_key: str, reading: Reading, base: Snapshot | None) -> Snapshot:
        frame = reading.frame
        digests = {path.name: digest for path, digest in reading.digests.items()}
        if len(digests) < len(reading.digests):
            raise FilesError(
                "Two of the files have the same name, which determines the rows that a file "
                f"replaces: rename one of {', '.join(map(str, reading.digests))}",
            )
        if self.file_column:
            if self.file_column.casefold() in map(str.casefold, frame.columns):
                raise FilesError(
                    f'file_column "{self.file_column}": the files already have such a column. '
                    "Choose another name",
                )
            frame = frame.withColumn(self.file_column, F.expr(reading.file_of_a_row))
        remaining = [
            part if part.partition else part.model_copy(update={"partition": _EARLIER_ROWS})
            for part in (base.parts if base else ())
            if part.partition not in digests
        ]
        for part in remaining:
            columns, before = columns_of(frame), part.columns or (base.columns if base else ())
            differing = [column for column in columns if column not in before]
            differing += [column for column in before if column not in columns]
            described = ", ".join(f"{column.name} ({column.type})" for column in differing)
            if before != columns:
                raise FilesError(
                    f"The columns differ from those of {part.partition}, to which rows are to "
                    f"be added: {described or 'their order differs'}. Declare the types in "
                    "columns, or publish all files again with mode: replace",
                )

        def parts(written: Sequence[Part], _: Snapshot | None) -> Sequence[Part]:
            new = [
                part.model_copy(update={"digest": digests[str(part.partition)]}) for part in written
            ]
            return sorted([*remaining, *new], key=lambda part: str(part.partition))

        return write_partitions(
            frame,
            self.store,
            expression=reading.file_of_a_row,
            partitions=[*digests],
            asset_key=asset_key,
            run_id=self.run_id,
            parts=parts,
            before_commit=reading.check_unchanged,
        )
