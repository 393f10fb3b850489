"""Delete rows of a Delta table by deletion vectors, which delta-rs cannot write."""

import base64
import json
import string
import struct
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from pyroaring import BitMap

# Translates base85 from Python's alphabet to Delta's.
_DIGITS = string.digits + string.ascii_uppercase + string.ascii_lowercase
_Z85 = bytes.maketrans(
    f"{_DIGITS}!#$%&()*+-;<=>?@^_`{{|}}~".encode(),
    f"{_DIGITS.swapcase()}.-:+=^!/*?&<>()[]{{}}@%$#".encode(),
)
_FEATURES = {key: ["deletionVectors"] for key in ("readerFeatures", "writerFeatures")}


def delete_clustered(table: Path, turn: int) -> tuple[str, ...]:
    """Delete 1 % of the rows, all adjacent in one file; each turn takes another file."""
    live = _live(table)
    total = sum(map(_rows, live.values()))
    path, file = sorted(live.items())[turn % len(live)]
    start = (_rows(file) - total // 100) // 2
    _delete(table, {path: range(start, start + total // 100)})
    return ()


def delete_scattered(table: Path, turn: int) -> tuple[str, ...]:
    """Delete 1 % of the rows: every hundredth row of each file."""
    _delete(table, {path: range(turn, _rows(file), 100) for path, file in _live(table).items()})
    return ()


def has_vectors(table: Path) -> bool:
    """Whether the table uses deletion vectors, so that its files may hold deleted rows."""
    return "deletionVectors" in (DeltaTable(table).protocol().reader_features or ())


def without_deleted(table: DeltaTable, files: Iterable[str]) -> list[str]:
    """Return the paths. Instead of a file with deleted rows, return a copy without these rows."""
    masks = _masks(table)
    found = []
    for file in files:
        if (mask := masks.get(Path(file).name)) is not None:
            copy = f"{file}.kept"
            pq.write_table(pq.read_table(file).filter(mask), copy)
            found.append(copy)
        else:
            found.append(file)
    return found


def _masks(table: DeltaTable) -> dict[str, pa.Array]:
    """Return a mask of the kept rows for each file with a deletion vector, by the file's name."""
    if "deletionVectors" not in (table.protocol().reader_features or ()):
        return {}
    rows = pa.RecordBatchReader.from_stream(table.deletion_vectors()).read_all()
    masks = (mask.values for mask in rows["selection_vector"])
    paths = (Path(unquote(url)).name for url in rows["filepath"].to_pylist())
    return dict(zip(paths, masks, strict=True))


def _rows(file: Mapping[str, Any]) -> int:
    return json.loads(file["stats"])["numRecords"]


def _live(table: Path) -> dict[str, dict[str, Any]]:
    """Return the log's `add` action for each file of the newest version, by the file's path."""
    live: dict[str, dict[str, Any]] = {}
    for commit in sorted((table / "_delta_log").glob("*.json")):
        for action in map(json.loads, commit.read_text().splitlines()):
            if "remove" in action:
                live.pop(action["remove"]["path"], None)
            if "add" in action:
                live[action["add"]["path"]] = action["add"]
    return live


def _delete(table: Path, positions: Mapping[str, Iterable[int]]) -> None:
    """Commit a version in which the rows at these positions are deleted as well."""
    live, found = _live(table), DeltaTable(table)
    masks = _masks(found)
    actions: list[Mapping[str, Any]] = [
        {"commitInfo": {"operation": "DELETE"}},
        {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, **_FEATURES}},
    ]
    for path, more in positions.items():
        gone = BitMap(more)
        if path in masks:
            gone |= BitMap(n for n, kept in enumerate(masks[path].to_pylist()) if not kept)
        bits = struct.pack("<iqi", 1681511377, 1, 0) + gone.serialize()
        inline = base64.b85encode(bits, pad=True).translate(_Z85).decode()
        vector = {"storageType": "i", "pathOrInlineDv": inline, "sizeInBytes": len(bits)}
        removed = {"path": path, "dataChange": True, "deletionTimestamp": 0}
        if known := live[path].get("deletionVector"):
            removed["deletionVector"] = known
        added = {**live[path], "deletionVector": {**vector, "cardinality": len(gone)}}
        actions += [{"remove": removed}, {"add": added}]
    log = table / "_delta_log" / f"{found.version() + 1:020}.json"
    log.write_text("\n".join(map(json.dumps, actions)))
