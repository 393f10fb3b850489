import os
import shutil
import sqlite3
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dagster as dg
import pytest
from hypothesis import HealthCheck, settings
from pyspark.sql import SparkSession
from sqlalchemy import Engine, event

from tableau_pipeline.sandbox.testing import Sandbox, running_sandbox
from tableau_pipeline.sandbox.testing import tableau_sandbox as tableau_sandbox  # a fixture
from tableau_pipeline.snapshots.spark.session import spark_session

if TYPE_CHECKING:
    from tableau_pipeline.demo.story import Line

ROOT = Path(__file__).parents[1]
# The first example of a property imports what it needs, and a machine may be busy.
settings.register_profile(
    "any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("any machine")
VARIABLES = ("TABLEAU_", "PIPELINE_", "SPARK_REMOTE", "DAGSTER_HOME")


@event.listens_for(Engine, "connect")
def _without_waiting_for_the_disk(connection: Any, _: Any) -> None:
    """Dagster's databases of tests need not outlive a power cut, and commit some 30 times a run."""
    if isinstance(connection, sqlite3.Connection):
        connection.execute("PRAGMA synchronous = OFF")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> Iterator[None]:
    """Mark what needs a mark by what it is; then order what `-m` has left.

    Where several processes share the tests, those of a file stay together, as do Spark's. What
    needs the whole demo is slow, and so are the variants of a test beyond the first few, if it is
    marked so.
    """
    variants: Counter[str] = Counter()
    for item in items:
        if marker := item.get_closest_marker("few_variants"):
            name = item.nodeid.split("[")[0]
            variants[name] += 1
            if variants[name] > marker.args[0]:
                item.add_marker(pytest.mark.slow)
        if "story" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.slow)
        with_spark = "spark" in getattr(item, "fixturenames", ())
        item.add_marker(
            pytest.mark.xdist_group("spark" if with_spark else item.nodeid.split("::")[0])
        )
    yield
    _longest_first(items)


def _longest_first(items: list[pytest.Item]) -> None:
    """Order groups by how long their tests may take, so that no process ends alone with a long one.

    This needs --no-loadscope-reorder: pytest-xdist begins with the groups that have most tests.
    """
    groups: dict[frozenset[str], list[pytest.Item]] = {}
    for item in items:
        names = frozenset(mark.args[0] for mark in item.iter_markers("xdist_group"))
        groups.setdefault(names, []).append(item)
    by_length = sorted(
        groups.values(), key=lambda group: (max(map(_timeout, group)), len(group)), reverse=True
    )
    items[:] = chain.from_iterable(by_length)


def _timeout(item: pytest.Item) -> float:
    marker = item.get_closest_marker("timeout")
    return marker.args[0] if marker else float(item.config.getini("timeout"))


@pytest.fixture(scope="session", autouse=True)
def _no_settings_of_the_machine() -> None:
    """Tests see no server, token or folder that a developer has set up."""
    for name in [name for name in os.environ if name.startswith(VARIABLES)]:
        del os.environ[name]


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The one JVM of the test session."""
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
    """The code location that the project ships, with a server and a Dagster of its own."""

    definitions: dg.Definitions
    data_dir: Path
    sandbox: Sandbox
    instance: dg.DagsterInstance


@pytest.fixture(scope="session")
def shipped(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shipped]:
    """The shipped location, before anything was published."""
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
        # Read when it is loaded, and not before the environment is set.
        from tableau_pipeline.definitions import defs

        yield Shipped(defs(), data_dir, sandbox, instance)


@dataclass(frozen=True)
class Story(Shipped):
    """The demo, told: what it left on disk, on the sandbox and in Dagster."""

    lines: list["Line"]


@pytest.fixture(scope="session")
def story(shipped: Shipped) -> Story:
    """The demo's refreshes of the real flights, in this process and its one JVM."""
    from tableau_pipeline.demo.story import CHAPTERS, refresh

    chapters = [refresh(chapter, shipped.definitions, shipped.instance) for chapter in CHAPTERS]
    lines = [line for chapter in chapters for line in chapter]
    return Story(shipped.definitions, shipped.data_dir, shipped.sandbox, shipped.instance, lines)
