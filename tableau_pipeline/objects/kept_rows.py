"""Read files without their deleted rows: a delete in a lake may leave the file unchanged."""

import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from tableau_pipeline.hyper.parquet import Folder
from tableau_pipeline.objects.local_files import LocalCopies

# The most rows to decode at a time.
_BATCH = 1 << 17
_INSTANT = pa.timestamp("us", "UTC")
_COUNTED = pa.schema([("no column", pa.bool_())])


@dataclass(frozen=True, slots=True)
class LakeFolder:
    """A folder with files, some of which contain deleted rows.

    hyperd can only read whole files. So hyperd gets a local copy of each file with deleted rows;
    the copy contains only the other rows.

    Attributes:
        folder: the folder with the original files.
        copies: the store of the local copies.
        kept: the rows to keep of each file with deleted rows (see `DataFile.kept`); the keys are
            names of files.
        columns: the names of the columns to copy; None for all columns.
    """

    folder: Folder
    copies: LocalCopies
    kept: Mapping[str, int] = field(default_factory=dict)
    columns: Collection[str] | None = None

    def uri(self, name: str) -> str:
        """Return the URI of a file or folder in this folder."""
        return self.folder.uri(name)

    def full_name(self, name: str) -> str:
        """Return the path or URL of a file, for messages."""
        return self.folder.full_name(name)

    def missing(self, names: Sequence[str]) -> list[str]:
        """Return the full names of the given files that do not exist."""
        return self.folder.missing(names)

    def paths(self, names: Sequence[str]) -> tuple[str, ...]:
        """Return local paths of files; a file with deleted rows has a copy without these rows."""
        whole = [name for name in names if name not in self.kept]
        found = dict(zip(whole, self.folder.paths(whole), strict=True))
        for name in names:
            if name in self.kept:
                found[name] = self._copy(name, self.kept[name])
        self.copies.make_room()
        return tuple(found[name] for name in names)

    def _copy(self, name: str, kept: int) -> str:
        def write(target: Path) -> None:
            (source,) = self.folder.paths([name])
            _write_rows(source, target, kept, self.columns)

        digest = hashlib.sha256(kept.to_bytes(kept.bit_length() // 8 + 1, "little")).hexdigest()
        columns = None if self.columns is None else sorted(self.columns)
        # Name the copy by its rows and columns, too, so that its name differs from the URI of every
        # file.
        return self.copies.path(f"{self.uri(name)}#{digest} {columns}", write)


def _write_rows(source: str, target: Path, kept: int, columns: Collection[str] | None) -> None:
    """Write some rows and columns of a Parquet file to another file, in the same order."""
    # Read microseconds. By default, pyarrow reads Spark's older time stamps as nanoseconds, which
    # end in the year 2262.
    with pq.ParquetFile(source, coerce_int96_timestamp_unit="us") as file:
        stored = file.schema_arrow
        names = [name for name in stored.names if columns is None or name in columns]
        leaves = map(file.schema.column, range(len(file.schema)))
        instants = {leaf.path for leaf in leaves if leaf.physical_type == "INT96"}
        schema = pa.schema(
            # Add a time zone: INT96 time stamps are instants, although pyarrow reads them without a
            # zone.
            pa.field(name, _INSTANT if name in instants else stored.field(name).type)
            for name in names
        )
        # If no columns are needed, write a column of NULLs, so that a reader can count the rows.
        with pq.ParquetWriter(target, schema if names else _COUNTED) as writer:
            start = 0
            for group in range(file.num_row_groups):
                rows = file.metadata.row_group(group).num_rows
                if (kept >> start) & ((1 << rows) - 1):
                    at = start
                    for batch in file.iter_batches(_BATCH, [group], names):
                        kept_here = batch.filter(_mask(kept >> at, batch.num_rows))
                        at += batch.num_rows
                        if names:
                            writer.write_batch(kept_here.select(names).cast(schema))
                        else:
                            nulls = [pa.nulls(kept_here.num_rows, pa.bool_())]
                            writer.write_batch(pa.record_batch(nulls, _COUNTED))
                start += rows


def _mask(bits: int, rows: int) -> pa.BooleanArray:
    """Return the lowest bits of a bitmap as an array."""
    # In the bitmap and in Arrow, the first row is the lowest bit of the first byte.
    data = (bits & ((1 << rows) - 1)).to_bytes((rows + 7) // 8, "little")
    return pa.BooleanArray.from_buffers(pa.bool_(), rows, [None, pa.py_buffer(data)])
