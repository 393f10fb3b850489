import zipfile
from pathlib import Path

import pytest
import tableauserverclient as tsc

from tableau_sandbox_tests.samples import (
    execute,
    publish,
    rows_on_server,
    tds_of,
    wrapped_extract,
    write_package,
)

TWO = [[1, "one"], [2, "two"]]


def test_uploaded_package_is_served_back(server: tsc.Server, tmp_path: Path, two_rows: Path):
    # Prevents: the model that comes with a package is replaced by a made-up one.
    tds = (
        "<?xml version='1.0' encoding='utf-8' ?><datasource version='18.1'><connection"
        " class='federated'><named-connections><named-connection name='h'><connection"
        " class='hyper' dbname='Data/mine/data.hyper'/></named-connection></named-connections>"
        "</connection><column caption='My calculation' name='[c]'/></datasource>"
    )
    package = write_package(tmp_path / "p.tdsx", {"My.tds": tds, "Data/mine/data.hyper": two_rows})
    published = publish(server, package)
    assert rows_on_server(server, published.id) == TWO
    assert tds_of(server, published.id, tmp_path) == tds
    downloaded = server.datasources.download(published.id, str(tmp_path / "again"))
    assert zipfile.ZipFile(downloaded).namelist() == ["Flights.tds", "Data/mine/data.hyper"]


def test_package_of_several_tables(server: tsc.Server, tmp_path: Path):
    """Prevents: a package whose own model relates its tables is refused for lack of keys."""
    several = execute(
        tmp_path / "several.hyper",
        'CREATE TABLE "Extract".flights (carrier TEXT)',
        'CREATE TABLE "Extract".carriers (carrier TEXT, name TEXT)',
    )
    with pytest.raises(tsc.ServerResponseError, match=r"400011.*\n.*exactly one fact table"):
        publish(server, several)
    tds = (
        "<datasource version='18.1'><connection class='federated'><named-connections>"
        "<named-connection name='h'><connection class='hyper' dbname='Data/d.hyper'/>"
        "</named-connection></named-connections></connection></datasource>"
    )
    package = write_package(tmp_path / "p.tdsx", {"p.tds": tds, "Data/d.hyper": several})
    published = publish(server, package)
    assert rows_on_server(server, published.id, 'SELECT name FROM "Extract".carriers') == []
    assert tds_of(server, published.id, tmp_path) == tds


def test_package_without_tables(server: tsc.Server, tmp_path: Path):
    """Prevents: a package whose data file is empty is published."""
    empty = execute(tmp_path / "empty.hyper")
    with pytest.raises(tsc.ServerResponseError, match=r"400011.*\n.*contains no tables"):
        publish(server, wrapped_extract(tmp_path / "p.tdsx", empty))


@pytest.mark.parametrize(
    ("members", "reason"),
    [
        ({}, "holds 0 .tds files"),
        ({"a.tds": "<datasource/>"}, "holds 0 .hyper files"),
        ({"a.tds": "", "b.tds": "", "c.hyper": ""}, "holds 2 .tds files"),
        ({"a.tds": "<x/>", "b.hyper": ""}, "begins with 'x'"),
        ({"a.tds": "<datasource", "b.hyper": ""}, "not well-formed XML"),
        ({"a.tds": "<datasource/>", "b.hyper": ""}, "names no connection"),
    ],
)
def test_incomplete_package(
    server: tsc.Server, tmp_path: Path, members: dict[str, str], reason: str
):
    # Prevents: a package without data, or without a model, is published.
    with pytest.raises(tsc.ServerResponseError, match=rf"400011.*\n.*{reason}"):
        publish(server, write_package(tmp_path / "p.tdsx", members))


def test_extract_in_a_package(server: tsc.Server, tmp_path: Path, one_row: Path):
    # Prevents: an extract of another database passes for data that live in Hyper.
    package = wrapped_extract(tmp_path / "p.tdsx", one_row)
    published = publish(server, package)
    assert (published.datasource_type, published.has_extracts) == ("postgres", True)
    assert [item.id for item in server.datasources.filter(has_extracts=True)] == [published.id]


def test_damaged_package(server: tsc.Server, tmp_path: Path, one_row: Path):
    # Prevents: damage inside the compressed data ends in an error of the sandbox itself.
    file = tmp_path / "p.tdsx"
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.tds", "<datasource/>")
        archive.write(one_row, "Data/a.hyper")
    whole = file.read_bytes()
    middle = len(whole) // 2
    file.write_bytes(whole[:middle] + bytes(200) + whole[middle + 200 :])
    with pytest.raises(tsc.ServerResponseError, match="400011"):
        publish(server, file)
