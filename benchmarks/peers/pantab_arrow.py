"""Build the file with pantab, from the rows as one Arrow table."""

from pathlib import Path

import pantab
from pyspark.sql import DataFrame
from tableauhyperapi import TableName

from benchmarks.peers.protocol import SCHEMA, TABLE, contend


def _build(frame: DataFrame, folder: Path) -> Path:
    path = folder / "rows.hyper"
    rows = frame.toArrow()
    # pantab accepts a TableName, although the type of the argument does not say so.
    pantab.frame_to_hyper(rows, path, table=TableName(SCHEMA, TABLE))  # ty: ignore[invalid-argument-type]
    return path


if __name__ == "__main__":
    contend(_build)
