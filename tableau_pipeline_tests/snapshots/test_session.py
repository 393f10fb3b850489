"""The session that models are computed with."""

import sys

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.functions import udf


@pytest.mark.slow
def test_python_functions_run_in_this_interpreter(spark: SparkSession):
    """Prevents: a model's functions in another Python, unless the environment is activated."""
    (row,) = spark.range(1).select(udf(lambda: sys.prefix)()).collect()
    assert row[0] == sys.prefix
