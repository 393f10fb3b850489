"""Bodies of requests as a client writes them, and what the parser says to them."""

import copy
import json
from collections.abc import Iterator
from typing import Any

import pytest

from tableau_sandbox.vds.errors import VdsError
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
# What real servers also know.
GAPS = (
    ("query.filters", [{"field": {"fieldCaption": "a"}}]),
    ("query.parameters", [{"parameterCaption": "p", "value": 1}]),
    ("options.disaggregate", True),
    ("options.returnServerSentEvents", True),
    ("query.fields.0.binSize", 1.5),
    ("query.fields.0.tableCalculation", {}),
    ("query.fields.0.nestedTableCalculations", []),
    ("query.fields.0.maxDecimalPlaces", 0),
    ("query.fields.0.sortDirection", "DESC"),
    ("query.fields.0.sortPriority", 1),
)


def refusal(sent: Any) -> VdsError | None:
    """What the parser says to a query, which is bytes or a value of JSON."""
    body = sent if isinstance(sent, bytes) else json.dumps(sent).encode()
    try:
        parse_request(body, QueryRequest, "20262")
    except VdsError as error:
        return error
    return None


def code(sent: Any) -> str | None:
    return (error := refusal(sent)) and error.code


def value_at(whole: Any, path: str) -> Any:
    for key in path.split("."):
        whole = whole[int(key) if key.isdigit() else key]
    return whole


def changed(path: str, value: Any) -> Any:
    """The full request with another value at a place; without the place for `...`."""
    sent = copy.deepcopy({"request": FULL})
    parents, _, key = f"request.{path}".rpartition(".")
    parent = value_at(sent, parents)
    if value is ...:
        del parent[key]
    else:
        parent[int(key) if isinstance(parent, list) else key] = value
    return sent["request"]


def places(value: Any, path: str) -> Iterator[str]:
    """The paths of all values in a JSON value, from the outermost."""
    yield path
    if isinstance(value, dict | list):
        for key in value if isinstance(value, dict) else range(len(value)):
            yield from places(value[key], f"{path}.{key}")


PLACES = [path for key, value in FULL.items() for path in places(value, key)]
NEEDED = {"connectionUsername", "connectionPassword", "datasourceLuid", "fieldCaption"}
NEEDED |= {"datasource", "query", "fields"}


@pytest.mark.parametrize("path", PLACES)
def test_strictness(path: str):
    """Prevents: an unknown key, a missing one, or another type passes, which servers refuse."""
    assert refusal(FULL) is None
    value, key = value_at(FULL, path), path.rpartition(".")[2]
    for wrong in ("?", 1, 1.5, True, None, [], {}, ["?"], {"?": 1}):
        if type(wrong) is not type(value) or wrong in (["?"], {"?": 1}):
            assert code(changed(path, wrong)) == "400802", wrong
    if isinstance(value, dict):
        assert code(changed(f"{path}.colour", 1)) == "400802"
    if not key.isdigit():
        assert code(changed(path, ...)) == ("400802" if key in NEEDED else None)


@pytest.mark.parametrize(("path", "used"), GAPS)
def test_what_is_not_emulated(path: str, used: Any):
    """Prevents: the sandbox ignores a part of a query, or calls the query malformed."""
    assert code(changed(path, used)) == "501000"
    assert code(changed(path, "another type")) == "400802"


def test_what_the_client_did_wrong_comes_first():
    """Prevents: a client that has to guess what it did wrong, or is told that it did nothing."""
    error = refusal({**changed("options.disaggregate", True), "colour": "red"})
    assert error is not None
    assert (error.code, error.message.partition(": ")[0]) == ("400802", "request.colour")


def test_metadata_takes_no_options_of_queries():
    """Prevents: a request passes that servers refuse, as it is that of another endpoint."""
    sent = {"datasource": FULL["datasource"], "options": {"rowLimit": 1}}
    with pytest.raises(VdsError) as refused:
        parse_request(json.dumps(sent).encode(), MetadataRequest, "20262")
    assert refused.value.code == "400802"


def test_what_is_no_json():
    """Prevents: a body that is no JSON is called one of another form; others are that."""
    assert {code(sent) for sent in (b"", b"{", b"\xff", b'{"a":1,"a":1}', b"[NaN]")} == {"400000"}
    assert {code(sent) for sent in ([], None, "text", 1, {})} == {"400802"}
