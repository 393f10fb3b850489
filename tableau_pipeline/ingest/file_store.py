"""Store the rows of files as versions of a model. Such a model needs no code."""

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tableau_pipeline.core.snapshot import Part, Snapshot
from tableau_pipeline.errors import FilesError, RefusedError
from tableau_pipeline.hyper.types import Column
from tableau_pipeline.ingest.rows import Rows
from tableau_pipeline.outcome import Code
from tableau_pipeline.snapshots.version_store import SnapshotStore, commit_parts
from tableau_pipeline.snapshots.without_spark import check_columns, new_files, part_of

# The partition key for earlier rows that were stored without a key, for example by the mode
# `replace`.
_EARLIER_ROWS = "earlier rows"


@dataclass
class FileStore:
    """Implements `core.snapshot.Snapshots` for files; reads them when a refresh asks for rows.

    Attributes:
        read: a function that reads the files and writes their rows to a folder. It is called once,
            when the refresh of the data source needs the rows.
        built_on: a function that returns the number of the published version, or None if nothing is
            published. The rows of the files are added to that version; rows of an earlier file with
            the same name are replaced. The newest stored version would be wrong: it may have rows
            that were refused, which must not be published with the next file. If `built_on` is
            None, the model has only the rows of these files.
        file_column: the name of a column to add, which holds the name of each row's file.
        drop_bad_rows: whether to leave out bad rows, instead of refusing all rows.
        rows: the stored rows; None before they are stored.
    """

    store: SnapshotStore
    read: Callable[[Path], Rows]
    run_id: str
    built_on: Callable[[], int | None] | None = None
    file_column: str | None = None
    drop_bad_rows: bool = False
    rows: Rows | None = field(default=None, init=False)
    _written: Snapshot | None = field(default=None, init=False)

    def newest(self, asset_key: str) -> Snapshot:
        """Read the files and store their rows as a version; later calls return the same version."""
        if self._written is None:
            with new_files(self.store, asset_key) as (folder, path):
                rows = self.read(path)
                if not self.drop_bad_rows:
                    rows.check()
                check_columns(rows.columns.columns, asset_key)
                parts, remaining, columns = self._parts(asset_key, rows, folder)
            self._written = commit_parts(
                self.store,
                asset_key,
                parts,
                columns=columns,
                comments=rows.columns.comments,
                run_id=self.run_id,
                parts=lambda new, _: sorted(
                    [*remaining, *new], key=lambda part: part.partition or ""
                ),
            )
            self.rows = rows
        return self._written

    def forget(self) -> None:
        """Remove the stored version, if any, because it was not published."""
        if self._written:
            self.store.remove(self._written)

    def version(self, asset_key: str, number: int) -> Snapshot | None:
        """Return a stored version; None if there is no such version."""
        return self.store.version(asset_key, number)

    def _parts(
        self, asset_key: str, rows: Rows, folder: str
    ) -> tuple[Sequence[Part], Sequence[Part], Sequence[Column]]:
        """Return the new parts, the earlier parts to keep, and the columns of all parts."""
        if self.built_on is None:
            columns = rows.columns.columns
            paths = [file.path for file in rows.files]
            return [part_of(paths, folder, columns)], (), columns
        columns = self._with_file_column(rows)
        new = [
            part_of(
                [file.path],
                folder,
                columns,
                partition=file.source.name,
                digest=file.digest,
                constants={self.file_column: file.source.name} if self.file_column else None,
            )
            for file in rows.files
        ]
        base = self._base(asset_key)
        remaining = [
            part if part.partition else part.model_copy(update={"partition": _EARLIER_ROWS})
            for part in (base.parts if base else ())
            if part.partition not in {file.source.name for file in rows.files}
        ]
        for part in remaining:
            before = part.columns or (base.columns if base else ())
            if before != tuple(columns):
                raise _columns_differ(part, before, columns)
        return new, remaining, columns

    def _base(self, asset_key: str) -> Snapshot | None:
        """Return the version to which rows are added; None if nothing is published."""
        number = self.built_on() if self.built_on else None
        base = None if number is None else self.store.version(asset_key, number)
        if number is not None and (base is None or base.missing()):
            raise RefusedError(
                "The rows that were published before are not stored here, so nothing can be added: "
                "they were removed from the disk. Publish all files with mode replace first",
                code=Code.PUBLISHED_VERSION,
            )
        return base

    def _with_file_column(self, rows: Rows) -> Sequence[Column]:
        """Return the columns, including the file column, if there is one.

        Raises:
            FilesError: two files have the same name, or the files already have a column with the
                name of the file column.
        """
        if len({file.source.name for file in rows.files}) < len(rows.files):
            raise FilesError(
                "Two of the files have the same name, but a file replaces the rows of an earlier "
                "file with its name: rename one of "
                f"{', '.join(str(file.source) for file in rows.files)}",
            )
        if not self.file_column:
            return rows.columns.columns
        if self.file_column.casefold() in map(str.casefold, rows.columns.names):
            raise FilesError(
                f'file_column "{self.file_column}": the files already have such a column. '
                "Choose another name",
            )
        return (*rows.columns.columns, Column(self.file_column, "string"))


def store_rows(rows: Rows, store: SnapshotStore, *, asset_key: str, run_id: str) -> Snapshot:
    """Store rows that `read_files` has read; they become the next version of a model.

    Raises:
        RefusedError: a model cannot have these columns. Nothing was stored.
    """
    columns = rows.columns.columns
    check_columns(columns, asset_key)
    with new_files(store, asset_key) as (folder, path):
        path.mkdir(parents=True, exist_ok=True)
        for file in rows.files:
            _link_or_copy(file.path, path / file.path.name)
        part = part_of([path / file.path.name for file in rows.files], folder, columns)
    return commit_parts(
        store, asset_key, [part], columns=columns, comments=rows.columns.comments, run_id=run_id
    )


def _link_or_copy(source: Path, target: Path) -> None:
    try:
        target.hardlink_to(source)
    except OSError:
        # The target is on another disk.
        shutil.copyfile(source, target)


def _columns_differ(part: Part, before: Sequence[Column], columns: Sequence[Column]) -> FilesError:
    differing = [column for column in columns if column not in before]
    differing += [column for column in before if column not in columns]
    described = ", ".join(f"{column.name} ({column.type})" for column in differing)
    return FilesError(
        f"The columns differ from those of {part.partition}, to which rows are to be added: "
        f"{described or 'their order differs'}. Declare the types in columns, or publish all "
        "files again with mode: replace",
    )
