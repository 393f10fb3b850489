import json
from datetime import UTC, datetime
from enum import Enum
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from tableau_pipeline.core.journal import (
    Claim,
    ClaimRelease,
    Intent,
    Record,
    Recovered,
    read_record,
)
from tableau_pipeline.core.snapshot import Fingerprint
from tableau_pipeline.errors import RefusedError
from tableau_pipeline.hyper.types import Column
from tableau_pipeline_tests.refresh.support.models import airlines, flights, snapshot

TEXT = st.text(max_size=8)
INSTANT = st.datetimes(min_value=datetime(2000, 1, 1), timezones=st.just(UTC))
# 10^10 rows with the largest hash.
SUM = st.integers(-(2**97), 2**97)
PLAIN = {
    str: TEXT,
    int: st.integers(0, 2**40),
    float: st.floats(0, 30),
    bool: st.booleans(),
    datetime: INSTANT,
    NoneType: st.none(),
    Column: st.builds(Column, TEXT, TEXT),
}
# Of these, each release and each kind of record has one value.
FIXED = {"kind", "format", "release", "algorithm"}


def values(kind: Any) -> st.SearchStrategy[Any]:
    """All values that a field of a record may have, by its type."""
    arguments = get_args(kind)
    match get_origin(kind) or kind:
        case origin if origin in (Annotated, Union, UnionType):
            of = arguments[:1] if origin is Annotated else arguments
            return st.one_of(*map(values, of))
        case origin if origin is tuple and Ellipsis not in arguments:
            return st.tuples(*map(values, arguments))
        case origin if origin is tuple:
            return st.lists(values(arguments[0]), max_size=2).map(tuple)
        case origin if origin is frozenset:
            return st.frozensets(values(arguments[0]), max_size=2)
        case origin if origin is dict:
            return st.dictionaries(*map(values, arguments), max_size=2)
        case origin if origin is Literal:
            return st.sampled_from(arguments)
        case origin if issubclass(origin, Enum):
            return st.sampled_from(origin)
        case origin if issubclass(origin, BaseModel) and origin is not Fingerprint:
            fields = origin.model_fields.items()
            given = {name: values(each.annotation) for name, each in fields if name not in FIXED}
            return st.builds(origin, **given)
    return PLAIN[kind]


FINGERPRINT = st.builds(Fingerprint, rows=st.integers(0, 10**12), hash_sum=SUM)
PLAIN[Fingerprint] = FINGERPRINT
RECORD = st.one_of(*map(values, (Intent, Claim, ClaimRelease, Recovered)))


@given(record=RECORD)
def test_records_survive_json(record: BaseModel):
    """Prevents: what one run records reads otherwise in the next, or as another kind of record."""
    kept = json.loads(json.dumps(record.model_dump(mode="json")))
    assert read_record(kept, repair="") == record


@given(hash_sum=st.integers(-(2**97), 2**97))
def test_sums_survive_readers_that_know_floats_only(hash_sum: int):
    """Prevents: a browser or Dagster's GraphQL rounds a sum, and all content looks changed."""
    kept = Fingerprint(rows=1, hash_sum=hash_sum).model_dump(mode="json")
    read = json.loads(json.dumps(kept), parse_int=float)
    assert Fingerprint.model_validate(read).hash_sum == hash_sum


@given(record=RECORD, change=st.sampled_from([{"format": 4}, {"format": 4, "windows": []}]))
def test_records_of_a_later_release_are_refused_by_name(record: Record, change: dict):
    """Prevents: a claim or an open request of a newer release is overlooked in an upgrade."""
    stored = record.model_dump(mode="json") | change | {"release": "9.8.7"}
    with pytest.raises(RefusedError, match=r"release 9\.8\.7 of tableau_pipeline wrote it"):
        read_record(stored, repair="")


@pytest.mark.parametrize("stored", [None, [], {}, {"kind": "claim"}, {"format": 3}, "x"], ids=repr)
def test_what_is_no_record_is_refused(stored: object):
    """Prevents: a damaged claim is overlooked."""
    with pytest.raises(RefusedError, match="damaged"):
        read_record(stored, repair="")


def test_data_version_tells_contents_apart(tmp_path: Path):
    """Prevents: Dagster takes new content for old, or starts downstream work for nothing."""
    rows = flights(3)
    same = [snapshot(tmp_path, rows), snapshot(tmp_path, rows.slice(0))]
    others = [
        flights(3, delay=1),
        airlines(),
        rows.rename_columns(["id", "carrier", "delay"]),
        rows.select(["carrier", "flight_id", "delay"]),
        rows.cast(rows.schema.set(2, pa.field("delay", pa.int64()))),
    ]
    different = [same[0], *(snapshot(tmp_path, each) for each in others)]
    assert len({each.data_version for each in same}) == 1
    assert len({each.data_version for each in different}) == 6
