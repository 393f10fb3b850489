"""What is refused of models before anything is built or sent."""

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from tableau_pipeline.core.declaration import Table
from tableau_pipeline.core.journal import read_history
from tableau_pipeline.errors import Check, RefusedError
from tableau_pipeline.extracts.checks import contract_problems, spark_name
from tableau_pipeline.hyper.build import Relationship
from tableau_pipeline.hyper.types import Column, TypePolicy
from tableau_pipeline_tests.refresh.support.models import airlines, flights
from tableau_pipeline_tests.refresh.support.pipeline import Pipeline


def refusal(pipeline: Pipeline, *, signs_in: bool = False, **options: Any) -> str:
    """What a refresh is refused for; nothing is built, recorded or sent."""
    with pytest.raises(RefusedError) as caught:
        pipeline.run(**options)
    assert pipeline.extract_files() == []
    assert pipeline.journal.all_intents() == []
    assert read_history(pipeline.journal.records()).open_claims == []
    assert pipeline.sessions == (1 if signs_in else 0)
    assert pipeline.found() == []
    return str(caught.value)


@pytest.mark.parametrize("build_only", [False, True])
def test_model_without_snapshot(star: Pipeline, build_only: bool):
    """Prevents: a data source loses a table because its model was never materialized."""
    star.missing = {"airlines"}
    message = refusal(star, build_only=build_only)
    for part in ('Table "airlines"', 'model "airlines"', "Materialize", "`model:`"):
        assert part in message


@pytest.mark.parametrize(
    ("on", "named"),
    [
        ((("carier", "carrier"),), ('"flights"', '"carier"', "flight_id, carrier, delay")),
        ((("carrier", "code"),), ('"airlines"', '"code"', "carrier, name")),
    ],
)
def test_relationship_on_an_unknown_column(
    star: Pipeline, on: tuple[tuple[str, str], ...], named: tuple[str, ...]
):
    """Prevents: a misspelt column shows as an error of hyperd that names no relationship."""
    star.declare(relationships=(Relationship("flights", "airlines", on),))
    message = refusal(star)
    for part in ("Relationship flights -> airlines", *named):
        assert part in message


def test_unsupported_type(star: Pipeline):
    """Prevents: a column that Tableau cannot hold shows as an error of hyperd, or as garbage."""
    star.model("flights", flights(2, tags=pa.array([[1], [2]], pa.list_(pa.int64()))))
    message = refusal(star)
    for part in ('Table "flights"', 'column "tags"', "array<bigint>", "nested: json"):
        assert part in message


@pytest.mark.parametrize(
    ("codes", "phrase"),
    [
        (("AA", "UA", "AA"), "carrier is not unique, for instance AA (2 times)"),
        (("AA", None), "carrier is NULL in 1 row"),
    ],
)
@pytest.mark.parametrize("build_only", [False, True])
def test_one_side_without_a_key(
    star: Pipeline, codes: tuple[str | None, ...], phrase: str, build_only: bool
):
    """Prevents: every flight of a repeated carrier counts twice in all dashboards."""
    star.model("airlines", airlines(*codes))
    message = refusal(star, build_only=build_only, signs_in=not build_only)
    for part in ("flights -> airlines", 'table "airlines"', phrase, "fix the model"):
        assert part in message


def test_composite_key_may_repeat_its_parts(star: Pipeline):
    """Prevents: a key of two columns is refused because one of them repeats."""
    on = (("carrier", "carrier"), ("flight_id", "year"))
    star.declare(relationships=(Relationship("flights", "airlines", on),))
    years = pa.array([1, 1, 2, 2], pa.int64())
    star.model("airlines", airlines("AA", "UA", "AA", "UA").append_column("year", years))
    star.run()
    assert star.wrong() == []


def test_related_columns_of_different_types(star: Pipeline):
    """Prevents: a number related to a text shows as an error of hyperd that says neither."""
    star.declare(relationships=(Relationship("flights", "airlines", (("delay", "carrier"),)),))
    message = refusal(star)
    for part in ("flights -> airlines", "delay", "int", "carrier", "string"):
        assert part in message


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("BIGINT", "bigint"),
        ("long", "bigint"),
        ("Integer", "int"),
        ("decimal (10, 2)", "decimal(10,2)"),
        ("numeric(10,2)", "decimal(10,2)"),
        ("decimal", "decimal(10,0)"),
        ("array < int >", "array<int>"),
        ("struct<Id: int>", "struct<Id:int>"),
        ("string collate UTF8_LCASE", "string collate UTF8_LCASE"),
    ],
)
def test_types_by_all_their_names(written: str, name: str):
    """Prevents: a contract that is broken by the spelling of a type."""
    assert spark_name(written) == name


def test_all_differences_are_told_at_once(pipeline: Pipeline):
    """Prevents: as many runs as mistakes, or a column that nobody promised reaching a dashboard."""
    (table,) = pipeline.declaration.tables
    columns = (Column("flight_id", "int"), Column("carrier", "string"), Column("gate", "string"))
    pipeline.declare(tables=(replace(table, contract=columns),))
    with pytest.raises(RefusedError) as refused:
        pipeline.run()
    for part in ("gate (string) is missing", "flight_id is bigint, not int", "is not in it"):
        assert part in refused.value.failed[Check.SCHEMA]
    assert pipeline.found() == []


def test_what_is_declared_of_types_is_no_difference():
    """Prevents: a contract that a table breaks by its own declaration of time zones."""
    types = TypePolicy(timestamps="with_time_zone")
    table = Table("t", "t", contract=(Column("at", "timestamp"),))
    found = [types.apply(Column("at", "timestamp"))]
    assert list(contract_problems(table, found, types)) == []
