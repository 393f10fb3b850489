"""A plugin for pytest: the sandbox refuses whatever a fact asks. None may hold of such a server."""

from collections.abc import Generator

import pytest

from tableau_sandbox.faults import Refuse


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, None, None]:
    # What a fact is given by fixtures is made before; so is what facts share.
    arguments = item.funcargs
    if "workspace" in arguments:
        _ = arguments["workspace"].shared
    control = arguments["site"].sandbox.control
    refusal = control.add(Refuse(status=500, times=None))
    try:
        return (yield)
    finally:
        control.clear(refusal.number)
