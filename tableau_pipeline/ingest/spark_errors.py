"""What Spark raises for what it cannot read, in words."""

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

# At once, or from one of its tasks.
READ_ERRORS = (PySparkException, Py4JJavaError)


def reason(error: Exception) -> str:
    """What is wrong, without the stack of Spark's that led to it.

    The innermost cause that says something: a cause may have no message, or just name a class.
    """
    if not isinstance(error, Py4JJavaError):
        return str(error)
    cause, told = error.java_exception, ""
    while cause is not None:
        message = cause.getMessage()
        told = message if message and " " in message.strip() else told
        cause = cause.getCause()
    return str(told or error.java_exception.getClass().getSimpleName())
