"""The side of a contender: the same session for all, and work that begins when it is told to.

Contenders run in environments of their own: nothing here needs more than Spark.
"""

import os
import sys
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

_SESSION = {
    "spark.master": "local[*]",
    # What collects all rows needs this much; the other contenders get the same.
    "spark.driver.memory": "4g",
    "spark.driver.maxResultSize": "0",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.session.timeZone": "UTC",
    # Of the other two, one is not readable for hyperd and the other has no order.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}

SCHEMA = TABLE = "Extract"
# How the lines begin that are for the benchmark: some libraries greet when they are imported.
ANSWER = "benchmark: "


def contend(build: Callable[[DataFrame, Path], Path | str]) -> None:
    """Open the Parquet files named first; when told to, build a `.hyper` file of their rows.

    Args:
        build: gets the rows and a folder of its own, the second argument of the command; returns
            the path of the file, with the rows in the table `SCHEMA`.`TABLE`.
    """
    source, folder = sys.argv[1:3]
    questions, answers = os.fdopen(os.dup(0)), os.fdopen(os.dup(1), "w", buffering=1)
    # Of these two, neither libraries nor hyperd may read or write anything.
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
    """What the command says beyond the rows and the folder."""
    return sys.argv[3:]
