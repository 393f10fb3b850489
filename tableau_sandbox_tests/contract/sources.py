"""The sources of the facts, and how far each source can be trusted."""

import re
from collections.abc import Sequence
from enum import Enum, StrEnum
from string import Template
from textwrap import dedent

import pytest

from tableau_sandbox.http.app import API_ROUTES


class Grade(StrEnum):
    """How far a source can be trusted."""

    DOCUMENTED = "documented"
    RELIED_ON = "relied on"
    SEEN = "seen"
    ASSUMED = "assumed"


class Source(Enum):
    """The sources of the facts, each in a few words and with its grade.

    The grades, in the order of `Grade`: Tableau documents the facts, clients in use rely on them,
    others have seen them on a real server, or no source states them.
    """

    REFERENCE = "Tableau's REST API reference", Grade.DOCUMENTED
    SCHEMA = "Tableau's XML schema of the REST API", Grade.DOCUMENTED
    SCOPES = "Tableau's help on connected apps and their scopes", Grade.DOCUMENTED
    UPDATE_GUIDE = "Tableau's guide to live-to-Hyper updates", Grade.DOCUMENTED
    PUBLISH_GUIDE = "Tableau's guide to publishing .hyper files", Grade.DOCUMENTED
    KNOWLEDGE_BASE = "Tableau's knowledge base", Grade.DOCUMENTED
    VDS_HELP = "Tableau's help on VizQL Data Service", Grade.DOCUMENTED
    VDS_OPENAPI = "Tableau's OpenAPI of VizQL Data Service", Grade.DOCUMENTED
    TSC = "Tableau Server Client for Python", Grade.RELIED_ON
    TABCMD = "tabcmd", Grade.RELIED_ON
    SAMPLES = "Tableau's samples for the REST API", Grade.RELIED_ON
    MCP = "Tableau's MCP server", Grade.RELIED_ON
    DAGSTER = "dagster-tableau", Grade.RELIED_ON
    MIGRATION_SDK = "Tableau's Migration SDK", Grade.RELIED_ON
    JSON_CLIENTS = "JSON clients of other makers", Grade.RELIED_ON
    FILES = "files written by Tableau's products", Grade.SEEN
    LIVE_TESTS = "other makers' tests against real servers", Grade.SEEN
    LIVE_MESSAGES = "messages of real servers, posted by users", Grade.SEEN
    EMPLOYEES = "public statements of people at Tableau", Grade.SEEN
    UNSTATED = "no public statement: the cautious choice", Grade.ASSUMED


def fact(endpoint: str, source: Source, **cases: tuple[object, ...]) -> pytest.MarkDecorator:
    """Mark a test as a fact about an endpoint; the docstring of the test is the claim.

    Facts that differ only in values are cases of one test. Each case has a name, and values of the
    keyword-only parameters of the test. The docstring may name these parameters in braces.
    """
    return pytest.mark.fact(endpoint, source, **cases)


def asks(source: Source, facts: str, **parts: str) -> pytest.MarkDecorator:
    """Mark a test as facts about requests, which the test gets as `steps`.

    Each fact has its name, a colon and a request. The expected answer follows an arrow; without an
    arrow, the expected answer is 200. A semicolon begins another request of the fact. An indented
    line continues a request.

    Args:
        parts: the texts that replace `$names`.
    """
    found: list[tuple[str, list[str]]] = []
    for line in dedent(Template(facts).safe_substitute(parts)).strip().splitlines():
        if line.startswith("; "):
            found[-1][1].append(line[2:])
        elif line.startswith(" "):
            found[-1][1][-1] += f" {line.strip()}"
        else:
            name, request = line.split(": ", 1)
            found.append((name, [request]))
    steps = [(name, [each.split(" -> ") for each in requests]) for name, requests in found]
    return pytest.mark.asks(
        source,
        *((name, [(ask, *[*more, "200"][:1]) for ask, *more in each]) for name, each in steps),
    )


def endpoint_of(steps: Sequence[tuple[str, str]]) -> str:
    """Return the endpoint of the last change, or of the last request if nothing changes."""
    requests = [request.removeprefix("they ").split(" ")[:2] for request, _ in steps]
    changes = [request for request in requests if request[0] != "GET"]
    method, path = (changes or requests)[-1]
    path = path.partition("?")[0].removeprefix("/sites/{site}/")
    for name in ("shared", "new", "path", "theirs"):
        path = path.replace(f"{{{name}}}", "datasources/{datasource}")
    for route in API_ROUTES:
        pattern = route.pattern.removeprefix("sites/{site}/")
        if route.method == method and re.fullmatch(re.sub(r"{\w+}", "[^/]+", pattern), path):
            return f"{method} {route.pattern}"
    return f"{method} {path}"
