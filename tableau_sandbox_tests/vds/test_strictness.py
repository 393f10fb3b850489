import copy
from collections.abc import Iterator
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tableau_sandbox.vds.schema import Schema
from tableau_sandbox_tests.vds.bodies import (
    FIELD,
    FULL,
    refusal,
)

Path = tuple[str | int, ...]


def places(value: Any, path: Path = ()) -> Iterator[Path]:
    """The paths of all values in a JSON value, from the outermost."""
    yield path
    if isinstance(value, dict | list):
        for key in value if isinstance(value, dict) else range(len(value)):
            yield from places(value[key], (*path, key))


def at(value: Any, path: Path) -> Any:
    for key in path:
        value = value[key]
    return value


def changed(path: Path, value: Any) -> Any:
    """The full request with another value at a place."""
    sent = copy.deepcopy({"request": FULL})
    *parents, key = ("request", *path)
    at(sent, tuple(parents))[key] = value
    return sent["request"]


PLACES = list(places(FULL))
OBJECTS = [path for path in PLACES if isinstance(at(FULL, path), dict)]
TEXTS = {
    "anchorDate",
    "calculation",
    "connectionLuid",
    "connectionPassword",
    "connectionUsername",
    "contains",
    "datasourceLuid",
    "endsWith",
    "fieldAlias",
    "fieldCaption",
    "parameterCaption",
    "startsWith",
}
WRONG = ("?", 1, 1.5, True, None, [], {}, ["?"], {"?": 1})


@given(path=st.sampled_from(OBJECTS), key=st.text(min_size=1), value=st.none() | st.integers())
def test_unknown_keys(path: Path, key: str, value: Any):
    """Prevents: an unknown key passes somewhere, which real servers refuse everywhere."""
    sent = copy.deepcopy(FULL)
    if key not in at(sent, path) and "\0" not in key:
        at(sent, path)[key] = value
        assert refusal(sent) == "400802"


def test_values_of_another_type():
    """Prevents: a value of the wrong type, or an unknown word, passes somewhere."""
    for path in PLACES[1:]:
        for wrong in WRONG:
            if not may_be(path, wrong):
                assert refusal(changed(path, wrong)) == "400802", (path, wrong)


def may_be(path: Path, value: Any) -> bool:
    """Whether a value has a right type for its place."""
    *_, key = [part for part in path if isinstance(part, str)]
    if key in ("values", "value") or (key == "nestedTableCalculations" and value is None):
        return True
    if key in ("binSize", "min", "max"):
        return type(value) in (int, float)
    if isinstance(value, str):
        return key in TEXTS
    return type(value) is type(at(FULL, path))


NEEDED = {
    "comparison",
    "connectionPassword",
    "connectionUsername",
    "datasource",
    "datasourceLuid",
    "dateRangeType",
    "dimensions",
    "field",
    "fieldCaption",
    "fieldToMeasure",
    "fields",
    "filterType",
    "howMany",
    "parameterCaption",
    "periodType",
    "quantitativeFilterType",
    "query",
    "tableCalcType",
    "tableCalculation",
    "value",
    "values",
}


def test_missing_keys():
    """Prevents: a request passes without a key that is required, or fails without another."""
    for path in PLACES:
        if path and isinstance(path[-1], str):
            sent, (*parents, key) = copy.deepcopy(FULL), path
            del at(sent, tuple(parents))[key]
            assert refusal(sent) == refusal_without(key, parents), path


def refusal_without(key: str, parents: list[str | int]) -> str | None:
    """The code with which a request is refused that lacks a key in an object."""
    if key in ("rangeN", "condition"):
        return "400803"
    if key in ("function", "direction"):
        return "400802" if parents[-1] in ("condition", "customSort") else None
    if key == "calculation":
        return "400802" if parents[-1] == "field" else None
    return "400802" if key in NEEDED else None


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from([*FULL["query"], *FIELD, "field", "x"]), inner, max_size=3
        )
    ),
    max_leaves=10,
)


@given(path=st.sampled_from(PLACES), value=JSON, schema=st.sampled_from(Schema))
def test_only_refusals(path: Path, value: Any, schema: Schema):
    """Prevents: a request brings the sandbox down instead of being refused."""
    assert refusal(changed(path, value), schema) in (None, "400000", "400802", "400803", "501000")


@given(st.binary() | st.text().map(str.encode))
def test_any_bytes(sent: bytes):
    """Prevents: bytes bring the sandbox down instead of being refused."""
    assert refusal(sent) in ("400000", "400802")
