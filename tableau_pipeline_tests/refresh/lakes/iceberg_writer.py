"""A small writer of Iceberg tables with deletes. pyiceberg cannot write most kinds of deletes."""

import json
import random
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4
from zlib import crc32

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.avro.file import AvroOutputFile
from pyiceberg.io.pyarrow import PyArrowFileIO, _pyarrow_to_schema_without_ids
from pyiceberg.manifest import (
    MANIFEST_LIST_FILE_SCHEMAS,
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    data_file_with_partition,
    manifest_entry_schema_with_data_file,
)
from pyiceberg.partitioning import PartitionField, PartitionSpec, _to_partition_representation
from pyiceberg.schema import Schema, assign_fresh_schema_ids
from pyiceberg.table.metadata import new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record
from pyroaring import BitMap64

from tableau_pipeline.core.lake_table import LakeFormat
from tableau_pipeline_tests.refresh.lakes.ledger import SCHEMA, Ledger, Row, parted, write_parquet

_PATH = 2147483546
_POSITIONS = pa.schema(
    [
        pa.field("file_path", pa.string(), metadata={"PARQUET:field_id": str(_PATH)}),
        pa.field("pos", pa.int64(), metadata={"PARQUET:field_id": "2147483545"}),
    ]
)


@dataclass(frozen=True)
class Entry:
    """A file of a table.

    Attributes:
        number: the sequence number of the commit that added the file.
        of: the data files from which this file deletes rows; () for a data file.
    """

    file: DataFile
    number: int
    of: tuple[str, ...] = ()


