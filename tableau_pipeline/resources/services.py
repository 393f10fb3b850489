"""Define the Dagster resources for Spark, Hyper and Tableau; turn errors into failed steps."""

import logging
import os
import traceback
from collections.abc import Generator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any

import dagster as dg
from dagster_pyspark import LazyPySparkResource
from pydantic import Field, ValidationInfo, field_validator
from pyspark.sql import SparkSession
from tableauhyperapi import Connection, CreateMode

from tableau_pipeline.core.drift import Timeouts
from tableau_pipeline.dagster_internals import DagsterUserCodeProcessError, SerializableErrorInfo
from tableau_pipeline.errors import RefreshError, RefusedError
from tableau_pipeline.hyper.process import Hyperd, connect, hyper_process
from tableau_pipeline.outcome import Code
from tableau_pipeline.publishing.settings import ServerSettings, variable_of
from tableau_pipeline.publishing.site import TableauSite
from tableau_pipeline.rendering import Face, rendered
from tableau_pipeline.snapshots.spark import spark_session

# The launchpad shows this text instead of a secret, and sends the text back as the value.
_MASK = "********"
_SECRETS = ("token_value", "password", "connected_app_secret_value")


def _secret(name: str) -> Any:
    """Return the field of a secret setting, whose value Dagster never shows."""
    return Field(
        default=None,
        description=variable_of(name),
        repr=False,
        json_schema_extra={"dagster__is_secret": True},
    )


class TableauServerResource(dg.ConfigurableResource):
    """A site of Tableau Server or Tableau Cloud, and one of the three ways to sign in.

    A missing setting is an error only when a refresh needs the setting.
    """

    server_url: str | None = Field(default=None, description="TABLEAU_SERVER_URL")
    site: str = Field(default="", description='The site\'s content URL; "" is the default site.')
    token_name: str | None = Field(default=None, description="TABLEAU_TOKEN_NAME")
    token_value: str | None = _secret("token_value")
    username: str | None = Field(default=None, description="TABLEAU_USERNAME")
    password: str | None = _secret("password")
    connected_app_client_id: str | None = Field(default=None)
    connected_app_secret_id: str | None = Field(default=None)
    connected_app_secret_value: str | None = _secret("connected_app_secret_value")
    ca_bundle: str | None = Field(
        default=None, description="PEM file with the certificates to trust."
    )
    job_timeout: int = Field(
        default=7200, gt=0, description="Seconds that a job may run on the server."
    )
    queue_timeout: int = Field(
        default=7200, gt=0, description="Seconds that a job may wait before it starts."
    )
    arrival_timeout: int = Field(
        default=600,
        gt=0,
        description="Seconds that a gateway may hold a request whose answer was lost.",
    )
    takeover: bool = Field(
        default=False,
        description="Take over data sources with the tag of another deployment. Use it after the "
        "records were lost.",
    )

    @field_validator(*_SECRETS)
    @classmethod
    def _unmasked(cls, value: str | None, info: ValidationInfo) -> str | None:
        if value == _MASK:
            return os.environ.get(variable_of(str(info.field_name)))
        return value

    @property
    def timeouts(self) -> Timeouts:
        """The time limits of a refresh with this server."""
        return self._settings.timeouts

    def session(
        self, log: logging.Logger | None = None, *, counts: bool = False, people: bool = False
    ) -> AbstractContextManager[TableauSite]:
        """Open a session on the site for a `with` block; the session's `.tsc` is the TSC client.

        For the other arguments and the errors, see `ServerSettings.session`.
        """
        log = log or logging.getLogger(__name__)
        return self._settings.session(log, counts=counts, people=people)

    @property
    def _settings(self) -> ServerSettings:
        return ServerSettings(
            **{each.name: getattr(self, each.name) for each in fields(ServerSettings)}
        )


class SparkResource(LazyPySparkResource):
    """A Spark session in UTC, which starts when first needed; steps in one process share it."""

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
            with as_failure(dg.get_dagster_logger(__name__)):
                self._spark_session = spark_session(
                    master=self.master,
                    remote=self.remote,
                    driver_memory=self.driver_memory,
                    config=self.spark_config,
                )


