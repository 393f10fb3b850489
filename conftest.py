import os
from collections import Counter
from collections.abc import Iterator
from itertools import chain

import pytest
from hypothesis import HealthCheck, settings

# The first example of a property imports what it needs, and a machine may be busy.
settings.register_profile(
    "any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("any machine")
VARIABLES = ("TABLEAU_", "PIPELINE_", "SPARK_REMOTE", "DAGSTER_HOME")


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
    """Tests see no server, token, folder or proxy that a developer has set up."""
    for name in [name for name in os.environ if name.startswith(VARIABLES)]:
        del os.environ[name]
    # Otherwise each request looks for proxies among all variables.
    os.environ["NO_PROXY"] = "127.0.0.1,localhost,sandbox.test"
