"""Find the deleted rows of Iceberg's data files, in position delete files and deletion vectors."""

import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from zlib import crc32

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.avro.file import AvroFile
from pyiceberg.io import FileIO
from pyiceberg.manifest import (
    MANIFEST_ENTRY_SCHEMAS,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
)
from pyiceberg.manifest import DataFile as IcebergFile
from pyiceberg.schema import Schema
from pyiceberg.table import FileScanTask
from pyroaring import BitMap64

from tableau_pipeline.errors import LakeError
from tableau_pipeline.lake.files import normalized

# The positions of three fields in a manifest's record of a file. Version 3 of the format added
# these fields.
_REFERENCED_FILE, _OFFSET, _SIZE = 17, 18, 19
# The first bytes of a deletion vector after its length.
_MAGIC = bytes.fromhex("d1d33964")


@dataclass(frozen=True, slots=True)
class Deletes:
    """The deleted rows of a version.

    Attributes:
        vectors: for each data file with a deletion vector, the entry that locates the vector.
        content: a function that returns the content of a file.
        title: the name of the table for messages.
    """

    vectors: Mapping[str, IcebergFile]
    content: Callable[[str], bytes]
    title: str
    _read: dict[str, Mapping[str, list[int]]] = field(default_factory=dict)

    def positions(self, task: FileScanTask) -> Iterable[int]:
        """Return the positions of the deleted rows of a file; positions count from 0.

        Raises:
            RefusedError: a file with deletes is missing or damaged, or its format is not read.
        """
        path = normalized(task.file.file_path)
        vector = self.vectors.get(path)
        # Prefer the vector of the file: a vector also has all positions from the delete files that
        # it replaces. Skip all vectors in the task, because they may belong to other data files:
        # pyiceberg does not always know the data file of a vector.
        files = [file for file in task.delete_files if file.file_format != FileFormat.PUFFIN]
        deletes = [vector] if vector else files
        try:
            if vector:
                return self._vector(vector)
            return [n for file in files for n in self._positions(file).get(path, ())]
        except (OSError, ValueError, KeyError, pa.ArrowException) as error:
            where = ", ".join(file.file_path for file in deletes)
            raise LakeError(
                f"{self.title}: the deleted rows of its file {task.file.file_path} cannot be read "
                f"from {where} ({error}). If a file was removed by hand, restore it, or write the "
                "table again"
            ) from error

    def _positions(self, file: IcebergFile) -> Mapping[str, list[int]]:
        """Return the deleted positions in a file of position deletes; the keys are data files."""
        if file.file_format != FileFormat.PARQUET:
            raise LakeError(
                f"{self.title} has deletes in {file.file_path}, whose format is "
                f"{file.file_format.value}; only Parquet is read. Rewrite its data files (CALL "
                "system.rewrite_data_files), or publish it through a Spark model"
            )
        if (path := file.file_path) not in self._read:
            rows = pq.read_table(io.BytesIO(self.content(path)), columns=["file_path", "pos"])
            found: dict[str, list[int]] = {}
            pairs = zip(rows["file_path"].to_pylist(), rows["pos"].to_pylist(), strict=True)
            for name, position in pairs:
                found.setdefault(normalized(name), []).append(position)
            self._read[path] = found
        return self._read[path]

    def _vector(self, file: IcebergFile) -> Iterable[int]:
        """Return the deleted positions in a deletion vector."""
        start, size = file[_OFFSET], file[_SIZE]
        data = self.content(file.file_path)[start : start + size]
        magic_and_bits, check = data[4:-4], int.from_bytes(data[-4:], "big")
        if magic_and_bits[:4] != _MAGIC or crc32(magic_and_bits) != check:
            raise ValueError("the deletion vector is damaged")
        positions = BitMap64.deserialize(magic_and_bits[4:])
        if len(positions) != file.record_count:
            raise ValueError(
                f"the deletion vector has {len(positions)} rows, not {file.record_count}"
            )
        return positions


def deletes_by_values(entry: ManifestEntry) -> bool:
    """Return whether an entry is an equality delete file, which deletes rows by their values."""
    return entry.data_file.content == DataFileContent.EQUALITY_DELETES


def deletes_of(
    manifests: Sequence[ManifestFile], reader: FileIO, schema: Schema, title: str
) -> Deletes:
    """Return the deletes of a version.

    Raises:
        RefusedError: an equality delete file may apply to a data file.
    """
    of_data = [manifest for manifest in manifests if manifest.content == ManifestContent.DATA]
    oldest = min((manifest.min_sequence_number or 0 for manifest in of_data), default=0)
    vectors: dict[str, IcebergFile] = {}
    for manifest in manifests:
        if manifest.content != ManifestContent.DELETES:
            continue
        for entry in _entries(manifest, reader):
            file, number = entry.data_file, entry.sequence_number or manifest.sequence_number
            # Refuse an equality delete file only if a data file may be older, because equality
            # deletes apply only to older data files.
            if deletes_by_values(entry) and number > oldest:
                columns = [schema.find_column_name(id_) or id_ for id_ in file.equality_ids or ()]
                raise LakeError(
                    f"{title} has equality deletes on {', '.join(map(str, columns))}, as Flink "
                    "writes them, which are not read. Rewrite its data files before each refresh "
                    "(CALL system.rewrite_data_files), or publish it through a Spark model"
                )
            if file.file_format == FileFormat.PUFFIN:
                vectors[normalized(file[_REFERENCED_FILE])] = file
    return Deletes(vectors, lambda path: reader.new_input(path).open().read(), title)


def _entries(manifest: ManifestFile, reader: FileIO) -> Iterable[ManifestEntry]:
    """Return the entries of a manifest, without entries of removed files.

    This function reads the offset of each deletion vector in its file. pyiceberg's own planning
    omits the offset, and so would also read vectors of earlier versions in the same file.
    """
    with AvroFile[ManifestEntry](
        reader.new_input(manifest.manifest_path),
        MANIFEST_ENTRY_SCHEMAS[3],
        read_types={-1: ManifestEntry, 2: IcebergFile},
        read_enums={0: ManifestEntryStatus, 101: FileFormat, 134: DataFileContent},
    ) as entries:
        return [entry for entry in entries if entry.status != ManifestEntryStatus.DELETED]
