"""What a data source declares to make of types, through publishes and updates."""

import struct
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tableau_pipeline.core.declaration import Append, Diff, Policy, Retain
from tableau_pipeline.errors import RefusedError
from tableau_pipeline.refresh.plan import UpdateTables
from tableau_pipeline_tests.refresh.support.models import flights
from tableau_pipeline_tests.refresh.support.pipeline import Pipeline, published_rows

PARIS = ZoneInfo("Europe/Paris")
# The night in which Paris had the hour from 02:00 twice.
NIGHT = datetime(2024, 10, 26, 22, tzinfo=UTC)


def departures(count: int, *, late: int = 0) -> pa.Table:
    """One flight each half hour; the last ones may leave `late` minutes late."""
    moments = [NIGHT + timedelta(minutes=30 * number) for number in range(count)]
    moments[-2:] = [moment + timedelta(minutes=late) for moment in moments[-2:]]
    return flights(count, departs=pa.array(moments, pa.timestamp("us", "UTC")))


def published(pipeline: Pipeline, column: str = "departs") -> list:
    """The values of a column on the server, by the number of the flight."""
    (item,) = pipeline.found()
    rows = published_rows(pipeline.eyes, str(item.id))
    return rows.sort_by("flight_id")[column].to_pylist()


def in_paris(rows: pa.Table) -> list[datetime]:
    moments = rows["departs"].to_pylist()
    return [each.astimezone(PARIS).replace(tzinfo=None) for each in moments]


@pytest.mark.few_variants(1)
@pytest.mark.parametrize(
    ("policy", "more"),
    [
        (Diff(("flight_id",)), {}),
        (Append("flight_id", 2), {}),
        (Append("departs", "3 hours"), {}),
        (Diff(("flight_id",)), {"retain": Retain("departs", 1, "max")}),
    ],
)
def test_wall_clock_of_a_zone(pipeline: Pipeline, policy: Policy, more: dict):
    """Prevents: an update ships clocks of another zone than the first publish did."""
    pipeline.declare(timestamps=PARIS)
    pipeline.policy(policy, **more)
    for content in (departures(10), departures(12, late=15)):
        pipeline.model("flights", content)
        report = pipeline.run()
        assert published(pipeline) == in_paris(content)
    assert isinstance(report.plan, UpdateTables)
    assert report.tables["flights"].whole is None


def test_instants_with_their_zone(pipeline: Pipeline):
    """Prevents: the declared type is lost in an update, or the server refuses it."""
    pipeline.declare(timestamps="with_time_zone")
    pipeline.policy(Append("departs", "3 hours"))
    for content in (departures(10), departures(12, late=15)):
        pipeline.model("flights", content)
        report = pipeline.run()
        assert published(pipeline) == content["departs"].to_pylist()
    assert report.tables["flights"].whole is None


@pytest.mark.slow
def test_floats_are_kept_when_asked(new_pipeline: Callable[..., Pipeline]):
    """Prevents: 32-bit floats that are not those of the model, in a file of the wrong version."""
    pipeline = new_pipeline(floats="real")
    pipeline.policy(Diff(("flight_id",)))
    for count in (8, 9):
        speed = pa.array([number / 10 for number in range(count)], pa.float32())
        pipeline.model("flights", flights(count, speed=speed))
        report = pipeline.run()
        assert report.extract
        assert report.extract.version == 4
        assert published(pipeline, "speed") == speed.to_pylist()


@pytest.mark.parametrize(
    ("values", "floats", "limit", "phrase"),
    [
        (pa.array([1, 2], pa.decimal128(19, 0)), "double", 2, r"decimal\(19,0\) needs versio"),
        (pa.array([1, 2], pa.float32()), "real", 3, "float as real needs ver"),
    ],
)
def test_a_file_too_new_for_its_readers(
    pipeline: Pipeline, values: pa.Array, floats: str, limit: int, phrase: str
):
    """Prevents: a new column makes a data source that the company's Tableau does not open."""
    pipeline.declare(floats=floats, max_database_version=limit)
    pipeline.model("flights", flights(2, wide=values))
    with pytest.raises(RefusedError, match=phrase) as refusal:
        pipeline.run()
    for part in ('Table "flights", column "wide"', "later", f"max_database_version is {limit}"):
        assert part in str(refusal.value)
    assert pipeline.found() == []
    pipeline.declare(max_database_version=limit + 1)
    pipeline.run()


def _text(data: bytes) -> pa.Array:
    """A text of these bytes, whatever they are."""
    offsets = pa.py_buffer(struct.pack("<ii", 0, len(data)))
    return pa.Array.from_buffers(pa.string(), 1, [None, offsets, pa.py_buffer(data)])


@pytest.mark.few_variants(2)
@pytest.mark.parametrize(
    ("values", "reason"),
    [
        (_text(b"\xff\xfe"), "UTF-8"),
        # What Java's half of an astral character is in UTF-8.
        (_text(b"\xed\xa0\x80"), "UTF-8"),
        (pa.array([-(2**62)], pa.int64()).cast(pa.timestamp("us")), "Timestamp"),
        (pa.array([2**31 - 1], pa.int32()).cast(pa.date32()), "Date"),
    ],
)
@pytest.mark.parametrize("build_only", [False, True])
def test_values_without_a_place(
    pipeline: Pipeline, values: pa.Array, reason: str, *, build_only: bool
):
    """Prevents: an error of hyperd that names no column, after half of the work."""
    written = pipeline.model("flights", flights(1, odd=pa.nulls(1, values.type)))
    (path,) = written.paths
    rows = pq.read_table(path, partitioning=None)
    pq.write_table(rows.set_column(rows.schema.get_field_index("odd"), "odd", values), path)
    with pytest.raises(RefusedError, match='table "flights", column "odd": .*' + reason):
        pipeline.run(build_only=build_only)
    assert pipeline.found() == []
    assert pipeline.extract_files() == []
