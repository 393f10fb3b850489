"""A small writer of Delta tables with deletion vectors, which delta-rs cannot write."""

import base64
import json
import random
import string
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote
from uuid import uuid4
from zlib import crc32

import pyarrow as pa
from pyroaring import BitMap

from tableau_pipeline.core.lake_table import LakeFormat
from tableau_pipeline_tests.refresh.lakes.ledger import SCHEMA, Ledger, Row, parted, write_parquet

_TYPES = {
    "id": "long",
    "word": "string",
    "day": "date",
    "at": "timestamp",
    "price": "decimal(10,2)",
}
_FEATURES = ["deletionVectors", "columnMapping"]
# Translates Python's alphabet of base85 to Delta's alphabet.
_DIGITS = string.digits + string.ascii_uppercase + string.ascii_lowercase
_Z85 = bytes.maketrans(
    f"{_DIGITS}!#$%&()*+-;<=>?@^_`{{|}}~".encode(),
    f"{_DIGITS.swapcase()}.-:+=^!/*?&<>()[]{{}}@%$#".encode(),
)


def z85(data: bytes) -> str:
    """Encode bytes as a text for Delta's logs."""
    return base64.b85encode(data, pad=True).translate(_Z85).decode()


def vector(positions: frozenset[int], *, is_run: bool = False) -> bytes:
    """A deletion vector in the form of Delta's files. Positions must be less than 2^32."""
    bitmap = BitMap(positions)
    if is_run:
        bitmap.run_optimize()
    return struct.pack("<iqi", 1681511377, 1, 0) + bitmap.serialize()


