"""Tables of lakes that Spark itself wrote.

Neither Delta nor Iceberg has a jar for the Spark of this project, so another one writes them, in
its own environment.
"""

import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tableau_pipeline.core.lake_table import LakeFormat
from tableau_pipeline_tests.environments import environment, run
from tableau_pipeline_tests.refresh.lakes import spark_tables
from tableau_pipeline_tests.refresh.lakes.support import follow, in_order, published
from tableau_pipeline_tests.refresh.support.pipeline import Pipeline
from tableau_pipeline_tests.refresh.support.shipping import refused

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800), pytest.mark.xdist_group("spark tables")]


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tables, and the rows of each."""
    folder = tmp_path_factory.mktemp("lake")
    python = environment("pyspark~=4.1.0") / Path(sys.executable).name
    command = (str(python), spark_tables.__file__, str(folder))
    run(*command, seconds=900, SPARK_LOCAL_IP="127.0.0.1")
    return folder


@pytest.mark.parametrize(
    ("format_", "name"),
    [
        *(("delta", name) for name in ("plain", "merged", "parted", "mapped", "purged")),
        *(("iceberg", name) for name in ("plain", "first", "merged", "parted")),
        *(("iceberg", name) for name in ("evolved", "rewritten")),
    ],
)
def test_rows_are_those_of_spark(pipeline: Pipeline, lake: Path, format_: LakeFormat, name: str):
    """Prevents: rows that differ from those that Spark reads of its own table."""
    follow(pipeline, format_, lake / format_ / name)
    pipeline.run(full=True)
    rows = pq.read_table(lake / f"{format_}.rows" / name, coerce_int96_timestamp_unit="us")
    assert published(pipeline) == in_order(rows)


@pytest.mark.parametrize(
    ("format_", "name", "why"),
    [
        ("delta", "vectors", "deletion vectors"),
        ("delta", "widened", "table feature typeWidening"),
        ("iceberg", "on_read", "has delete files"),
        ("iceberg", "vectors", "has version 3 of the format"),
    ],
)
def test_what_is_not_read_is_refused(
    pipeline: Pipeline, lake: Path, format_: LakeFormat, name: str, why: str
):
    """Prevents: deleted rows or wrong values, from a feature that only Spark writes."""
    follow(pipeline, format_, lake / format_ / name)
    refused(lambda: pipeline.run(full=True), why)
