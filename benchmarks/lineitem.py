"""Store two contents of TPC-H's table lineitem, which differ in 1 % of the rows."""

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from tableau_pipeline.core.snapshot import Snapshot
from tableau_pipeline.snapshots.spark import spark_session
from tableau_pipeline.snapshots.version_store import SnapshotStore
from tableau_pipeline.snapshots.write import write_snapshot

KEY = ("l_orderkey", "l_linenumber")

# Each row has a pseudorandom number from 0 to 999. Rows with the following numbers differ between
# the contents, or are in one content only.
_UPDATED = range(8)
_ONLY_IN_FIRST, _ONLY_IN_SECOND = 8, 9


@dataclass(frozen=True)
class Content:
    """A snapshot of one content, and a snapshot of its rows that the other content lacks."""

    model: Snapshot
    changed: Snapshot


def generate(folder: Path, scale: float) -> Path:
    """Write lineitem as one Parquet file into a folder, and return its path."""
    program = str(Path(sys.executable).with_name("tpchgen-cli"))
    subprocess.run(
        [program, "parquet", "-q", "-s", str(scale), "-T", "lineitem", "-o", str(folder)],
        check=True,
    )
    return folder / "lineitem.parquet"


def write_contents(folder: Path, scale: float) -> tuple[Content, Content]:
    """Store both contents as the pipeline stores models."""
    spark = spark_session(master="local[*]", remote=None, driver_memory="2g", config={})
    rows = spark.read.parquet(str(generate(folder, scale)))
    number = F.expr(f"pmod(xxhash64({', '.join(KEY)}), 1000)")
    updated = number.isin(*_UPDATED)
    first = rows.where(number != _ONLY_IN_SECOND)
    more = F.col("l_quantity") + F.when(updated, 1).otherwise(0)
    second = rows.where(number != _ONLY_IN_FIRST).withColumn(
        "l_quantity", more.cast("decimal(15,2)")
    )
    return (
        _written(folder, first, changed=updated | (number == _ONLY_IN_FIRST)),
        _written(folder, second, changed=updated | (number == _ONLY_IN_SECOND)),
    )


def _written(folder: Path, rows: DataFrame, *, changed: Column) -> Content:
    def write(frame: DataFrame, name: str) -> Snapshot:
        return write_snapshot(frame, SnapshotStore(folder), asset_key=name, run_id="bench")

    return Content(
        model=write(rows, "lineitem"),
        changed=write(rows.where(changed), "changed"),
    )
