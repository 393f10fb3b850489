"""Keep snapshots in an object store, by conditional writes."""

import re
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import obstore
import pyarrow as pa
from obstore.exceptions import AlreadyExistsError, GenericError
from py4j.protocol import Py4JJavaError
from pyspark.cloudpickle import register_pickle_by_value
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from tableau_pipeline.objects import arrow_files, errors
from tableau_pipeline.objects.errors import is_absent
from tableau_pipeline.objects.local import LocalCopies
from tableau_pipeline.objects.stores import ObjectFolder, StoreError, opened, store_errors
from tableau_pipeline.snapshots.store import Entry

# Seconds before a write is sent again whose outcome is not known.
_PAUSES = (1, 2)


@dataclass(frozen=True, slots=True)
class ObjectStorage:
    """The objects below a URL.

    Endpoint and credentials come from the environment, by the variables of the store's own SDKs.

    Attributes:
        url: such as "s3://bucket/folder", without a trailing slash.
        copies: where copies are kept for hyperd.
    """

    url: str
    copies: LocalCopies

    def put(self, key: str, content: bytes) -> bool:
        """Create an object; return False if it exists.

        Raises:
            StoreError: the store may have created it, or may still do so.
        """
        with store_errors("Writing", f"{self.url}/{key}"):
            for pause in _PAUSES:
                # After a reset or a timeout, the library does not send it again, as it may have
                # arrived. Sent again, it fails if it has, and so its outcome is known.
                try:
                    return self._created(key, content)
                except GenericError:
                    time.sleep(pause)
            return self._created(key, content)

    def read(self, key: str) -> bytes | None:
        """Return the content of an object; None if it does not exist.

        Raises:
            StoreError: the store refused that, failed, or did not answer.
        """
        with store_errors("Reading", f"{self.url}/{key}"):
            try:
                return bytes(obstore.get(opened(self.url), key).bytes())
            except FileNotFoundError as error:
                if is_absent(error):
                    return None
                raise

    def list(self, prefix: str) -> Iterator[Entry]:
        """Yield all objects whose keys begin with a prefix.

        Raises:
            StoreError: the store refused that, failed, or did not answer.
        """
        # Object stores compare whole parts of a key, up to the next slash.
        folder = prefix.rpartition("/")[0]
        with store_errors("Listing", f"{self.url}/{folder}"):
            for chunk in obstore.list(opened(self.url), folder or None):
                for found in chunk:
                    if found["path"].startswith(prefix):
                        yield Entry(found["path"], found["last_modified"].timestamp())

    def delete(self, key: str) -> bool:
        """Delete an object; return False if it does not exist.

        Raises:
            StoreError: the store refused that, failed, or did not answer.
        """
        with store_errors("Deleting", f"{self.url}/{key}"):
            try:
                obstore.head(opened(self.url), key)
                obstore.delete(opened(self.url), key)
            except FileNotFoundError as error:
                if is_absent(error):
                    return False
                raise
        return True

    def folder(self, key: str) -> ObjectFolder:
        """Return the files of a model."""
        return ObjectFolder(self.url, key, self.copies)

    def _created(self, key: str, content: bytes) -> bool:
        try:
            obstore.put(opened(self.url), key, content, mode="create")
        except AlreadyExistsError:
            # A write that was sent again finds what it has written itself. No two writers have the
            # same content.
            return self.read(key) == content
        return True


# Let Spark's executors run a task on Arrow batches.


# The last line of the traceback of a task.
_TASK_ERROR = re.compile(rf"\b{errors.ObjectStoreTaskError.__name__}: (.+)")
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
    register_pickle_by_value(errors)
    return task


@contextmanager
def task_errors() -> Generator[None]:
    """Turn an error of a task, and Spark's error about it, into ours if the store has failed.

    Raises:
        StoreError: names the URL, the cause and the remedy.
    """
    try:
        yield
    except errors.ObjectStoreTaskError as error:
        raise StoreError(str(error)) from None
    except (PySparkException, Py4JJavaError) as error:
        if found := _TASK_ERROR.search(str(error)):
            raise StoreError(f"In a task of Spark: {found[1]}") from None
        raise
