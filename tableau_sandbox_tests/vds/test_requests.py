"""Bodies of requests as a client writes them, and what the parser says to them."""

import copy
import json
from collections.abc import Iterator
from typing import Any

import pytest

from tableau_sandbox.errors import RestError
from tableau_sandbox.vds.requests import MetadataRequest, QueryRequest, parse_request

# Every key that has an effect, or none that matters.
FLAGS = (
    *("debug", "bypassMetadataCache", "interpretFieldCaptionsAsFieldNames", "withNewSession"),
    *("includeHiddenFields", "includeGroupFormulas"),
)
OFF = dict.fromkeys(("disaggregate", "returnServerSentEvents"), False)
CONNECTION = {"connectionLuid": "c", "connectionUsername": "u", "connectionPassword": "p"}
FIELD = {"fieldCaption": "n", "fieldAlias": "m", "calculation": "COUNT([a])"}
FULL: dict[str, Any] = {
    "datasource": {"datasourceLuid": "1a2a3b4b", "connections": [CONNECTION]},
    "options": dict.fromkeys(FLAGS, True) | OFF | {"returnFormat": "ARRAYS", "rowLimit": 1},
    "query": {"fields": [FIELD], "filters": [], "parameters": []},
}
NEEDED = {"connectionUsername", "connectionPassword", "datasourceLuid", "fieldCaption"}
NEEDED |= {"datasource", "query", "fields"}
# What real servers also know.
GAPS: list[tuple[str, str, Any]] = [
    ("query", "filters", [{"field": {"fieldCaption": "a"}}]),
    ("query", "parameters", [{"parameterCaption": "p", "value": 1}]),
    ("options", "disaggregate", True),
    ("options", "returnServerSentEvents", True),
    ("field", "binSize", 1.5),
    ("field", "tableCalculation", {}),
    ("field", "nestedTableCalculations", []),
    ("field", "maxDecimalPlaces", 0),
    ("field", "sortDirection", "DESC"),
    ("field", "sortPriority", 1),
]


def refusal(sent: Any) -> RestError | None:
    """What the parser says to a query, which is bytes or a value of JSON."""
    body = sent if isinstance(sent, bytes) else json.dumps(sent).encode()
    try:
        parse_request(body, QueryRequest, "20262")
    except RestError as error:
        return error
    return None


def code(sent: Any) -> str | None:
    return (error := refusal(sent)) and error.code


def places(part: Any) -> Iterator[tuple[Any, Any]]:
    """All places of values in a JSON value, from the outermost: what holds them, and the key."""
    for key in [*part] if isinstance(part, dict) else range(len(part)):
        yield part, key
        if isinstance(part[key], dict | list):
            yield from places(part[key])


def test_strictness():
    """Prevents: an unknown key, a missing one, or another type passes, which servers refuse."""
    sent = copy.deepcopy(FULL)
    assert code(sent) is None
    for part, key in [*places(sent)]:
        value = part[key]
        for wrong in ("?", 1, 1.5, True, None, [], {}, ["?"], {"?": 1}):
            if type(wrong) is not type(value) or wrong in (["?"], {"?": 1}):
                part[key] = wrong
                assert code(sent) == "400802", (key, wrong)
        part[key] = value
        if isinstance(part, dict):
            part["colour"] = 1
            assert code(sent) == "400802", key
            del part["colour"], part[key]
            assert code(sent) == ("400802" if key in NEEDED else None), key
            part[key] = value


@pytest.mark.parametrize(("where", "key", "used"), GAPS)
def test_what_is_not_emulated(where: str, key: str, used: Any):
    """Prevents: the sandbox ignores a part of a query, or calls the query malformed."""
    sent = copy.deepcopy(FULL)
    part = sent["query"]["fields"][0] if where == "field" else sent[where]
    for value, expected in ((used, "501000"), ("another type", "400802")):
        part[key] = value
        assert code(sent) == expected


def test_what_the_client_did_wrong_comes_first():
    """Prevents: a client that has to guess what it did wrong, or is told that it did nothing."""
    error = refusal({**FULL, "options": {"disaggregate": True}, "colour": "red"})
    assert error is not None
    assert (error.code, error.detail.partition(": ")[0]) == ("400802", "request.colour")


def test_metadata_takes_no_options_of_queries():
    """Prevents: a request passes that servers refuse, as it is that of another endpoint."""
    sent = {"datasource": FULL["datasource"], "options": {"rowLimit": 1}}
    with pytest.raises(RestError) as refused:
        parse_request(json.dumps(sent).encode(), MetadataRequest, "20262")
    assert refused.value.code == "400802"
