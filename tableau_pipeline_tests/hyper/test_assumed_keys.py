from pathlib import Path

import pytest
from tableauhyperapi import Connection, HyperProcess, Nullability, TableName

from tableau_pipeline.hyper.build import Relationship, build_extract
from tableau_pipeline.hyper.parquet import TableSource
from tableau_pipeline_tests.hyper.samples import constraints, source


@pytest.fixture
def flights(tmp_path: Path) -> TableSource:
    columns = {"carrier": ["AA", None], "origin": ["JFK", "LGA"], "dest": ["LGA", "XXX"]}
    return source(tmp_path / "flights", "flights", columns)


@pytest.fixture
def airports(tmp_path: Path) -> TableSource:
    return source(tmp_path / "airports", "airports", {"faa": ["JFK", "LGA"], "name": ["J", None]})


@pytest.fixture
def airlines(tmp_path: Path) -> TableSource:
    return source(tmp_path / "airlines", "airlines", {"carrier": ["AA"]})


def test_a_star_gets_one_key_for_each_dimension(
    flights: TableSource,
    airports: TableSource,
    airlines: TableSource,
    hyper: HyperProcess,
    tmp_path: Path,
) -> None:
    """Prevents tables that Tableau cannot relate, also where two columns point at one table."""
    relationships = [
        Relationship("flights", "airlines", (("carrier", "carrier"),)),
        Relationship("flights", "airports", (("origin", "faa"),)),
        Relationship("flights", "airports", (("dest", "faa"),)),
    ]
    extract = build_extract(
        hyper,
        tmp_path / "x.hyper",
        tables=[airlines, flights, airports],
        relationships=relationships,
    )
    # Assumed, not proved: a flight without a carrier and one to nowhere are both there.
    assert extract.rows["flights"] == 2
    assert constraints(hyper, extract.path) == [
        ("f", "flights", "airlines"),
        ("f", "flights", "airports"),
        ("f", "flights", "airports"),
        ("p", "airlines", ""),
        ("p", "airports", ""),
    ]


def test_only_key_columns_of_the_one_side_are_not_null(
    flights: TableSource, airports: TableSource, hyper: HyperProcess, tmp_path: Path
) -> None:
    """Prevents a build that fails on a NULL where one is allowed."""
    extract = build_extract(
        hyper,
        tmp_path / "x.hyper",
        tables=[flights, airports],
        relationships=[Relationship("flights", "airports", (("origin", "faa"),))],
    )
    with Connection(hyper.endpoint, extract.path) as connection:
        required = {
            (name, column.name.unescaped)
            for name in ("flights", "airports")
            for column in connection.catalog.get_table_definition(
                TableName("Extract", name)
            ).columns
            if column.nullability is Nullability.NOT_NULLABLE
        }
    assert required == {("airports", "faa")}


def test_a_key_may_have_several_columns(hyper: HyperProcess, tmp_path: Path) -> None:
    """Prevents composite keys that are cut to one column, or paired in the wrong order."""
    legs = source(tmp_path / "l", "legs", {"number": [1], "airline": ["AA"]})
    routes = source(tmp_path / "r", "routes", {"carrier": ["AA"], "flight": [1]})
    # The types of a pair must agree: paired by position among the columns, hyperd would refuse.
    relationship = Relationship("legs", "routes", (("number", "flight"), ("airline", "carrier")))
    extract = build_extract(
        hyper, tmp_path / "x.hyper", tables=[legs, routes], relationships=[relationship]
    )
    assert constraints(hyper, extract.path) == [("f", "legs", "routes"), ("p", "routes", "")]
