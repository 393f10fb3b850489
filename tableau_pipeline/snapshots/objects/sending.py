"""Let Spark's executors run a task on Arrow batches."""

import re
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.cloudpickle import register_pickle_by_value
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from tableau_pipeline.objects import arrow_files, causes
from tableau_pipeline.objects.opening import StoreError

# The last line of the traceback of a task.
_TASK_ERROR = re.compile(rf"\b{causes.ObjectStoreTaskError.__name__}: (.+)")
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
    register_pickle_by_value(causes)
    return task


@contextmanager
def task_errors() -> Generator[None]:
    """Turn an error of a task, and Spark's error about it, into ours if the store has failed.

    Raises:
        StoreError: names the URL, the cause and the remedy.
    """
    try:
        yield
    except causes.ObjectStoreTaskError as error:
        raise StoreError(str(error)) from None
    except (PySparkException, Py4JJavaError) as error:
        if found := _TASK_ERROR.search(str(error)):
            raise StoreError(f"In a task of Spark: {found[1]}") from None
        raise
