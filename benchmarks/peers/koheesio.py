"""Build the file with koheesio's Hyper writer of DataFrames."""

from pathlib import Path, PurePath

from koheesio.integrations.spark.tableau.hyper import (  # ty: ignore[import-not-found]
    HyperFileDataFrameWriter,
)
from pyspark.sql import DataFrame

from benchmarks.peers.protocol import contend


def _build(frame: DataFrame, folder: Path) -> str:
    writer = HyperFileDataFrameWriter(df=frame, name="rows", path=PurePath(folder))
    writer.execute()
    return str(writer.hyper_path)


if __name__ == "__main__":
    contend(_build)
