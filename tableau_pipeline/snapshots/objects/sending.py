"""Let Spark's executors run a task on Arrow batches."""

from collections.abc import Callable, Iterator

import pyarrow as pa
from pyspark.cloudpickle import register_pickle_by_value
from pyspark.sql import DataFrame

from tableau_pipeline.objects import arrow_files

_Task = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def plain_names(count: int) -> list[str]:
    """Return names for the columns that a task gets or returns."""
    # Spark parses them: a name with a dot or a backtick stops it.
    return [f"c{number}" for number in range(count)]


def plainly_named(frame: DataFrame) -> DataFrame:
    """Return a frame with columns that a task can get."""
    return frame.toDF(*plain_names(len(frame.columns)))


def sent_along(task: _Task) -> _Task:
    """Return a task of `arrow_files` whose code goes to the executors together with it."""
    # Otherwise executors would import it, and so would need this package.
    register_pickle_by_value(arrow_files)
    return task