class HyperResource(dg.ConfigurableResource):
    """hyperd, which reads and writes `.hyper` files: one hyperd for each Python process."""

    memory_limit: str = Field(
        default="50%",
        description='Memory limit: an amount such as "4g", or a share of the memory that the run '
        "may use, in a container or on the machine.",
    )
    telemetry: bool = Field(default=False, description="Send usage data to Tableau.")

    @property
    def process(self) -> Hyperd:
        """The hyperd process, which starts when it is first needed."""
        return hyper_process(memory_limit=self.memory_limit, telemetry=self.telemetry)

    def connect(
        self, path: str | Path | None = None, create_mode: CreateMode = CreateMode.NONE
    ) -> Connection:
        """Connect to hyperd, in UTC, and to the `.hyper` file at `path`, for a `with` block."""
        return connect(self.process, path, create_mode)


# The text before the message of a refusal in `_MAY_LACK`, if no variable names the data folder.
_FOLDER_HINT = (
    "Neither PIPELINE_DATA_DIR nor DAGSTER_HOME is set, so this run may look for records and "
    "snapshots in another folder than earlier runs. Set both as in the earlier runs, and run "
    "again. Only if there were no earlier runs:\n"
)


# Refusals with these codes may mean that the run uses the wrong data folder.
_MAY_LACK = (Code.OTHER_DEPLOYMENT, Code.NO_SNAPSHOT)
# The metadata keys of a refused step. RUN_CONFIG: the run config that accepts the refusals, for the
# launchpad or `dg launch --config`. CODE: the codes of the refusals, which the documentation
# explains. REFUSALS: all refusals as JSON.
RUN_CONFIG, CODE, REFUSALS = "to accept it, put into the launchpad", "code", "refusals"


class RefusedStepError(dg.Failure, DagsterUserCodeProcessError):
    """The failure of a refused step. Dagster does not retry the step, and reports no crash.

    One base class is Dagster's class for errors of another process. For such errors, Dagster shows
    only the message. For all other errors, Dagster also shows a stack of its own frames.
    """

    def __init__(self, message: str, metadata: Mapping[str, dg.MetadataValue]) -> None:
        Exception.__init__(self, message)
        self.description, self.metadata, self.allow_retries = message, metadata, False
        info = SerializableErrorInfo(f"Refused: {message}\n", [], "Refused")
        self.user_code_process_error_infos = [info]


@contextmanager
def as_failure(log: logging.Logger, *, step: str | None = None) -> Generator[None]:
    """Turn an error of a refresh into a failure of the step.

    The traceback is logged at debug level, because it helps only developers of this package.

    Args:
        step: the step whose run config has the key `accept`; None if no step has this key.

    Raises:
        RefusedStepError: the refresh was refused. The step is not retried.
        dagster.Failure: the refresh failed.
    """
    try:
        yield
    except RefreshError as error:
        log.debug("%s", "".join(traceback.format_exception(error)))
        if not isinstance(error, RefusedError):
            raise dg.Failure(str(error)) from None
        may_lack = any(refusal.code in _MAY_LACK for refusal in error.refusals)
        is_named = os.environ.get("PIPELINE_DATA_DIR") or os.environ.get("DAGSTER_HOME")
        hint = _FOLDER_HINT if may_lack and not is_named else ""
        metadata: dict[str, dg.MetadataValue] = {}
        if config := rendered(error.refusals, Face.LAUNCHPAD, step=step):
            metadata[RUN_CONFIG] = dg.MetadataValue.text(config)
        codes = dict.fromkeys(str(refusal.code) for refusal in error.refusals)
        metadata[CODE] = dg.MetadataValue.text(", ".join(codes))
        metadata[REFUSALS] = dg.MetadataValue.json(
            [refusal.as_json() for refusal in error.refusals]
        )
        raise RefusedStepError(f"{hint}{error}", metadata) from None
