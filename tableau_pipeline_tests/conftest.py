import functools
import os
import shutil
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dagster as dg
import pytest
from alembic.script import ScriptDirectory
from dagster._core.storage.event_log.sqlite import sqlite_event_log
from dagster._core.storage.runs.sqlite import sqlite_run_storage
from dagster._core.storage.schedules.sqlite import sqlite_schedule_storage
from dagster.components.core import load_defs
from pyspark.sql import SparkSession
from sqlalchemy import Engine, NullPool, create_engine, event

from tableau_pipeline.publishing.retries import SafeRetry
from tableau_pipeline.snapshots.spark import spark_session
from tableau_sandbox.testing import Sandbox, running_sandbox

if TYPE_CHECKING:
    from tableau_pipeline.demo.story import Line

ROOT = Path(__file__).parents[1]


@event.listens_for(Engine, "connect")
def _without_waiting_for_the_disk(connection: Any, _: Any) -> None:
    """Do not wait for the disk: a run commits some 30 times, and tests discard these databases."""
    if isinstance(connection, sqlite3.Connection):
        connection.execute("PRAGMA synchronous = OFF")


@pytest.fixture(scope="session", autouse=True)
def _nor_for_other_files() -> Iterator[None]:
    """Do not wait for the disk, some 20 times in a test. Do not pause before a retry."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: None)
        patch.setattr(SafeRetry, "get_backoff_time", lambda _: 0)
        yield


@pytest.fixture(scope="session", autouse=True)
def _no_list_of_installed_components() -> Iterator[None]:
    """Skip the list of all components, which each load of a project makes for `dg`.

    The list has schemas of all packages. The first list takes three seconds. Each further list
    takes a fifth of a second.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            load_defs,
            "get_library_json_enriched_defs",
            lambda tree: dg.Definitions(component_tree=tree),
        )
        yield


@pytest.fixture(scope="session", autouse=True)
def _databases_of_dagster_are_known() -> Iterator[None]:
    """Cache the engines and migrations that Dagster would load for each query or run."""

    @functools.lru_cache(maxsize=50)
    def engine(url: str) -> Engine:
        timeout = {"timeout": sqlite_event_log.SQLITE_BUSY_TIMEOUT_SECONDS}
        return create_engine(url, poolclass=NullPool, connect_args=timeout)

    with pytest.MonkeyPatch.context() as patch:
        for storage in (sqlite_event_log, sqlite_run_storage, sqlite_schedule_storage):
            patch.setattr(storage, "create_engine", lambda url, **_: engine(url))
        known = staticmethod(functools.cache(ScriptDirectory.from_config))
        patch.setattr(ScriptDirectory, "from_config", known)
        yield


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The Spark session of all tests. Its JVM compiles lightly: it ends before more pays off."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1")
        session = spark_session(
            master="local[2]",
            remote=None,
            driver_memory="2g",
            config={"spark.sql.shuffle.partitions": "2"},
        )
    yield session
    session.stop()


@dataclass(frozen=True)
class Shipped:
    """The code location that the project ships, with its own server and Dagster instance."""

    definitions: dg.Definitions
    data_dir: Path
    sandbox: Sandbox
    instance: dg.DagsterInstance


@pytest.fixture(scope="session")
def shipped(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shipped]:
    """The shipped location, with nothing published yet."""
    folder = tmp_path_factory.mktemp("story of flights")
    home = folder / "dagster_home"
    home.mkdir()
    shutil.copy(ROOT / "dagster_home" / "dagster.yaml", home)
    with (
        running_sandbox(folder / "sandbox") as sandbox,
        pytest.MonkeyPatch.context() as patch,
        dg.DagsterInstance.from_config(str(home)) as instance,
    ):
        data_dir = folder / "data"
        patch.setenv("PIPELINE_DATA_DIR", str(data_dir))
        patch.setenv("TABLEAU_SERVER_URL", sandbox.url)
        patch.setenv("TABLEAU_TOKEN_NAME", sandbox.token_name)
        patch.setenv("TABLEAU_TOKEN_VALUE", sandbox.token_secret)
        # The location reads the environment when it loads, so load it after the variables are set.
        from tableau_pipeline.definitions import defs

        yield Shipped(defs(), data_dir, sandbox, instance)


@dataclass(frozen=True)
class Story(Shipped):
    """The demo after its end: its output, and its data on disk, on the sandbox and in Dagster."""

    lines: list["Line"]


@pytest.fixture(scope="session")
def story(shipped: Shipped) -> Story:
    """Play the demo with the real flights, in this process and its one JVM."""
    from tableau_pipeline.demo.story import CHAPTERS, refresh, roll_back_and_release

    chapters = [refresh(chapter, shipped.definitions, shipped.instance) for chapter in CHAPTERS]
    chapters.append([*roll_back_and_release(shipped.definitions, shipped.instance)])
    lines = [line for chapter in chapters for line in chapter]
    return Story(shipped.definitions, shipped.data_dir, shipped.sandbox, shipped.instance, lines)
