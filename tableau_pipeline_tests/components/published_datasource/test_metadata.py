"""What Dagster shows of declared and inherited metadata."""

from collections.abc import Mapping
from typing import Any

import dagster as dg
import pytest

from tableau_pipeline.components.inherited import inherited_fields
from tableau_pipeline.core.declaration import Declaration, Table
from tableau_pipeline.errors import RefusedError
from tableau_pipeline.metadata.fields import Calculation, FieldMetadata
from tableau_pipeline_tests.components.published_datasource.test_checks import checks
from tableau_pipeline_tests.components.support.location import MODEL, Location, metadata_of
from tableau_pipeline_tests.refresh.support.other_users import edits_of


def declared(caption: str) -> dict[str, Any]:
    field = FieldMetadata(name="delay", caption=caption, description="Minutes late.")
    twice = Calculation(name="Twice", formula="SUM([delay]) * 2")
    return {
        "tables": (Table("flights", MODEL, fields=(field,)),),
        "calculations": (twice,),
    }


def test_fields_and_their_conflicts(location: Location):
    """Prevents: a conflict, or what became of it, that nobody sees; a check that always passes."""
    location.model()
    first = location.refresh("shown", declared=declared("Delay"))
    found = metadata_of(first)
    assert "| caption of delay | Delay |  | published |" in found["fields"]
    (delay,) = [each for each in found["dagster/column_schema"].columns if each.name == "delay"]
    assert delay.description == "Minutes late."
    assert checks(first)["metadata"][0]
    edits_of(location.sandbox, "shown", lambda tds: tds.replace(b'"Delay"', b'"Late by"'))
    second = location.refresh("shown", declared=declared("Minutes"))
    passed, severity, words = checks(second)["metadata"]
    assert (passed, severity) == (False, "WARN")
    assert words == 'caption of delay is "Minutes" as declared, and "Late by" on the server'
    assert (
        "| caption of delay | Minutes | Late by | conflict, stays |"
        in metadata_of(second)["fields"]
    )


class Manifest:
    """As dagster-dbt wraps it."""

    def __init__(self, columns: Mapping[str, Any]) -> None:
        self.manifest = {"nodes": {"model.shop.orders": {"columns": columns}}}


def dbt(columns: Mapping[str, Any]) -> dg.AssetSpec:
    return dg.AssetSpec(
        "dbt_orders",
        metadata={
            "dagster_dbt/manifest": Manifest(columns),
            "dagster_dbt/unique_id": "model.shop.orders",
        },
    )


def inherited(*specs: dg.AssetSpec) -> Mapping[tuple[str, str], FieldMetadata]:
    declaration = Declaration(name="Shop", project="Default", tables=(Table("orders", "orders"),))
    return inherited_fields(declaration, dg.Definitions(assets=specs).resolve_asset_graph())


def test_what_models_say_already():
    """Prevents: descriptions of dbt that have to be typed again, or that beat the model's own."""
    schema = dg.TableSchema(columns=[dg.TableColumn("id", description="Number of the order.")])
    model = dg.AssetSpec("orders", deps=["dbt_orders"], metadata={"dagster/column_schema": schema})
    columns = {
        "id": {"description": "Key.", "meta": {}},
        "net": {"description": "Net.", "config": {"meta": {"tableau": {"caption": "Net amount"}}}},
    }
    assert inherited(model, dbt(columns)) == {
        ("orders", "id"): FieldMetadata(description="Number of the order."),
        ("orders", "net"): FieldMetadata(description="Net.", caption="Net amount"),
    }


def test_mistakes_in_dbt():
    """Prevents: a mistyped key in dbt's project that is ignored."""
    with pytest.raises(RefusedError, match=r'column "net" of model.shop.orders in dbt: captoin'):
        inherited(
            dg.AssetSpec("orders", deps=["dbt_orders"]),
            dbt({"net": {"meta": {"tableau": {"captoin": "Net"}}}}),
        )
