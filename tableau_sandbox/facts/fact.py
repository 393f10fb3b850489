"""What a fact is, and how a function becomes one."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tableau_sandbox.facts.sources import Source

if TYPE_CHECKING:
    from tableau_sandbox.facts.playground import Playground
    from tableau_sandbox.facts.scene import Scene

ReadCheck = Callable[["Scene"], None]
WriteCheck = Callable[["Playground"], None]


@dataclass(frozen=True, kw_only=True)
class Fact:
    """One fact about servers.

    Attributes:
        name: identifies it in reports.
        claim: what a server does, in a sentence.
        endpoint: the method and the path that it is about.
        source: where it comes from.
        read: the check, if it only reads.
        write: the check, if it publishes and changes things of its own.
    """

    name: str
    claim: str
    endpoint: str
    source: Source
    read: ReadCheck | None = None
    write: WriteCheck | None = None


def reads(endpoint: str, source: Source) -> Callable[[ReadCheck], Fact]:
    """Make a function a fact that changes nothing on the server."""

    def fact(check: ReadCheck) -> Fact:
        return Fact(
            name=_name(check), claim=_claim(check), endpoint=endpoint, source=source, read=check
        )

    return fact


def writes(endpoint: str, source: Source) -> Callable[[WriteCheck], Fact]:
    """Make a function a fact that changes a project of the server."""

    def fact(check: WriteCheck) -> Fact:
        return Fact(
            name=_name(check), claim=_claim(check), endpoint=endpoint, source=source, write=check
        )

    return fact


def _name(check: Callable[..., None]) -> str:
    return getattr(check, "__name__", "").replace("_", "-")


def _claim(check: Callable[..., None]) -> str:
    return " ".join((inspect.getdoc(check) or "").split())
