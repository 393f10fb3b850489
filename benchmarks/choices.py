"""How the options of a snapshot's files affect their size and the cost to write and load them."""

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from tableauhyperapi import CreateMode, HyperProcess

from benchmarks.bare import scan
from benchmarks.lineitem import KEY, generate
from benchmarks.peers.process_tree import processor_seconds_of
from benchmarks.results import figure
from tableau_pipeline.hyper.process import connect, hyper_process
from tableau_pipeline.snapshots.spark import spark_session

_MB = 1 << 20


@dataclass(frozen=True)
class Choice:
    """A way to write the rows of the same model to Parquet files.

    Attributes:
        options: options of Spark's Parquet writer.
        order: returns the rows in the order in which to write them.
        by_arrow: whether Spark's Python workers write the files, from Arrow batches.
    """

    name: str
    options: Mapping[str, str | int] = field(default_factory=dict)
    order: Callable[[DataFrame], DataFrame] = lambda rows: rows
    by_arrow: bool = False

    def write(self, rows: DataFrame, folder: Path) -> None:
        """Write the rows to a folder that does not exist yet."""
        rows = self.order(rows)
        if self.by_arrow:
            folder.mkdir()
            rows.mapInArrow(partial(_write_part, str(folder)), "path string").collect()
        else:
            rows.write.options(**self.options).parquet(folder.as_uri())


def _write_part(folder: str, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    path = f"{folder}/{uuid4().hex}.parquet"
    first = next(batches, None)
    if first is not None:
        with pq.ParquetWriter(path, first.schema) as file:
            for batch in chain([first], batches):
                file.write_batch(batch)
        yield pa.RecordBatch.from_pydict({"path": [path]})


@dataclass(frozen=True)
class Effect:
    """The processor seconds to write and load files, and the bytes in Parquet and in `.hyper`."""

    write: float
    stored: int
    load: float
    loaded: int


_CHOICES = (
    Choice("Spark's defaults: snappy, row groups of 128 MB"),
    *(Choice(name, {"compression": name}) for name in ("zstd", "lz4_raw", "uncompressed")),
    Choice("no dictionaries", {"parquet.enable.dictionary": "false"}),
    Choice("no dictionaries, zstd", {"parquet.enable.dictionary": "false", "compression": "zstd"}),
    Choice("no checksums of pages", {"parquet.page.write-checksum.enabled": "false"}),
    *(Choice(f"row groups of {mb} MB", {"parquet.block.size": mb * _MB}) for mb in (8, 32)),
    Choice("files of 250,000 rows", {"maxRecordsPerFile": 250_000}),
    Choice("one file", order=lambda rows: rows.coalesce(1)),
    Choice("by pyarrow, in Python's workers", by_arrow=True),
    Choice("sorted by key", order=lambda rows: rows.sortWithinPartitions(*KEY)),
    Choice("sorted by ship date", order=lambda rows: rows.sortWithinPartitions("l_shipdate")),
    Choice("shuffled", order=lambda rows: rows.sortWithinPartitions(F.xxhash64(*KEY))),
)


def compare_choices(scale: float, runs: int) -> None:
    """Print a table of ratios to Spark's defaults. Each run writes and loads with every choice."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        spark = spark_session(master="local[*]", remote=None, driver_memory="2g", config={})
        rows = spark.read.parquet(generate(folder, scale).as_uri())
        found: dict[str, list[Effect]] = {choice.name: [] for choice in _CHOICES}
        for run in range(runs + 1):
            for choice in _CHOICES:
                effect = _effect(rows, choice, folder=folder / "written")
                if run:  # the first run warms the JVM
                    found[choice.name].append(effect)
    print(f"\nlineitem at scale {scale:g}, {runs} runs; processor seconds and bytes as ratios")
    print("| choice | write | load | bytes of Parquet | bytes of .hyper |")
    print("| --- | --- | --- | --- | --- |")
    defaults = found[_CHOICES[0].name]
    for name, effects in found.items():
        cells = [
            figure(f"{name}: {of}", _ratios(effects, defaults, of))
            for of in ("write", "load", "stored", "loaded")
        ]
        print(f"| {name} | {' | '.join(cells)} |")


def _ratios(effects: Sequence[Effect], defaults: Sequence[Effect], of: str) -> list[float]:
    pairs = zip(effects, defaults, strict=True)
    return [getattr(effect, of) / getattr(default, of) for effect, default in pairs]


def _effect(rows: DataFrame, choice: Choice, *, folder: Path) -> Effect:
    shutil.rmtree(folder, ignore_errors=True)
    write = processor_seconds_of(lambda: choice.write(rows, folder))
    files = sorted(folder.glob("*.parquet"))
    extract = folder / "rows.hyper"
    load = processor_seconds_of(lambda: _load(hyper_process(), files, extract))
    stored = sum(file.stat().st_size for file in files)
    return Effect(write, stored, load, extract.stat().st_size)


def _load(hyper: HyperProcess, files: list[Path], extract: Path) -> None:
    with connect(hyper, extract, CreateMode.CREATE_AND_REPLACE) as connection:
        connection.execute_command(
            f'CREATE TABLE "rows" AS SELECT * FROM {scan([str(file) for file in files])}'
        )
