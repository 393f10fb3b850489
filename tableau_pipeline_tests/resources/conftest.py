from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tableau_pipeline_tests.resources.running import SOURCE, Location


@pytest.fixture
def location(spark: SparkSession, tmp_path: Path) -> Iterator[Location]:
    """An empty one, whose sources have three rows."""
    SOURCE["rows"] = 3
    yield Location(tmp_path / "snapshots")
    SOURCE["rows"] = 3
