"""Queries that VizQL Data Service refuses, although their form is right."""

from collections.abc import Sequence
from typing import Any

from tableau_sandbox.facts.fact import reads, writes
from tableau_sandbox.facts.playground import Playground
from tableau_sandbox.facts.scene import Scene
from tableau_sandbox.facts.sources import MCP, VDS_HELP, VDS_OPENAPI
from tableau_sandbox.facts.vds.asking import call, query, refused

_QUERY = "POST vizql-data-service/query-datasource"
_RULES = ("400803", "400802")
_COUNT = {"fieldCaption": "name", "function": "COUNT"}
_NAME = {"fieldCaption": "name"}
_ID = {"fieldCaption": "id", "function": "SUM"}


def _refuses(play: Playground, *fields: dict[str, Any], filters: Sequence[Any] = ()) -> None:
    luid = play.shared.luid
    body: dict[str, Any] = {"fields": fields}
    if filters:
        body["filters"] = filters
    refused(query(play.scene, luid, query=body), *_RULES)


@writes(_QUERY, VDS_OPENAPI)
def query_without_fields(play: Playground) -> None:
    """A query without a field is refused with 400802 or 400803."""
    _refuses(play)


@writes(_QUERY, VDS_HELP)
def field_asked_for_twice(play: Playground) -> None:
    """A query with the same field twice is refused with 400802 or 400803."""
    _refuses(play, _NAME, _NAME)


@writes(_QUERY, VDS_HELP)
def equal_sort_priorities(play: Playground) -> None:
    """Two fields with the same sort priority are refused with 400802 or 400803."""
    _refuses(play, {**_NAME, "sortPriority": 1}, {**_ID, "sortPriority": 1})


@writes(_QUERY, VDS_OPENAPI)
def function_and_calculation(play: Playground) -> None:
    """A field with a function and a calculation is refused with 400802 or 400803."""
    _refuses(play, {"fieldCaption": "n", "function": "SUM", "calculation": "SUM([id])"})


@writes(_QUERY, MCP)
def calculation_named_like_a_field(play: Playground) -> None:
    """A calculation with the name of a field is refused with 400802 or 400803."""
    _refuses(play, {"fieldCaption": "id", "calculation": "SUM([id])"})


@writes(_QUERY, MCP)
def sum_of_texts(play: Playground) -> None:
    """A function that does not go with the type of its field is refused with 400802 or 400803."""
    _refuses(play, {"fieldCaption": "name", "function": "SUM"})


@writes(_QUERY, VDS_OPENAPI)
def unknown_function_of_a_query(play: Playground) -> None:
    """A function that does not exist is refused with 400802 or 400803."""
    _refuses(play, {"fieldCaption": "name", "function": "FIRST"})


@writes(_QUERY, MCP)
def two_filters_of_a_field(play: Playground) -> None:
    """Two filters for one field are refused with 400802 or 400803."""
    one = {"field": _NAME, "filterType": "SET", "values": ["one"]}
    _refuses(play, _COUNT, filters=[one, {**one, "values": ["two"]}])


@writes(_QUERY, MCP)
def filter_by_no_values(play: Playground) -> None:
    """A filter by a set without values is refused with 400802 or 400803."""
    _refuses(play, _COUNT, filters=[{"field": _NAME, "filterType": "SET", "values": []}])


@writes(_QUERY, MCP)
def match_of_nothing(play: Playground) -> None:
    """A filter by texts that names no text is refused with 400802 or 400803."""
    _refuses(play, _COUNT, filters=[{"field": _NAME, "filterType": "MATCH"}])


@writes(_QUERY, VDS_OPENAPI)
def unknown_filter_of_a_query(play: Playground) -> None:
    """A kind of filter that does not exist is refused with 400802 or 400803."""
    _refuses(play, _COUNT, filters=[{"field": _NAME, "filterType": "NEAR", "values": ["one"]}])


@reads("POST vizql-data-service/read-metadata", MCP)
def service_with_an_unknown_session(scene: Scene) -> None:
    """VizQL Data Service refuses an unknown session with 401002."""
    body = {"datasource": {"datasourceLuid": scene.site}}
    token = f"unknown|unknown|{scene.site}"
    refused(call(scene, "read-metadata", body, token=token), "401002")
