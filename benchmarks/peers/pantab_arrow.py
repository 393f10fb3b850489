"""pantab, on the rows as one Arrow table."""

from pathlib import Path

import pantab
from pyspark.sql import DataFrame
from tableauhyperapi import TableName

from benchmarks.peers.protocol import SCHEMA, TABLE, contend


def _build(frame: DataFrame, folder: Path) -> Path:
    path = folder / "rows.hyper"
    rows = frame.toArrow()
    # pantab works with this class, which its protocol for the argument does not admit.
    pantab.frame_to_hyper(rows, path, table=TableName(SCHEMA, TABLE))  # ty: ignore[invalid-argument-type]
    return path


if __name__ == "__main__":
    contend(_build)
