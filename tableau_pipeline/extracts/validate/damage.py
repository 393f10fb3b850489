"""Find the damaged files of a snapshot, once hyperd has failed on them."""

from collections.abc import Callable

from tableauhyperapi import HyperException, HyperProcess, escape_name

from tableau_pipeline.core.snapshot import DataFile, Snapshot
from tableau_pipeline.extracts.desired import table_source
from tableau_pipeline.hyper.memory import is_out_of_memory
from tableau_pipeline.hyper.parquet.rows import rows
from tableau_pipeline.hyper.process import connect


def damage(hyper: Callable[[], HyperProcess], snapshot: Snapshot) -> str | None:
    """Return the first file that cannot be read, and why; None if there is none. Reads all."""
    for file in snapshot.files:
        if reason := _reason(hyper, snapshot, file):
            return f"{snapshot.folder.full_name(file.name)}: {reason}"
    return None


def _reason(hyper: Callable[[], HyperProcess], snapshot: Snapshot, file: DataFile) -> str | None:
    table = table_source("", snapshot, hashed=True, files=[file])
    # A plain count need not read the values.
    counts = ", ".join(f"COUNT({escape_name(column.name)})" for column in table.columns)
    try:
        # A damaged file may have crashed the last hyperd.
        with connect(hyper()) as connection:
            connection.execute_list_query(f"SELECT {counts} FROM {rows(table)} source")  # noqa: S608
    except HyperException as error:
        # 'file is not a Parquet file: File /the/path'
        return None if is_out_of_memory(error) else str(error.main_message).partition(": ")[0]
    return None
