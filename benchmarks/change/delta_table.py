"""Store lineitem as a Delta table, and change 1 % of its rows."""

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from deltalake import DeltaTable, write_deltalake

from benchmarks.change.delta_vectors import has_vectors, without_deleted
from benchmarks.change.rows import plain, with_quantity
from benchmarks.lineitem import KEY

# Each file holds a range of orders.
_FILES = 50


def write_delta(lineitem: Path, table: Path) -> None:
    """Write the rows as a Delta table of 50 files; each file holds a fiftieth of the orders."""
    last = _last_order(lineitem)
    for number in range(_FILES):
        some = range(last * number // _FILES + 1, last * (number + 1) // _FILES + 1)
        write_deltalake(table, _rows_of(lineitem, some), mode="append")


def merge_into_delta(lineitem: Path, table: Path, turn: int) -> tuple[str, ...]:
    """Merge changes to 1 % of the rows, which are in two files. 25 turns use all 50 files."""
    last = _last_order(lineitem)
    middle, width = last * (2 * turn % _FILES + 1) // _FILES, last // 100
    orders = range(middle - width // 2, middle + width // 2)
    keys = " AND ".join(f"old.{name} = new.{name}" for name in KEY)
    # With this range, the writer skips all other files.
    within = f"old.l_orderkey >= {orders[0]} AND old.l_orderkey <= {orders[-1]}"
    rows = with_quantity(_rows_of(lineitem, orders), more=turn + 1)
    merging = DeltaTable(table).merge(
        rows, f"{keys} AND {within}", source_alias="new", target_alias="old"
    )
    done = merging.when_matched_update_all().when_not_matched_insert_all().execute()
    print(
        f"merged {rows.num_rows:,} rows into {done['num_target_files_removed']} of "
        f"{_FILES} files, {done['num_target_files_added']} written",
        flush=True,
    )
    return ()


def append_to_delta(lineitem: Path, table: Path, turn: int) -> tuple[str, ...]:
    """Append a copy of 1 % of the rows, with order keys that the table does not have yet."""
    last = _last_order(lineitem)
    part = turn % 100
    rows = _rows_of(lineitem, range(last * part // 100 + 1, last * (part + 1) // 100 + 1))
    more = pa.scalar(last * (turn + 1), pa.int64())
    orders = pc.call_function("add", [rows["l_orderkey"], more])
    rows = rows.set_column(rows.schema.get_field_index("l_orderkey"), "l_orderkey", orders)
    write_deltalake(table, rows, mode="append")
    return ()


def newest(table: Path) -> tuple[list[str], list[str]]:
    """Return the files of a Delta table's newest version, and the names of its columns.

    Instead of a file with deleted rows, return a copy of the file without these rows.
    """
    found = DeltaTable(table)
    files = [uri.removeprefix("file://") for uri in found.file_uris()]
    return without_deleted(found, files), [field.name for field in found.schema().fields]


def vacuum_delta(table: Path) -> None:
    """Remove the files that only older versions of the table use."""
    if has_vectors(table):
        return  # All files are in use, and delta-rs cannot vacuum a table with vectors.
    DeltaTable(table).vacuum(0, dry_run=False, enforce_retention_duration=False)


def _rows_of(lineitem: Path, orders: range) -> pa.Table:
    order = ds.field("l_orderkey")
    source = ds.dataset(lineitem, schema=plain(pq.read_schema(lineitem)))
    return source.to_table(filter=(order >= orders[0]) & (order <= orders[-1]))


def _last_order(lineitem: Path) -> int:
    groups = pq.read_metadata(lineitem)
    index = groups.schema.names.index("l_orderkey")
    return max(
        groups.row_group(number).column(index).statistics.max
        for number in range(groups.num_row_groups)
    )
