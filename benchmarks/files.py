"""What this pipeline's reader of CSV files costs, compared with Spark's own reader."""

import random
import time
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from pyspark.sql import DataFrameWriter, SparkSession
from pyspark.sql import functions as F

from benchmarks.fresh_process import in_fresh_process, peak_memory
from benchmarks.peers.process_tree import processor_seconds_of
from benchmarks.results import figure
from tableau_pipeline.ingest.file_store import store_rows
from tableau_pipeline.ingest.options import Files
from tableau_pipeline.ingest.rows import read_rows
from tableau_pipeline.ingest.spark_reader import read_files, rows_of
from tableau_pipeline.snapshots.spark import spark_session
from tableau_pipeline.snapshots.version_store import SnapshotStore

ROWS = 371_528
COLUMNS = (
    "crawled timestamp, name string, seller string, offer string, price decimal(10,2), abtest "
    "string, vehicle string, year int, gearbox string, power int, model string, kilometer int, "
    "month int, fuel string, brand string, damage string, created date, ratio double, postal int, "
    "seen timestamp"
)
_WORDS = ("golf", "polo", "passat", "corsa", "focus", "fiesta", "clio", "twingo", "punto", "fabia")


def compare_files(runs: int) -> None:
    """Convert a CSV file to Parquet in several ways, in turns, and print what each way costs.

    Then print the peak memory of our reader for this many rows, and for ten times as many.
    """
    with TemporaryDirectory() as name:
        folder = Path(name)
        path = generated(folder / "rows.csv", ROWS)
        spark = spark_session(master="local[*]", remote=None, driver_memory="2g", config={})
        ways: dict[str, Callable[[Path], object]] = {
            "Spark": lambda to: _by_spark(spark, path).parquet(to.as_uri()),
            "Spark, writing nothing": lambda _: _by_spark(spark, path).format("noop").save(),
            "a model, to its snapshot": lambda to: _to_snapshot(spark, path, to),
            "ours": lambda to: read_rows(Files((path,), "csv", columns=COLUMNS), to),
            "ours, types inferred": lambda to: read_rows(Files((path,), "csv"), to),
        }
        found: dict[str, list[tuple[float, float]]] = {way: [] for way in ways}
        for run in range(runs + 1):
            for way, convert in ways.items():
                start = time.perf_counter()
                used = processor_seconds_of(partial(convert, folder / way / str(run)))
                seconds = time.perf_counter() - start
                if run:  # the first run warms the JVM
                    found[way].append((seconds, used))
        if _hash(spark, folder / "Spark/0") != _hash(spark, folder / "ours/0"):
            raise AssertionError("Spark and this pipeline read different rows from one file")
        print(f"\n{path.stat().st_size / 1e6:.0f} MB of CSV, {ROWS:,} rows, {runs} runs")
        print("| way | seconds | ratio | processor seconds | ratio |")
        print("| --- | --- | --- | --- | --- |")
        for way, costs in found.items():
            print(f"| {way} | {' | '.join(_cells(way, costs, found['Spark']))} |")
        peaks = [in_fresh_process(_peak, folder, rows) / 1e6 for rows in (ROWS, 10 * ROWS)]
        once, tenfold = "MB of Python at most", "MB of Python at most, ten times the rows"
        print(f"{once}: {figure(once, [peaks[0]], 0)}; {tenfold}: {figure(tenfold, [peaks[1]], 0)}")
        print(f"That is {peaks[1] / peaks[0]:.2f} times as much")


def _cells(
    way: str, costs: Sequence[tuple[float, float]], by_spark: Sequence[tuple[float, float]]
) -> list[str]:
    """Return the figures of a way, and their ratios to Spark's figures of the same run."""
    cells = []
    for position, what in enumerate(("seconds", "processor")):
        values = [cost[position] for cost in costs]
        of_spark = [cost[position] for cost in by_spark]
        ratios = [value / other for value, other in zip(values, of_spark, strict=True)]
        cells += [figure(f"{way}: {what}", values), figure(f"{way}: {what}, ratio", ratios)]
    return cells


def _to_snapshot(spark: SparkSession, path: Path, to: Path) -> None:
    """Store the rows of a file as the pipeline does if a model returns them from `read_files`."""
    rows = rows_of(read_files(spark, path, columns=COLUMNS))
    if rows is None:
        raise AssertionError("The rows come from Spark, not straight from the file")
    store_rows(rows, SnapshotStore(to), asset_key="rows", run_id="bench")


def _by_spark(spark: SparkSession, path: Path) -> DataFrameWriter:
    frame = spark.read.schema(COLUMNS).options(header=True, escape='"').csv(path.as_uri())
    return frame.write.mode("overwrite")


def _hash(spark: SparkSession, path: Path) -> object:
    frame = spark.read.schema(COLUMNS).parquet(path.as_uri())
    hashes = frame.select(F.xxhash64(*frame.columns).cast("decimal(38,0)").alias("hash"))
    return hashes.agg(F.count("*"), F.sum("hash")).first()


def _peak(folder: Path, rows: int) -> int:
    path = generated(folder / f"{rows}.csv", rows)
    read_rows(Files((path,), "csv", columns=COLUMNS), folder / f"{rows}")
    return peak_memory()


def generated(path: Path, rows: int) -> Path:
    """Write a CSV file with columns similar to the public data set of used cars on eBay."""
    draw, first = random.Random(1), datetime(2016, 3, 1)
    with path.open("w", encoding="utf-8") as file:
        file.write(",".join(each.split()[0] for each in COLUMNS.split(", ")) + "\n")
        for number in range(rows):
            crawled = first + timedelta(seconds=draw.randrange(3_000_000))
            seen = crawled + timedelta(seconds=draw.randrange(3_000_000))
            name = f"{draw.choice(_WORDS)}_{draw.choice(_WORDS)}_{number}"
            name = f'"{name}, ""neu"""' if number % 20 == 0 else name
            file.write(
                f"{crawled},{name},privat,Angebot,{draw.randrange(2_000_000) / 100:.2f},"
                f"{draw.choice(('test', 'control'))},{draw.choice(('limousine', 'kombi', ''))},"
                f"{draw.randrange(1950, 2017)},{draw.choice(('manuell', 'automatik', ''))},"
                f"{draw.randrange(400)},{draw.choice(_WORDS)},{draw.randrange(1, 31) * 5000},"
                f"{draw.randrange(13)},{draw.choice(('benzin', 'diesel', ''))},"
                f"{draw.choice(_WORDS)},{draw.choice(('ja', 'nein', ''))},{crawled.date()},"
                f"{draw.random() * 100:.6f},{draw.randrange(1000, 99999)},{seen}\n"
            )
    return path
