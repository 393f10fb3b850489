"""The transformations on all the real flights, checked against the raw file as pandas reads it."""

from collections.abc import Iterator
from datetime import date
from pathlib import Path

import pandas as pd
import pytest
from pyspark.sql import DataFrame, SparkSession

from tableau_pipeline.defs.flights import sources, transformations
from tableau_pipeline.snapshots.store import SnapshotStore
from tableau_pipeline_tests.conftest import Story

# An example: `make test` publishes it in demo/test_story.py.
pytestmark = pytest.mark.slow
MINUTE = pd.Timedelta(minutes=1)


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("data")


@pytest.fixture(scope="module")
def flights(spark: SparkSession, data_dir: Path) -> Iterator[DataFrame]:
    cached = transformations.flights(sources.read(spark, "flights", data_dir=data_dir)).cache()
    yield cached
    cached.unpersist()


@pytest.fixture(scope="module")
def derived(flights: DataFrame) -> pd.DataFrame:
    return flights.toArrow().to_pandas(date_as_object=False)


@pytest.fixture(scope="module")
def raw(data_dir: Path, derived: pd.DataFrame) -> pd.DataFrame:
    """The raw file, in the order of its lines: that of `derived`."""
    file = sources.csv_file("flights", data_dir)
    return pd.read_csv(file, keep_default_na=False, na_values=["NA"])


def test_renamed_columns_keep_their_values(raw: pd.DataFrame, derived: pd.DataFrame) -> None:
    """Prevents two columns of one type from changing places."""
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
    expected = raw[list(names)].rename(columns=names)
    found = derived[expected.columns].where(derived.notna())  # NaN for None, as pandas reads it
    pd.testing.assert_frame_equal(found, expected, check_dtype=False)
    day = pd.to_datetime(raw[["year", "month", "day"]])
    assert (derived.flight_date == day).all()


def test_cancelled_flights_have_no_departure(raw: pd.DataFrame, derived: pd.DataFrame) -> None:
    """Prevents cancelled flights from being dropped, or from counting as punctual."""
    assert (derived.cancelled == raw.dep_time.isna()).all()
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
    raw: pd.DataFrame, derived: pd.DataFrame, moment: str, hhmm: str
) -> None:
    """Prevents shifts by a time zone, and the minutes of 2400 or 517 from being misread."""
    clock = derived[moment].dt
    pd.testing.assert_series_equal(
        clock.hour * 100 + clock.minute,
        raw[hhmm] % 2400,
        check_names=False,
        check_dtype=False,
    )


def test_arrivals_fall_on_the_right_day(derived: pd.DataFrame) -> None:
    """Prevents flights past midnight from landing a day early, and others a day late."""
    known = derived[derived.arrival_delay.notna()]
    assert len(known) == 327_346
    assert (known.arrival == known.scheduled_arrival + known.arrival_delay * MINUTE).all()
    overnight = derived.scheduled_arrival.dt.date > derived.scheduled_departure.dt.date
    assert overnight.sum() == 6_078


def test_utc_departure_is_the_local_one_in_new_york(derived: pd.DataFrame) -> None:
    """Prevents an hour's error for half the year, and lost minutes."""
    local = derived.scheduled_departure.dt.tz_localize("America/New_York")
    assert (derived.scheduled_departure_utc == local).all()


def test_daily_departures_add_up(flights: DataFrame, derived: pd.DataFrame) -> None:
    """Prevents lost and doubled flights in the totals, and averages that count cancelled ones."""
    daily = transformations.daily_departures(flights).toArrow().to_pandas(date_as_object=False)
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
    """Prevents a division by zero, or a delay of 0, on a day when every flight was cancelled."""
    cancelled = spark.sql(
        "SELECT DATE '2013-02-09' flight_date, 'LGA' origin, true cancelled, "
        "CAST(NULL AS INT) departure_delay"
    )
    assert transformations.daily_departures(cancelled).collect() == [
        (date(2013, 2, 9), "LGA", 1, 1, 0, None, None)
    ]


def test_every_column_is_described(story: Story):
    """Prevents: descriptions of columns that a model no longer has, or of other types."""
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
