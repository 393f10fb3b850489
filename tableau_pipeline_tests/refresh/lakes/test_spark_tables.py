"""Lake tables that Spark itself has written.

Neither Delta nor Iceberg has a jar for this project's version of Spark. Another version writes the
tables, in an environment of its own.
"""

import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tableau_pipeline.core.lake_table import LakeFormat, LakeTable
from tableau_pipeline.extracts.content import table_source
from tableau_pipeline.hyper.parquet import select_sql
from tableau_pipeline.hyper.process import connect, hyper_process
from tableau_pipeline.lake.tables import LakeSnapshots
from tableau_pipeline.objects.local_files import LocalCopies
from tableau_pipeline.snapshots.version_store import SnapshotStore
from tableau_pipeline_tests.environments import environment, run
from tableau_pipeline_tests.refresh.lakes import spark_tables
from tableau_pipeline_tests.refresh.lakes.support import follow, in_order, published
from tableau_pipeline_tests.refresh.support.pipeline import Pipeline
from tableau_pipeline_tests.refresh.support.shipping import refused

pytestmark = [pytest.mark.long, pytest.mark.timeout(3600), pytest.mark.xdist_group("spark tables")]


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the tables and with the rows of each table."""
    folder = tmp_path_factory.mktemp("lake")
    python = environment("pyspark~=4.1.0") / Path(sys.executable).name
    command = (str(python), spark_tables.__file__, str(folder))
    run(*command, seconds=3000, SPARK_LOCAL_IP="127.0.0.1")
    return folder


@pytest.mark.parametrize(
    ("format_", "name"),
    [
        *(("delta", name) for name in ("plain", "merged", "parted", "mapped", "purged")),
        *(("delta", name) for name in ("vectors", "widened", "tracked")),
        *(("iceberg", name) for name in ("plain", "first", "merged", "parted")),
        *(("iceberg", name) for name in ("evolved", "rewritten")),
        *(("iceberg", name) for name in ("on_read", "vectors", "parted_vectors")),
    ],
)
def test_rows_are_those_of_spark(pipeline: Pipeline, lake: Path, format_: LakeFormat, name: str):
    """Prevents: the published rows differ from the rows that Spark reads from its own table."""
    follow(pipeline, format_, lake / format_ / name)
    pipeline.run(full=True)
    rows = pq.read_table(lake / f"{format_}.rows" / name, coerce_int96_timestamp_unit="us")
    assert published(pipeline) == in_order(rows)


@pytest.mark.parametrize("format_", ["delta", "iceberg"])
def test_rows_of_tables_with_deletes(lake: Path, tmp_path: Path, format_: LakeFormat):
    """Prevents: rows that Spark has deleted are published."""
    copies = LocalCopies(tmp_path / "copies", limit=10**9)
    with connect(hyper_process()) as connection:
        for number in range(spark_tables.DRAWN):
            source = LakeTable(**{format_: str(lake / format_ / f"drawn{number}")})
            found = LakeSnapshots(SnapshotStore(tmp_path), {"t": source}, copies).newest("t")
            assert found
            rows = select_sql(table_source("", found, only=["id", "word"]))
            read = connection.execute_list_query(f"SELECT id, word FROM {rows} source")
            # Spark's rows of drawn tables are not stored, so compare with the ids that must remain.
            *_, kept = spark_tables.drawn(format_, number)
            assert sorted(read) == [[id_, f"w{id_}"] for id_ in sorted(kept)], number


def test_what_is_not_read_is_refused(pipeline: Pipeline, lake: Path):
    """Prevents: a feature that only Spark writes leads to wrong values."""
    follow(pipeline, "delta", lake / "delta" / "rescaled")
    why = 'column "tiny" was widened from byte to double'
    refused(lambda: pipeline.run(full=True), why)
