"""The inputs of all contenders: Parquet files with rows that every contender can handle."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from benchmarks import lineitem
from benchmarks.fresh_process import in_fresh_process
from tableau_pipeline.defs.flights import models, raw
from tableau_pipeline.snapshots.spark import spark_session


@dataclass(frozen=True)
class Input:
    """Rows in Parquet files. `name` appears in the printed table; `key` lists the key columns."""

    name: str
    folder: Path
    key: tuple[str, ...]

    @property
    def files(self) -> list[str]:
        """The paths of the Parquet files."""
        return [str(path) for path in sorted(self.folder.glob("*.parquet"))]

    @property
    def rows(self) -> int:
        """The number of rows in all files."""
        return sum(pq.read_metadata(file).num_rows for file in self.files)


def write_lineitem(folder: Path, scale: float) -> Input:
    """Write TPC-H's lineitem: numbers, dates and texts, none of them NULL."""
    target = folder / f"lineitem_{scale:g}"
    lineitem.generate(target, scale)
    return Input(f"lineitem at scale {scale:g}", target, lineitem.KEY)


def write_flights(folder: Path) -> Input:
    """Write the flights without the columns and rows that some contender cannot handle.

    hyperleaup refuses the type `timestamp_ntz`, and hyperd refuses the `timestamp` of hyperleaup's
    Parquet mode. So the columns with a time of day are left out. koheesio turns NULL into 0 or "",
    and hyperleaup's CSV mode supports no NULL in numbers. So the rows with a NULL are left out too.
    """
    return in_fresh_process(_write_flights, folder)


def _write_flights(folder: Path) -> Input:
    spark = spark_session(master="local[*]", remote=None, driver_memory="2g", config={})
    flights: Any = models.flights(raw.read(spark, "flights"))
    kept = [name for name, type_ in flights.dtypes if not type_.startswith("timestamp")]
    target = folder / "flights"
    flights.select(*kept).dropna().write.parquet(target.as_uri())
    return Input("flights", target, ("flight_id",))
