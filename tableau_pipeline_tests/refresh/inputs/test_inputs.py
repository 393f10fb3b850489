from typing import Any

import pyarrow as pa
import pytest

from tableau_pipeline.core.journal import read_history
from tableau_pipeline.errors import RefusedError
from tableau_pipeline.hyper.tables import Relationship
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


@pytest.mark.parametrize("publish", [True, False])
def test_model_without_snapshot(star: Pipeline, publish: bool):
    """Prevents: a data source loses a table because its model was never materialized."""
    star.missing = {"airlines"}
    message = refusal(star, publish=publish)
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
@pytest.mark.parametrize("publish", [True, False])
def test_one_side_without_a_key(
    star: Pipeline, codes: tuple[str | None, ...], phrase: str, publish: bool
):
    """Prevents: every flight of a repeated carrier counts twice in all dashboards."""
    star.model("airlines", airlines(*codes))
    message = refusal(star, publish=publish, signs_in=publish)
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
