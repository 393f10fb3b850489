"""A table or query of a database, read by Spark through JDBC."""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass

from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame, SparkSession

from tableau_pipeline.errors import RefusedError

# User and password in a URL, as the usual drivers take them: before the host, or as properties.
_SECRET = re.compile(
    r"//[^@?;]*:[^@?;]*@|thin:[^@]+@|(password|passwd|pwd|token|secret)\w*\s*=", re.IGNORECASE
)
_OURS = re.compile(r"user|password|passwd|pwd|token|secret|^(url|dbtable|query)$", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class DatabaseTable:
    """A table or query of a database.

    Attributes:
        url: "jdbc:postgresql://host/database".
        table: the name of the table, or a query, "(SELECT ...) rows".
        credentials: the prefix of the two environment variables `<prefix>_USER` and
            `<prefix>_PASSWORD`. If neither is set, the driver gets no credentials.
    """

    url: str
    table: str
    credentials: str

    def check(self, options: Mapping[str, str]) -> None:
        """Refuse what must not be in the config of a run.

        Args:
            options: the options of Spark's reader.

        Raises:
            RefusedError: the config contains a secret, or the options name another table.
        """
        if _SECRET.search(self.url):
            raise RefusedError(
                "The URL of the database contains a user or a secret, which Dagster stores with "
                f"the config of this run: remove it, set {self._variable('USER')} and "
                f"{self._variable('PASSWORD')} in the environment, and change the password"
            )
        if wrong := [name for name in options if _OURS.search(name)]:
            raise RefusedError(
                f"reader: {wrong[0]} is not allowed: set path and table, and set "
                f"{self._variable('USER')} and {self._variable('PASSWORD')} in the environment, "
                "as Dagster stores the config of this run"
            )

    def read(self, spark: SparkSession, options: Mapping[str, str]) -> DataFrame:
        """Read the rows, by default with one query, so that all are from the same moment.

        Args:
            options: the options of Spark's reader, such as "fetchsize"; already checked.

        Raises:
            RefusedError: one of the two credentials is missing, or Spark has no driver for this
                database.
        """
        login = self._login()
        reader = spark.read.format("jdbc").options(url=self.url, dbtable=self.table)
        try:
            # Some drivers fetch ten rows at a time, others the whole table, unless a number is set.
            return reader.options(**{"fetchsize": "10000", **options, **login}).load()
        except Py4JJavaError as error:
            if "No suitable driver" not in str(error.java_exception):
                raise
            raise RefusedError(
                f"Spark has no JDBC driver for {self.url}: name its jar in spark-defaults.conf in "
                "the folder SPARK_CONF_DIR, as spark.driver.extraClassPath (and "
                "spark.executor.extraClassPath on a cluster)"
            ) from error

    def _login(self) -> dict[str, str]:
        variables = {"user": self._variable("USER"), "password": self._variable("PASSWORD")}
        found = {name: os.environ.get(variable) for name, variable in variables.items()}
        missing = [variables[name] for name, value in found.items() if not value]
        if len(missing) == 1:
            raise RefusedError(f"{missing[0]} is not set in the environment")
        return {name: value for name, value in found.items() if value}

    def _variable(self, what: str) -> str:
        return f"{self.credentials}_{what}"
