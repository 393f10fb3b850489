"""Run a contender, one of the compared libraries: open a Spark session, and wait for the start.

All contenders get the same session. They run in environments of their own, so this module imports
only Spark.
"""

import os
import sys
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

_SESSION = {
    "spark.master": "local[*]",
    # Contenders that collect all rows need this much memory, so all contenders get it.
    "spark.driver.memory": "4g",
    "spark.driver.maxResultSize": "0",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.session.timeZone": "UTC",
    # Of the other types of timestamps, INT96 has no order, and hyperd cannot read TIMESTAMP_MILLIS.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}

SCHEMA = TABLE = "Extract"
# Lines for the benchmark start with this text. The benchmark ignores other lines, because some
# libraries print text when they are imported.
ANSWER = "benchmark: "


def contend(build: Callable[[DataFrame, Path], Path | str]) -> None:
    """Open Parquet files; on the start signal, build a `.hyper` file of their rows.

    The first argument of the command names the folder of the Parquet files. The second argument
    names a folder for the contender.

    Args:
        build: gets the rows and the contender's folder. It returns the path of a file that has the
            rows in the table `SCHEMA`.`TABLE`.
    """
    source, folder = sys.argv[1:3]
    questions, answers = os.fdopen(os.dup(0)), os.fdopen(os.dup(1), "w", buffering=1)
    # Keep these pipes for the benchmark: libraries and hyperd get other standard streams.
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    builder = SparkSession.builder
    for key, value in _SESSION.items():
        builder = builder.config(key, value)
    frame = builder.getOrCreate().read.parquet(source)
    print(f"{ANSWER}ready", file=answers)
    if questions.readline():
        print(f"{ANSWER}{build(frame, Path(folder))}", file=answers)
        questions.readline()


def options() -> list[str]:
    """Return the arguments of the command after the two folders."""
    return sys.argv[3:]
