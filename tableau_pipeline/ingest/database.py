"""A table or query of a database, read by Spark through JDBC."""

import os
import re
from collections.abc import Mapping

from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame, SparkSession

from tableau_pipeline.errors import RefusedError

# User and password in a URL, as the usual drivers take them: before the host, or as properties.
_SECRET = re.compile(
    r"//[^@?;]*:[^@?;]*@|thin:[^@]+@|(password|passwd|pwd|token|secret)\w*\s*=", re.IGNORECASE
)
_OURS = re.compile(r"user|password|passwd|pwd|token|secret|^(url|dbtable|query)$", re.IGNORECASE)


def read_table(
    spark: SparkSession, url: str, table: str, *, credentials: str, options: Mapping[str, str]
) -> DataFrame:
    """Read the rows of a database, by default with one query, so that all are of one moment.

    Args:
        url: "jdbc:postgresql://host/database".
        table: the name of a table, or a query, "(SELECT ...) rows".
        credentials: the prefix of the two environment variables `<prefix>_USER` and
            `<prefix>_PASSWORD`. If neither is set, the driver gets no credentials.
        options: of Spark's reader, such as "fetchsize"; checked by `check_table`.

    Raises:
        RefusedError: one of the two credentials is missing, or Spark has no driver for the URL.
    """
    variables = {name: f"{credentials}_{name.upper()}" for name in ("user", "password")}
    login = {name: os.environ.get(variable) for name, variable in variables.items()}
    missing = [variables[name] for name, value in login.items() if not value]
    if len(missing) == 1:
        raise RefusedError(f"{missing[0]} is not set in the environment")
    # Some drivers fetch ten rows at a time, others the whole table, unless a number is set.
    given = {"fetchsize": "10000", **options, **({} if missing else login)}
    try:
        return spark.read.format("jdbc").options(url=url, dbtable=table, **given).load()
    except Py4JJavaError as error:
        if "No suitable driver" not in str(error.java_exception):
            raise
        raise RefusedError(
            f"Spark has no JDBC driver for {url}: name its jar in spark-defaults.conf in the "
            "folder SPARK_CONF_DIR, as spark.driver.extraClassPath (and "
            "spark.executor.extraClassPath on a cluster)"
        ) from error


def check_table(url: str, credentials: str, options: Mapping[str, str]) -> None:
    """Refuse a secret, or another table, in the config of a run, which Dagster stores."""
    instead = f"set {credentials}_USER and {credentials}_PASSWORD in the environment"
    if _SECRET.search(url):
        raise RefusedError(
            "The URL of the database contains a user or a secret, which Dagster stores with the "
            f"config of this run: remove it, {instead}, and change the password"
        )
    if wrong := [name for name in options if _OURS.search(name)]:
        raise RefusedError(
            f"reader: {wrong[0]} is not allowed: set path and table, and {instead}, as Dagster "
            "stores the config of this run"
        )
