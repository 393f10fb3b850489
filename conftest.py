import os
from collections import Counter
from collections.abc import Iterator
from itertools import chain

import pytest
from hypothesis import HealthCheck, settings

# Set no deadlines: the first example of a property test may be slow because of imports, and any
# example may be slow on a busy machine.
settings.register_profile(
    "any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("any machine")
VARIABLES = ("TABLEAU_", "PIPELINE_", "SPARK_REMOTE", "DAGSTER_HOME")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> Iterator[None]:
    """Mark each test by its fixtures and file; then sort the tests that `-m` selects.

    With several processes, all tests with the fixture `spark` run in one process. The other tests
    of each file run in one process too. Tests with the fixture `story`, which runs the whole demo,
    are slow. If a test has the marker `few_variants(n)`, its variants after the first n are slow.
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
    """Put the groups with the longest timeouts first.

    Then no process still runs a long group after the other processes have finished. This order
    needs --no-loadscope-reorder. Without it, pytest-xdist begins with the groups that have the most
    tests.
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
    """Hide the servers, tokens and folders that a developer has set up, and use no proxy."""
    for name in [name for name in os.environ if name.startswith(VARIABLES)]:
        del os.environ[name]
    # Without this, each request searches all environment variables for a proxy, which takes time.
    os.environ["NO_PROXY"] = "127.0.0.1,localhost,sandbox.test"
