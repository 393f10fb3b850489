"""Where the facts come from, and how far each source can be trusted."""

from dataclasses import dataclass
from enum import StrEnum

import pytest


class Grade(StrEnum):
    """How well a fact is founded."""

    DOCUMENTED = "documented"
    RELIED_ON = "relied on"
    SEEN = "seen"
    ASSUMED = "assumed"


@dataclass(frozen=True)
class Source:
    """A source of facts.

    Attributes:
        name: what it is, in a few words.
        grade: whether Tableau states its facts, clients in use rely on them, somebody has seen them
            on a real server, or nobody knows.
    """

    name: str
    grade: Grade


REFERENCE = Source("Tableau's REST API reference and its tables of errors", Grade.DOCUMENTED)
SCHEMA = Source("Tableau's XML schema of the REST API", Grade.DOCUMENTED)
SCOPES = Source("Tableau's help on connected apps and their scopes", Grade.DOCUMENTED)
UPDATE_GUIDE = Source("Tableau's guide to updates of live-to-Hyper data", Grade.DOCUMENTED)
PUBLISH_GUIDE = Source("Tableau's guide to publishing .hyper files", Grade.DOCUMENTED)
KNOWLEDGE_BASE = Source("Tableau's knowledge base", Grade.DOCUMENTED)
VDS_HELP = Source("Tableau's help on VizQL Data Service", Grade.DOCUMENTED)
VDS_OPENAPI = Source("Tableau's OpenAPI of VizQL Data Service", Grade.DOCUMENTED)
TSC = Source("Tableau Server Client for Python", Grade.RELIED_ON)
TABCMD = Source("tabcmd", Grade.RELIED_ON)
SAMPLES = Source("Tableau's samples for the REST API", Grade.RELIED_ON)
MCP = Source("Tableau's MCP server", Grade.RELIED_ON)
DAGSTER = Source("dagster-tableau", Grade.RELIED_ON)
MIGRATION_SDK = Source("Tableau's Migration SDK", Grade.RELIED_ON)
JSON_CLIENTS = Source("JSON clients of other makers", Grade.RELIED_ON)
TWB = Source("a workbook that Tableau has written", Grade.SEEN)
LIVE_TESTS = Source("test suites of other makers, run against real servers", Grade.SEEN)
LIVE_MESSAGES = Source("messages of real servers, published by their users", Grade.SEEN)
NOBODY = Source("no public statement: the cautious choice", Grade.ASSUMED)


def fact(endpoint: str, source: Source, **cases: str | tuple[object, ...]) -> pytest.MarkDecorator:
    """Mark a test as a fact about an endpoint; its docstring is the claim.

    Facts that differ in values alone are cases of one test. Each has a name, and the values of the
    test's keyword-only parameters, which the docstring names in braces. Values in
    one text stand before and after ": " and " -> ".
    """
    return pytest.mark.fact(endpoint, source, **cases)