class DeltaWriter:
    """Writes a Delta table in a folder.

    Attributes:
        physical: the name of each column in the files.
        features: the features that readers must support.
        kinds: the places for vectors: the log (i), files with a relative (u) or absolute (p) path.
        widened: the new type of each column whose type is narrower in the files.
        mapped_by: what identifies mapped columns in files: "name" or "id".
    """

    format: LakeFormat = "delta"

    def __init__(
        self,
        location: Path,
        draw: random.Random,
        *,
        by: Sequence[str] = (),
        is_mapped: bool = False,
    ) -> None:
        self.location, self.draw, self.by, self.is_mapped = location, draw, by, is_mapped
        self.ledger, self.version = Ledger(), 0
        self.physical = {name: f"col-{uuid4()}" if is_mapped else name for name in SCHEMA.names}
        self.kinds = "iup"
        self.id, self.features = str(uuid4()), _FEATURES
        self.widened: Mapping[str, str] = {}
        self.mapped_by = "name"
        self._adds: dict[str, dict[str, Any]] = {}
        self._removed: list[str] = []
        self._vectors: dict[str, frozenset[int]] = {}
        self._actions: list[dict[str, Any]] = []
        self.describe({})

    def add(self, rows: Sequence[Row]) -> None:
        """Add rows in new files, one file for each partition."""
        for values, part in parted(rows, self.by).items():
            folders = [
                f"{self.physical[by]}={quote(str(value), safe='')}"
                for by, value in zip(self.by, values, strict=True)
            ]
            name = "/".join([*folders, f"part-{uuid4()}.parquet"])
            schema = pa.schema(
                [
                    field.with_name(self.physical[field.name])
                    for field in SCHEMA
                    if field.name not in self.by
                ]
            )
            stored = [
                {self.physical[key]: value for key, value in row.items() if key not in self.by}
                for row in part
            ]
            write_parquet(self.draw, self.location / name, stored, schema)
            partition = {
                self.physical[by]: None if value in (None, "") else str(value)
                for by, value in zip(self.by, values, strict=True)
            }
            self.ledger.held[name] = [
                # Delta has no empty text in a partition column.
                row | {by: None for by in self.by if row[by] == ""}
                for row in part
            ]
            self._adds[name] = {
                "path": quote(name),
                "partitionValues": partition,
                "size": (self.location / name).stat().st_size,
                "modificationTime": 0,
                "dataChange": True,
                "stats": json.dumps({"numRecords": len(part)}),
            }
            self._vectors[name] = frozenset()

    def delete(self, name: str, positions: frozenset[int]) -> None:
        """Set the deleted rows of a file to exactly these positions."""
        # A commit must not remove and add the same file with the same vector.
        if positions != self.ledger.deleted.get(name, frozenset()):
            self._removed.append(name)
            self._vectors[name] = self.ledger.deleted[name] = positions

    def remove(self, name: str) -> None:
        """Remove a file."""
        self._removed.append(name)
        self._vectors.pop(name, None)
        del self.ledger.held[name]
        self.ledger.deleted.pop(name, None)

    def commit(self, *, at: int = 0, **more: Any) -> None:
        """Commit the collected changes as the next version.

        Args:
            at: the time in milliseconds.
            more: further fields of the commit's `commitInfo`.
        """
        about = {"commitInfo": {"timestamp": at, "operation": "WRITE", **more}}
        removed = [self._removal(name) for name in self._removed]
        vectors = self._written_vectors()
        for name in self._vectors:
            self._adds[name].pop("deletionVector", None)
            self._adds[name] |= vectors.get(name, {})
        added = [{"add": self._adds[name]} for name in self._vectors]
        lines = map(json.dumps, (about, *self._actions, *removed, *added))
        log = self.location / "_delta_log" / f"{self.version:020}.json"
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_text("\n".join(lines))
        self.version += 1
        self._removed, self._vectors, self._actions = [], {}, []

    def _removal(self, name: str) -> dict[str, Any]:
        known = self._adds[name].get("deletionVector")
        removed = {"path": quote(name), "dataChange": True, "deletionTimestamp": 0}
        return {"remove": removed | ({"deletionVector": known} if known else {})}

    def _written_vectors(self) -> dict[str, dict[str, Any]]:
        """Write vectors into the log or into one file; return their descriptions."""
        found, file, id_ = {}, b"\x01", uuid4()
        folder = self.draw.choice(["", "ab"])
        path = self.location / folder / f"deletion_vector_{id_}.bin"
        for name, positions in self._vectors.items():
            data = vector(positions, is_run=self.draw.random() < 0.5)
            kind = self.draw.choice(self.kinds)
            described = {"sizeInBytes": len(data), "cardinality": len(positions)}
            match kind:
                case "i":
                    described["pathOrInlineDv"] = z85(data)
                case "u":
                    described["pathOrInlineDv"] = folder + z85(id_.bytes)
                case "p":
                    described["pathOrInlineDv"] = path.as_uri()
            if kind != "i":
                described["offset"] = len(file)
                file += struct.pack(">i", len(data)) + data + struct.pack(">I", crc32(data))
            if positions:
                found[name] = {"deletionVector": {"storageType": kind, **described}}
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(file)
        return found

    def describe(self, names: Mapping[str, str]) -> None:
        """Describe the columns in the next commit. `names` has new names for some of them."""
        fields = [
            {
                "name": names.get(name, name),
                "type": self.widened.get(name, _TYPES[name]),
                "nullable": True,
                "metadata": self._field_metadata(name, number),
            }
            for number, name in enumerate(SCHEMA.names, 1)
        ]
        mapping = {
            "delta.columnMapping.mode": self.mapped_by,
            "delta.columnMapping.maxColumnId": str(len(fields)),
        }
        features = dict.fromkeys(("readerFeatures", "writerFeatures"), self.features)
        metadata = {
            "id": self.id,
            "format": {"provider": "parquet", "options": {}},
            "schemaString": json.dumps({"type": "struct", "fields": fields}),
            "partitionColumns": [names.get(name, name) for name in self.by],
            "configuration": {"delta.enableDeletionVectors": "true"}
            | (mapping if self.is_mapped else {}),
        }
        self._actions = [
            {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, **features}},
            {"metaData": metadata},
        ]

    def _field_metadata(self, name: str, number: int) -> dict[str, Any]:
        mapping = {
            "delta.columnMapping.id": number,
            "delta.columnMapping.physicalName": self.physical[name],
        }
        changes = [{"fromType": _TYPES[name], "toType": self.widened.get(name)}]
        widened = {"delta.typeChanges": changes} if name in self.widened else {}
        return widened | (mapping if self.is_mapped else {})
