"""Faults and switches of a sandbox, for as long as a block lasts."""

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import fields
from typing import Any

from tableau_sandbox.control.faults import Fault
from tableau_sandbox.control.state import Armed
from tableau_sandbox.switches import Switches
from tableau_sandbox.testing import Sandbox


@contextmanager
def armed(sandbox: Sandbox, fault: Fault) -> Generator[Armed]:
    """A fault, until the block ends."""
    added = sandbox.control.add(fault)
    try:
        yield added
    finally:
        sandbox.control.clear(added.number)


@contextmanager
def switched(sandbox: Sandbox, **values: Any) -> Generator[None]:
    """Other switches within the block, and their defaults after it."""
    defaults = {field.name: field.default for field in fields(Switches)}
    sandbox.switch(**values)
    try:
        yield
    finally:
        sandbox.switch(**{name: defaults[name] for name in values})
