"""Spark, Hyper, Tableau and the snapshots as Dagster resources, set up from the environment."""

import logging
import os
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dagster as dg
from dagster_pyspark import LazyPySparkResource
from pydantic import Field, ValidationInfo, field_validator
from pyspark.sql import SparkSession
from tableauhyperapi import Connection, CreateMode, HyperProcess

from tableau_pipeline.core.timeouts import Timeouts
from tableau_pipeline.errors import RefusedError
from tableau_pipeline.hyper.process import connect, hyper_process
from tableau_pipeline.publishing.credentials import (
    ConnectedApp,
    Credentials,
    Password,
    PersonalAccessToken,
)
from tableau_pipeline.publishing.site import TableauSite, signed_in
from tableau_pipeline.snapshots.io_manager import SnapshotIOManager
from tableau_pipeline.snapshots.session import spark_session

__all__ = [
    "HyperResource",
    "SnapshotIOManager",
    "SparkResource",
    "TableauServerResource",
    "data_dir",
    "resources_from_env",
]


class SparkResource(LazyPySparkResource):
    """A Spark session in UTC, started when a step first asks for it and shared by the run."""

    spark_config: dict[str, str] = Field(
        default_factory=dict, description="Further Spark settings; an EnvVar is not resolved here."
    )
    master: str = Field(default="local[*]", description="As spark-submit's --master.")
    remote: str | None = Field(default=None, description="A Spark Connect URL, instead of a JVM.")
    driver_memory: str = Field(default="2g", description="Heap of the JVM.")

    def _init_session(self) -> None:
        if self._spark_session is None:
            if SparkSession.getActiveSession() is None:
                where = self.remote or self.master
                dg.get_dagster_logger(__name__).info("Starting Spark (%s): some seconds", where)
            self._spark_session = spark_session(
                master=self.master,
                remote=self.remote,
                driver_memory=self.driver_memory,
                config=self.spark_config,
            )


class HyperResource(dg.ConfigurableResource):
    """hyperd, the engine behind `.hyper` files: one process for each run."""

    memory_limit: str = Field(default="50%", description='As "4g", or a share of all memory.')
    telemetry: bool = Field(default=False, description="Send usage data to Tableau.")

    @property
    def process(self) -> HyperProcess:
        """The running hyperd."""
        return hyper_process(memory_limit=self.memory_limit, telemetry=self.telemetry)

    def connect(
        self, path: str | Path | None = None, create_mode: CreateMode = CreateMode.NONE
    ) -> Connection:
        """A connection to hyperd, and to the `.hyper` file at `path`, in UTC; a context manager."""
        return connect(self.process, path, create_mode)


# What the launchpad shows in the place of a secret, and sends back as its value.
_MASK = "********"
_SECRETS = {
    "token_value": "TABLEAU_TOKEN_VALUE",
    "password": "TABLEAU_PASSWORD",
    "connected_app_secret_value": "TABLEAU_CONNECTED_APP_SECRET_VALUE",
}
_WHERE = (
    "Set it in the environment, or in a .env in the folder where Dagster starts. A server to try "
    "with, and its credentials: `tableau-sandbox`."
)
_JOB_SECONDS, _QUEUE_SECONDS = 7200, 7200


def _secret(name: str) -> Any:
    return Field(
        default=None,
        description=_SECRETS[name],
        repr=False,
        json_schema_extra={"dagster__is_secret": True},
    )


