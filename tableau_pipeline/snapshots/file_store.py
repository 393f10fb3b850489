"""The rows of files, or of a table of a database, as snapshots of a model that no code writes."""

import os
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import functions as F

from tableau_pipeline.core.snapshot import Snapshot
from tableau_pipeline.errors import RefusedError
from tableau_pipeline.hyper.tables import Column
from tableau_pipeline.snapshots.files import READ_ERRORS, Reading, reason
from tableau_pipeline.snapshots.storable import UnstorableError
from tableau_pipeline.snapshots.store import commit, partition_folder
from tableau_pipeline.snapshots.write import columns_of, write_partitions, write_snapshot

# The partition of what was kept before files were added one by one.
_EARLIER = "earlier rows"
# The name of each row's file, in a hidden column that Spark adds, and escapes as in a URI.
_FILE = "url_decode(replace(_metadata.file_name, '+', '%2B'))"


@dataclass(frozen=True, slots=True)
class FileStore:
    """Where rows are kept, and which.

    Attributes:
        folder: a new one.
        drop_bad_rows: leave out what could not be read, instead of refusing all.
    """

    folder: Path
    asset_key: str
    run_id: str
    drop_bad_rows: bool = False

    def replace(self, reading: Reading) -> tuple[Snapshot, ...]:
        """Keep these rows and no others.

        Raises:
            RefusedError: some rows are bad, or of types that cannot be stored; nothing is kept.
        """
        with _refused():
            snapshot = write_snapshot(
                reading.frame,
                self.folder,
                asset_key=self.asset_key,
                run_id=self.run_id,
                before_commit=lambda: self._check(reading),
            )
        return (snapshot,)

    def append(
        self, reading: Reading, existing: Sequence[Snapshot], *, file_column: str | None
    ) -> tuple[Snapshot, ...]:
        """Keep these rows beside those of other files; a file's new rows replace its old ones.

        Args:
            existing: what is kept already.
            file_column: one to add, with the name of each row's file.

        Raises:
            RefusedError: as above; two files have one name; the columns are not those of before.
        """
        names = [path.name for path in reading.paths]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise RefusedError(
                f'Two of the files are called "{twice[0]}", and by their names it is told which '
                "rows a file replaces: publish them one by one from folders of their own names, "
                "or rename one"
            )
        frame = reading.frame
        if file_column:
            _check_free(file_column, frame.columns)
            frame = frame.withColumn(file_column, F.expr(_FILE))
        others = [each for each in existing if each.partition not in names]
        kept = [each if each.partition else self._as_partition(each) for each in others]

        def before_commit() -> None:
            self._check(reading)
            for snapshot in kept:
                _check_columns(snapshot, columns_of(frame), names)
            for old, new in zip(others, kept, strict=True):
                if new is not old:
                    _link(old, new)

        with _refused():
            written = write_partitions(
                frame,
                self.folder,
                expression=_FILE,
                partitions=names,
                asset_key=self.asset_key,
                run_id=self.run_id,
                before_commit=before_commit,
            )
        return (*kept, *written)

    def _as_partition(self, whole: Snapshot) -> Snapshot:
        folder = partition_folder(self.folder, _EARLIER)
        return whole.model_copy(update={"folder": folder, "partition": _EARLIER})

    def _check(self, reading: Reading) -> None:
        if reading.bad_rows and not self.drop_bad_rows:
            columns = ", ".join(f"{each.name} {each.type}" for each in columns_of(reading.frame))
            raise RefusedError(
                f"{reading.bad_rows:,} rows do not fit the columns {columns}, for instance "
                f"{reading.sample!r}. Mend the file, say other columns, or leave such rows out "
                "with bad_rows: drop"
            )


@contextmanager
def _refused() -> Generator[None]:
    """What Spark cannot read or we cannot store is a fault of the files."""
    try:
        yield
    except (UnstorableError, *READ_ERRORS) as error:
        raise RefusedError(reason(error)) from error


def _check_free(name: str, columns: Sequence[str]) -> None:
    taken = [column for column in columns if column.casefold() == name.casefold()]
    if taken:
        raise RefusedError(
            f'file_column "{name}": the files have a column "{taken[0]}" of their own, which it '
            "would replace. Choose another name"
        )


def _check_columns(kept: Snapshot, columns: Sequence[Column], names: Sequence[str]) -> None:
    if kept.columns == tuple(columns):
        return
    differing = [each for each in columns if each not in kept.columns]
    differing += [each for each in kept.columns if each not in columns]
    described = ", ".join(f"{each.name} ({each.type})" for each in differing)
    raise RefusedError(
        f"The columns of {', '.join(names)} are not those of {kept.partition}, to which the rows "
        f"shall be added: {described or 'their order differs'}. Say the types in columns, or "
        "publish all files anew with mode: replace"
    )


def _link(old: Snapshot, new: Snapshot) -> None:
    """The same files in another place; they are never written again."""
    new.folder.mkdir()
    for file in old.files:
        os.link(old.folder / file.name, new.folder / file.name)
    commit(new)