class IcebergWriter:
    """Writes an Iceberg table without a catalog.

    Attributes:
        version: the version of the format; from version 3 on, deletes are vectors.
        more: additional fields of the schema, which the files lack.
        format_of_deletes: the format of delete files according to the metadata.
    """

    format: LakeFormat = "iceberg"

    def __init__(
        self, location: Path, draw: random.Random, *, by: Sequence[str] = (), version: int = 2
    ) -> None:
        self.location, self.draw, self.by, self.version = location, draw, by, version
        self.ledger, self.number = Ledger(), 0
        self.schema = assign_fresh_schema_ids(_pyarrow_to_schema_without_ids(SCHEMA))
        fields = [
            PartitionField(
                self.schema.find_field(name).field_id, 1000 + at, IdentityTransform(), name
            )
            for at, name in enumerate(by)
        ]
        self.spec = PartitionSpec(*fields)
        self.more: list[dict[str, Any]] = []
        self.format_of_deletes = FileFormat.PARQUET
        self._files: dict[str, Entry] = {}
        self._deletes: list[Entry] = []
        self._changed: dict[str, frozenset[int]] = {}
        self._snapshots: list[dict[str, Any]] = []
        self._metadata = new_table_metadata(
            self.schema,
            self.spec,
            UNSORTED_SORT_ORDER,
            f"file://{location}",
            {"format-version": "2"},
        )

    def add(self, rows: Sequence[Row]) -> None:
        """Add rows in new files, one file for each partition."""
        for values, part in parted(rows, self.by).items():
            name = f"data/{uuid4()}.parquet"
            fields = [
                pa.field(field.name, field.type, metadata={"PARQUET:field_id": str(id_)})
                for field, id_ in zip(SCHEMA, self.schema.field_ids, strict=True)
            ]
            write_parquet(self.draw, self.location / name, part, pa.schema(fields))
            partition = [
                _to_partition_representation(self.schema.find_field(by).field_type, value)
                for by, value in zip(self.by, values, strict=True)
            ]
            self.ledger.held[name] = part
            file = self._file(name, DataFileContent.DATA, Record(*partition), len(part))
            self._files[name] = Entry(file, self.number + 1)

    def delete(self, name: str, positions: frozenset[int]) -> None:
        """Set the deleted rows of a file to exactly these positions."""
        if positions != self.ledger.deleted.get(name, frozenset()):
            self._changed[name] = self.ledger.deleted.get(name, frozenset())
            self.ledger.deleted[name] = positions

    def remove(self, name: str) -> None:
        """Remove a data file. Files that delete its rows may stay."""
        del self.ledger.held[name], self._files[name]
        self.ledger.deleted.pop(name, None)
        self._changed.pop(name, None)

    def delete_by_values(self, *columns: str) -> None:
        """Add a file of equality deletes to the metadata. The file itself is not written."""
        ids = [self.schema.find_field(name).field_id for name in columns]
        content = DataFileContent.EQUALITY_DELETES
        file = self._file("data/values.parquet", content, Record(), 1, equality_ids=ids)
        self._deletes.append(Entry(file, self.number + 1))

    def commit(self, *, at: int = 0) -> None:
        """Commit the collected changes as the next version. `at` is the time in milliseconds."""
        self.number += 1
        (self._write_vectors if self.version > 2 else self._write_positions)()
        self._changed = {}
        manifests = [
            self._manifest(entries, content)
            for entries, content in (
                ([*self._files.values()], ManifestContent.DATA),
                (self._deletes, ManifestContent.DELETES),
            )
            if entries
        ]
        path = self.location / "metadata" / f"snap-{uuid4()}.avro"
        _avro(path, MANIFEST_LIST_FILE_SCHEMAS[self.version], "manifest_file", manifests)
        self._write_metadata(path, at)

    def _write_positions(self) -> None:
        """Write files with position deletes."""
        grown, again = {}, {*()}
        for name, before in self._changed.items():
            now = self.ledger.deleted[name]
            if now >= before:
                grown[name] = now - before
            else:
                again.add(name)
        # Drop the delete files of data files in which deleted rows have come back.
        dropped = [entry for entry in self._deletes if again & {*entry.of}]
        self._deletes = [entry for entry in self._deletes if entry not in dropped]
        again |= {name for entry in dropped for name in entry.of if name in self._files}
        wanted = grown | {name: self.ledger.deleted[name] for name in again}
        together: dict[Any, list[str]] = {}
        for name in wanted:
            if wanted[name]:
                # A delete file is for one data file, or for several. Its bounds can tell which.
                alone = self.draw.random() < 0.5
                key = name if alone else tuple(self._files[name].file.partition._data)
                together.setdefault(key, []).append(name)
        for names in together.values():
            self._write_position_file(names, wanted)

    def _write_position_file(
        self, names: Sequence[str], wanted: Mapping[str, frozenset[int]]
    ) -> None:
        paths = {self._files[name].file.file_path: sorted(wanted[name]) for name in sorted(names)}
        rows = [(path, position) for path, found in paths.items() for position in found]
        delete = f"data/{uuid4()}-deletes.parquet"
        columns = [pa.array(column) for column in zip(*rows, strict=True)]
        pq.write_table(pa.Table.from_arrays(columns, schema=_POSITIONS), self.location / delete)
        bounds = {
            "lower_bounds": {_PATH: min(paths).encode()},
            "upper_bounds": {_PATH: max(paths).encode()},
        }
        is_known = len(names) == 1 or self.draw.random() < 0.5
        partition = self._files[names[0]].file.partition
        file = self._file(
            delete,
            DataFileContent.POSITION_DELETES,
            partition,
            len(rows),
            file_format=self.format_of_deletes,
            **(bounds if is_known else {}),
        )
        self._deletes.append(Entry(file, self.number, tuple(names)))

    def _write_vectors(self) -> None:
        """Write the new vectors into a new file, and forget the deletes that they replace."""
        names = [name for name in self._changed if self.ledger.deleted[name]]
        self._deletes = [
            entry
            for entry in self._deletes
            # A delete file for several data files may stay: the new vector has its positions, too.
            if not {*entry.of} & {*self._changed} or (len(entry.of) > 1 and {*entry.of} & {*names})
        ]
        name, content, blobs = f"data/{uuid4()}.puffin", b"PFA1", list[dict[str, Any]]()
        for data in names:
            positions = BitMap64(self.ledger.deleted[data])
            bits = bytes.fromhex("d1d33964") + positions.serialize()
            blob = struct.pack(">i", len(bits)) + bits + struct.pack(">I", crc32(bits))
            known = {"offset": len(content), "length": len(blob)}
            content += blob
            path = self._files[data].file.file_path
            properties = {"referenced-data-file": path, "cardinality": str(len(positions))}
            unknown = {"type": "deletion-vector-v1", "fields": [], "snapshot-id": -1}
            blobs.append({**unknown, "sequence-number": -1, **known, "properties": properties})
            file = self._file(
                name,
                DataFileContent.POSITION_DELETES,
                self._files[data].file.partition,
                len(positions),
                file_format=FileFormat.PUFFIN,
                referenced_data_file=path,
                content_offset=known["offset"],
                content_size_in_bytes=known["length"],
            )
            self._deletes.append(Entry(file, self.number, (data,)))
        footer = json.dumps({"blobs": blobs, "properties": {}}).encode()
        content += b"PFA1" + footer + struct.pack("<i", len(footer)) + bytes(4) + b"PFA1"
        if names:
            (self.location / name).write_bytes(content)

    def _file(
        self, name: str, content: DataFileContent, partition: Record, rows: int, **more: Any
    ) -> DataFile:
        path = self.location / name
        return DataFile.from_args(
            _table_format_version=3,
            content=content,
            file_path=f"file://{path}",
            partition=partition,
            record_count=rows,
            file_size_in_bytes=path.stat().st_size if path.exists() else 0,
            **{"file_format": FileFormat.PARQUET, **more},
        )

    def _manifest(self, entries: Sequence[Entry], content: ManifestContent) -> ManifestFile:
        path = self.location / "metadata" / f"{uuid4()}.avro"
        # Files of format version 2 lack the fields that came with version 3.
        file = data_file_with_partition(self.spec.partition_type(self.schema), self.version)
        schema = manifest_entry_schema_with_data_file(self.version, file)
        records = []
        for entry in entries:
            is_new = entry.number == self.number
            status = ManifestEntryStatus.ADDED if is_new else ManifestEntryStatus.EXISTING
            # A new entry gets the sequence number of its manifest.
            known = None if is_new else entry.number
            record = ManifestEntry.from_args(
                _table_format_version=3,
                status=status,
                snapshot_id=self.number,
                sequence_number=known,
                file_sequence_number=known,
                data_file=entry.file,
            )
            records.append(record)
        _avro(path, schema, "manifest_entry", records)
        numbers = [entry.number for entry in entries]
        new = sum(number == self.number for number in numbers)
        counts = {"added_files_count": new, "existing_files_count": len(entries) - new}
        counts |= dict.fromkeys(
            (
                "deleted_files_count",
                "added_rows_count",
                "existing_rows_count",
                "deleted_rows_count",
            ),
            0,
        )
        return ManifestFile.from_args(
            _table_format_version=3,
            manifest_path=f"file://{path}",
            manifest_length=path.stat().st_size,
            partition_spec_id=self.spec.spec_id,
            content=content,
            sequence_number=self.number,
            min_sequence_number=min(numbers),
            added_snapshot_id=self.number,
            **counts,
        )

    def _write_metadata(self, manifests: Path, at: int) -> None:
        snapshot = {
            "snapshot-id": self.number,
            "sequence-number": self.number,
            "timestamp-ms": at,
            "manifest-list": f"file://{manifests}",
            "summary": {"operation": "overwrite"},
            "schema-id": self.schema.schema_id,
            "first-row-id": 0,
            "added-rows": 0,
        }
        self._snapshots.append(snapshot)
        content = json.loads(self._metadata.model_dump_json()) | {
            "format-version": self.version,
            "last-sequence-number": self.number,
            "current-snapshot-id": self.number,
            "snapshots": self._snapshots,
            "next-row-id": 0,
        }
        content["schemas"][0]["fields"] += self.more
        folder = self.location / "metadata"
        (folder / f"v{self.number}.metadata.json").write_text(json.dumps(content))
        (folder / "version-hint.text").write_text(str(self.number))


def _avro(path: Path, schema: Schema, name: str, records: Iterable[Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    file = PyArrowFileIO().new_output(str(path))
    with AvroOutputFile(file, file_schema=schema, schema_name=name) as out:
        out.write_block([*records])
