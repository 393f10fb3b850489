"""Write the files that a Spark model of lineitem reads, and change 1 % of their rows."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.change.rows import plain, with_quantity

# The partitions of the model: the order keys modulo 30.
SLOTS = tuple(f"{number:02}" for number in range(30))
# The SQL expression by which Spark computes the slot of a row.
SLOT = f"format_string('%02d', pmod(l_orderkey, {len(SLOTS)}))"
_BATCH = 1 << 20


def write_slots(lineitem: Path, folder: Path) -> None:
    """Write one file for each of the 30 slots; each file has orders from the whole range."""
    folder.mkdir()
    source = pq.ParquetFile(lineitem)
    schema = plain(source.schema_arrow)
    writers = {slot: pq.ParquetWriter(_slot(folder, slot), schema) for slot in SLOTS}
    for each in source.iter_batches(_BATCH):
        batch = each.cast(schema)
        slots = _orders(batch) % len(SLOTS)
        for number, slot in enumerate(SLOTS):
            writers[slot].write_batch(batch.filter(pa.array(slots == number)))
    for writer in writers.values():
        writer.close()


def slot_files(folder: Path, slots: Sequence[str]) -> list[str]:
    """Return the files of these slots."""
    return [str(_slot(folder, slot)) for slot in slots]


def change_slot(folder: Path, turn: int) -> tuple[str, ...]:
    """Change 30 % of the rows of one of the 30 slots, that is, 1 % of all rows; return the slot."""
    slot = SLOTS[turn % len(SLOTS)]
    _rewrite(_slot(folder, slot), changed=30)
    return (slot,)


def link(lineitem: Path, folder: Path) -> None:
    """Link the file of lineitem into a new folder, which serves as the source."""
    folder.mkdir()
    (folder / lineitem.name).hardlink_to(lineitem)


def change_everywhere(folder: Path) -> tuple[str, ...]:
    """Change 1 % of the rows, scattered over the only file of the folder."""
    (file,) = folder.glob("*.parquet")
    _rewrite(file, changed=1)
    return ()


def _slot(folder: Path, slot: str) -> Path:
    return folder / f"{slot}.parquet"


def _orders(rows: pa.RecordBatch) -> np.ndarray:
    return rows["l_orderkey"].to_numpy(zero_copy_only=False)


def _rewrite(file: Path, *, changed: int) -> None:
    """Add 1 to the quantity of `changed` percent of the rows."""
    source = pq.ParquetFile(file)
    unfinished = file.with_suffix(".unfinished")
    schema = plain(source.schema_arrow)
    with pq.ParquetWriter(unfinished, schema) as writer:
        for batch in source.iter_batches(_BATCH):
            # lineitem uses 8 of every 32 order keys. The factor spreads neighbouring orders.
            some = (_orders(batch) * 2_654_435_761 >> 16) % 100 < changed
            rows = pa.Table.from_batches([batch.cast(schema)])
            writer.write_table(with_quantity(rows, more=1, where=pa.array(some)))
    unfinished.replace(file)
