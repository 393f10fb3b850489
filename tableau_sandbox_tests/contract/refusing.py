"""A plugin for pytest: the sandbox refuses all requests of a fact, so every fact must fail."""

from collections.abc import Generator

import pytest

from tableau_sandbox.faults import Refuse


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, None, None]:
    # The fixtures are made already. Make the shared data source before the refusals begin, too.
    arguments = item.funcargs
    if "workspace" in arguments:
        _ = arguments["workspace"].shared
    control = arguments["site"].sandbox.control
    refusal = control.add(Refuse(status=500, times=None))
    try:
        return (yield)
    finally:
        control.clear(refusal.number)