class TableauServerResource(dg.ConfigurableResource):
    """A site of Tableau Server or Tableau Cloud, and one of the three ways to sign in.

    Settings that a refresh needs and that are absent are errors when it needs them, not before.
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
    ca_bundle: str | None = Field(default=None, description="Certificates to trust (PEM file).")
    job_timeout: int = Field(
        default=_JOB_SECONDS, gt=0, description="Seconds that a job may run on the server."
    )
    queue_timeout: int = Field(
        default=_QUEUE_SECONDS, gt=0, description="Seconds that a job may wait for its start."
    )
    takeover: bool = Field(
        default=False,
        description="Take over data sources with the tag of another deployment; for one that has "
        "lost its records.",
    )

    @field_validator(*_SECRETS)
    @classmethod
    def _unmasked(cls, value: str | None, info: ValidationInfo) -> str | None:
        if value == _MASK:
            return os.environ.get(_SECRETS[str(info.field_name)])
        return value

    @property
    def timeouts(self) -> Timeouts:
        """How long a refresh waits for this server."""
        return Timeouts(job=self.job_timeout, queue=self.queue_timeout)

    @contextmanager
    def session(self, log: logging.Logger | None = None) -> Generator[TableauSite]:
        """A session on the site, which ends with the block; `.tsc` is the TSC client.

        Raises:
            RefusedError: a setting is missing, or the server does not accept the credentials.
            RefreshError: no Tableau Server answers.
        """
        with signed_in(
            self._needed("server_url", "TABLEAU_SERVER_URL"),
            site=self.site,
            credentials=self._credentials(),
            ca_bundle=Path(self.ca_bundle) if self.ca_bundle else None,
            log=log or logging.getLogger(__name__),
        ) as site:
            yield site

    def _credentials(self) -> Credentials:
        if self.token_name or self.token_value:
            return PersonalAccessToken(
                self._needed("token_name", "TABLEAU_TOKEN_NAME"),
                self._needed("token_value", "TABLEAU_TOKEN_VALUE"),
            )
        if self.connected_app_client_id:
            prefix = "TABLEAU_CONNECTED_APP"
            return ConnectedApp(
                username=self._needed("username", "TABLEAU_USERNAME"),
                client_id=self.connected_app_client_id,
                secret_id=self._needed("connected_app_secret_id", f"{prefix}_SECRET_ID"),
                secret_value=self._needed("connected_app_secret_value", f"{prefix}_SECRET_VALUE"),
            )
        if self.username or self.password:
            return Password(
                self._needed("username", "TABLEAU_USERNAME"),
                self._needed("password", "TABLEAU_PASSWORD"),
            )
        raise RefusedError(
            "No credentials for Tableau: set TABLEAU_TOKEN_NAME and TABLEAU_TOKEN_VALUE, or "
            "TABLEAU_USERNAME and TABLEAU_PASSWORD, or TABLEAU_USERNAME and "
            "TABLEAU_CONNECTED_APP_CLIENT_ID, _SECRET_ID and _SECRET_VALUE. " + _WHERE
        )

    def _needed(self, field: str, variable: str) -> str:
        if value := getattr(self, field):
            return value
        raise RefusedError(f"{variable} is not set. {_WHERE}")


def data_dir() -> Path:
    """Where snapshots, extracts and locks live: what PIPELINE_DATA_DIR says.

    Otherwise it is `data/`: of this checkout, where that is what runs, and in other projects of
    DAGSTER_HOME, whose records tell of the snapshots; without one, of the folder that we run in.
    """
    if said := os.environ.get("PIPELINE_DATA_DIR"):
        return Path(said).absolute()
    checkout, home = Path(__file__).parents[1], os.environ.get("DAGSTER_HOME")
    places = [Path(home or ".").absolute(), Path.cwd()]
    if (checkout / "workspace.yaml").exists() and checkout in _upwards(places):
        return checkout / "data"
    return places[0] / "data"


def _upwards(places: Iterable[Path]) -> Iterator[Path]:
    """These folders, and all that they lie in."""
    for place in places:
        yield place
        yield from place.parents


def resources_from_env() -> dict[str, Any]:
    """Every resource of the pipeline, set up from the environment.

    Keys: "spark", "hyper", "tableau", "snapshots". No variable has to be set for this.

    Raises:
        RefusedError: a variable that is a number or a switch is set to something else.
    """
    spark = SparkResource(
        master=os.environ.get("SPARK_MASTER") or "local[*]",
        remote=os.environ.get("SPARK_REMOTE") or None,
        driver_memory=os.environ.get("SPARK_DRIVER_MEMORY") or "2g",
    )
    return {
        "spark": spark,
        "hyper": HyperResource(),
        "tableau": TableauServerResource(
            server_url=_env("TABLEAU_SERVER_URL"),
            site=os.environ.get("TABLEAU_SITE", ""),
            token_name=_env("TABLEAU_TOKEN_NAME"),
            token_value=_env("TABLEAU_TOKEN_VALUE"),
            username=_env("TABLEAU_USERNAME"),
            password=_env("TABLEAU_PASSWORD"),
            connected_app_client_id=_env("TABLEAU_CONNECTED_APP_CLIENT_ID"),
            connected_app_secret_id=_env("TABLEAU_CONNECTED_APP_SECRET_ID"),
            connected_app_secret_value=_env("TABLEAU_CONNECTED_APP_SECRET_VALUE"),
            ca_bundle=_env("TABLEAU_CA_BUNDLE"),
            job_timeout=_seconds("TABLEAU_JOB_TIMEOUT", default=_JOB_SECONDS),
            queue_timeout=_seconds("TABLEAU_QUEUE_TIMEOUT", default=_QUEUE_SECONDS),
            takeover=_switch("TABLEAU_TAKEOVER"),
        ),
        "snapshots": SnapshotIOManager(root=str(data_dir() / "snapshots"), spark=spark),
    }


def _env(name: str) -> dg.EnvVar | None:
    """The variable by its name, so that no page of the UI shows its value; None if it is unset."""
    return dg.EnvVar(name) if os.environ.get(name) else None


def _seconds(name: str, *, default: int) -> int:
    said = os.environ.get(name) or str(default)
    if not said.isdecimal() or int(said) == 0:
        raise RefusedError(f"{name} is {said!r}: set it to a number of seconds above 0.")
    return int(said)


def _switch(name: str) -> bool:
    said = os.environ.get(name) or "false"
    if said not in ("true", "false"):
        raise RefusedError(f"{name} is {said!r}: set it to true or false.")
    return said == "true"
