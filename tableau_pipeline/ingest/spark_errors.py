"""Readable messages for Spark's read errors."""

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

# PySparkException is raised by the driver, Py4JJavaError by a task.
READ_ERRORS = (PySparkException, Py4JJavaError)


def reason(error: Exception) -> str:
    """Return the reason of an error, without Spark's stack trace.

    It is the message of the innermost cause that has one of more than a class name.
    """
    if not isinstance(error, Py4JJavaError):
        return str(error)
    cause, found = error.java_exception, ""
    while cause is not None:
        message = cause.getMessage()
        found = message if message and " " in message.strip() else found
        cause = cause.getCause()
    return str(found or error.java_exception.getClass().getSimpleName())
