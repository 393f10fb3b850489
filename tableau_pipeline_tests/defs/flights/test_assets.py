"""The assets: what each reads and returns, and the run config of `raw_flights`."""

from pathlib import Path
from types import SimpleNamespace

import dagster as dg
import pytest
from pydantic import ValidationError
from pyspark.sql import DataFrame, SparkSession

from tableau_pipeline.defs.flights import models, raw


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
