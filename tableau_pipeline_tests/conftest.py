from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from tableau_pipeline.snapshots.session import spark_session


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The one JVM of the test session."""
    session = spark_session(
        master="local[2]",
        remote=None,
        driver_memory="2g",
        config={"spark.sql.shuffle.partitions": "2"},
    )
    yield session
    session.stop()
