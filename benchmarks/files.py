"""Reading CSV exactly, from the file to Spark's rows, against Spark's own reader."""

import random
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from benchmarks.fresh_process import in_fresh_process, peak_memory
from benchmarks.spread import spread
from tableau_pipeline.ingest.options import Files
from tableau_pipeline.ingest.read_files import as_parquet, load
from tableau_pipeline.snapshots.spark import spark_session

_ROWS = 371_528
_COLUMNS = (
    "crawled timestamp, name string, seller string, offer string, price decimal(10,2), abtest "
    "string, vehicle string, year int, gearbox string, power int, model string, kilometer int, "
    "month int, fuel string, brand string, damage string, created date, ratio double, postal int, "
    "seen timestamp"
)
_WORDS = ("golf", "polo", "passat", "corsa", "focus", "fiesta", "clio", "twingo", "punto", "fabia")


def compare_files(runs: int) -> None:
    """Print a table: seconds in turns in a warm session; then the memory of ten times the rows."""
    with TemporaryDirectory() as name:
        path = _generated(Path(name) / "rows.csv", _ROWS)
        spark = spark_session(master="local[*]", remote=None, driver_memory="2g", config={})
        ways: dict[str, Callable[[], DataFrame]] = {
            "Spark": lambda: _by_spark(spark, path),
            "ours": lambda: _ours(spark, path, _COLUMNS),
            "ours, types inferred": lambda: _ours(spark, path, None),
        }
        if len({_hash(read()) for read in (ways["Spark"], ways["ours"])}) > 1:
            raise AssertionError("The two read different rows")
        found: dict[str, list[float]] = {way: [] for way in ways}
        for run in range(runs + 1):
            for way, read in ways.items():
                seconds = _seconds(read)
                if run:  # the first one warms the JVM
                    found[way].append(seconds)
        print(f"\n{path.stat().st_size / 1e6:.0f} MB of CSV, {_ROWS:,} rows, {runs} runs")
        print("| way | seconds | to Spark's |\n| --- | --- | --- |")
        for way, seconds in found.items():
            ratios = [one / other for one, other in zip(seconds, found["Spark"], strict=True)]
            print(f"| {way} | {spread(seconds)} | {spread(ratios)} |")
        peaks = [in_fresh_process(_peak, Path(name), rows) for rows in (_ROWS, 10 * _ROWS)]
        print(f"Peak memory of Python: {peaks[0] / 1e6:.0f} MB; of ten times the rows "
              f"{peaks[1] / 1e6:.0f} MB, {peaks[1] / peaks[0]:.2f} times as much")  # fmt: skip


def _by_spark(spark: SparkSession, path: Path) -> DataFrame:
    return spark.read.schema(_COLUMNS).options(header=True, escape='"').csv(path.as_uri())


def _ours(spark: SparkSession, path: Path, columns: str | None) -> DataFrame:
    files = Files((path,), "csv", columns=columns)
    return load(spark, files, path.parent / str(time.monotonic_ns())).frame


def _seconds(read: Callable[[], DataFrame]) -> float:
    start = time.perf_counter()
    read().write.format("noop").mode("overwrite").save()
    return time.perf_counter() - start


def _hash(frame: DataFrame) -> object:
    hashes = frame.select(F.xxhash64(*frame.columns).cast("decimal(38,0)").alias("hash"))
    return hashes.agg(F.count("*"), F.sum("hash")).first()


def _peak(folder: Path, rows: int) -> int:
    # Types in Spark's DDL are parsed by the JVM, whose memory is its own.
    spark_session(master="local[1]", remote=None, driver_memory="1g", config={})
    path = _generated(folder / f"{rows}.csv", rows)
    as_parquet(Files((path,), "csv", columns=_COLUMNS), folder / f"{rows}")
    return peak_memory()


def _generated(path: Path, rows: int) -> Path:
    draw, first = random.Random(1), datetime(2016, 3, 1)
    with path.open("w", encoding="utf-8") as file:
        file.write(",".join(each.split()[0] for each in _COLUMNS.split(", ")) + "\n")
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
