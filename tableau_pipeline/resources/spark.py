import dagster as dg
from dagster_pyspark import LazyPySparkResource
from pydantic import Field
from pyspark.sql import SparkSession

from tableau_pipeline.snapshots.spark import spark_session


class SparkResource(LazyPySparkResource):
    """A Spark session in UTC, started when a step first needs it and shared by the run."""

    spark_config: dict[str, str] = Field(
        default_factory=dict, description="Further Spark settings; an EnvVar is not resolved here."
    )
    master: str | None = Field(
        default=None, description="Master URL, as in spark-submit's --master."
    )
    remote: str | None = Field(
        default=None, description="A Spark Connect URL, instead of a local JVM."
    )
    driver_memory: str | None = Field(default=None, description="Heap size of the JVM.")

    def _init_session(self) -> None:
        if self._spark_session is None:
            if SparkSession.getActiveSession() is None:
                where = self.remote or self.master
                dg.get_dagster_logger(__name__).info(
                    "Starting Spark%s, which takes some seconds", f" ({where})" if where else ""
                )
            self._spark_session = spark_session(
                master=self.master,
                remote=self.remote,
                driver_memory=self.driver_memory,
                config=self.spark_config,
            )
