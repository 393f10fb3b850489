"""A table or query of a database, as Spark reads it through JDBC."""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass

from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame, SparkSession

from tableau_pipeline.refresh.errors import RefusedError

# User and password in a URL, as JDBC drivers take them.
_SECRET = re.compile(r"//[^/?;]*:[^/?;]*@|[?;&](password|pwd|accesstoken)=", re.IGNORECASE)
_SECRET_OPTION = re.compile(r"user|password|pwd|token|secret", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class DatabaseTable:
    """Rows of a database.

    Attributes:
        url: "jdbc:postgresql://host/database".
        table: its name, or a query, "(SELECT ...) rows".
        credentials: the prefix of the two environment variables `<prefix>_USER` and
            `<prefix>_PASSWORD`; with neither, the driver gets none.
    """

    url: str
    table: str
    credentials: str

    def read(self, spark: SparkSession, options: Mapping[str, str]) -> DataFrame:
        """The rows, by one query unless the options say otherwise: so they are of one moment.

        Args:
            options: of Spark's reader, such as "fetchsize".

        Raises:
            RefusedError: a secret is where everybody can read it, half of one is missing, or Spark
                has no driver for this database.
        """
        if _SECRET.search(self.url):
            raise RefusedError(
                "The URL of the database holds a user and password, which Dagster would record: "
                f"leave them out, and set {self._variable('USER')} and "
                f"{self._variable('PASSWORD')} in the environment"
            )
        if secret := [name for name in options if _SECRET_OPTION.search(name)]:
            raise RefusedError(
                f"reader: {secret[0]} would be recorded by Dagster: set {self._variable('USER')} "
                f"and {self._variable('PASSWORD')} in the environment instead"
            )
        login = self._login()
        reader = spark.read.format("jdbc").options(url=self.url, dbtable=self.table)
        try:
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
