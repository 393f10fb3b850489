import pytest
import tableauserverclient as tsc

from tableau_sandbox.testing import Sandbox
from tableau_sandbox_tests.vds.service.asking import ask, count_of, query


@pytest.mark.parametrize(
    ("formula", "count"),
    [
        ("COUNT([orders])", 4),
        ("COUNT([customers])", 3),
        ("COUNT([customer])", 3),
        ("COUNT([name])", 2),
        ("COUNTD([customer])", 2),
        ("SUM(IIF(ISNULL([name]),1,1))", 3),
        ("SUM(IIF(ISNULL([amount]), 1, 1))", 4),
        ("SUM([amount])", 13.5),
        ("MAX([placed])", "2025-06-30"),
        ("MIN([name])", "Ann"),
    ],
)
def test_calculations_of_one_table(
    vds: Sandbox, admin: tsc.Server, shop: str, formula: str, count: object
):
    """Prevents: a count in a source of several tables is of a join, or of another table."""
    assert count_of(vds, admin, shop, formula) == count


def test_measures_and_dimensions(vds: Sandbox, admin: tsc.Server, shop: str):
    """Prevents: rows are not grouped, or have keys that no real answer has."""
    fields = (
        {"fieldCaption": "customer", "sortPriority": 1},
        {"fieldCaption": "amount", "function": "SUM"},
    )
    assert query(vds, admin, shop, *fields).json() == {
        "data": [
            {"customer": None, "SUM(amount)": 1.0},
            {"customer": 1, "SUM(amount)": 12.5},
            {"customer": 9, "SUM(amount)": None},
        ]
    }
    arrays = query(vds, admin, shop, *fields, options={"returnFormat": "ARRAYS"})
    assert arrays.json()["data"][1] == [1, 12.5]


def test_no_rows_make_no_row(vds: Sandbox, admin: tsc.Server, empty: str):
    """Prevents: a client that expects a zero was never shown the answer without a row."""
    for formula in ("COUNT([Extract])", "COUNT([id])", "SUM(IIF(ISNULL([id]),1,1))"):
        assert count_of(vds, admin, empty, formula) == []


def test_tables_by_identifier(vds: Sandbox, admin: tsc.Server, shop: str):
    """Prevents: a table is not found by what the model says of it."""
    body = {"datasource": {"datasourceLuid": shop}}
    model = ask(vds, admin, "get-datasource-model", body).json()
    tables = {each["caption"]: each["logicalTableId"] for each in model["logicalTables"]}
    assert set(tables) == {"orders", "customers"}
    named = {"interpretFieldCaptionsAsFieldNames": True}
    counted = count_of(vds, admin, shop, f"COUNT([{tables['orders']}])", options=named)
    assert counted == 4
    (relationship,) = model["logicalTableRelationships"]
    assert relationship == {
        "fromLogicalTable": {"logicalTableId": tables["orders"]},
        "toLogicalTable": {"logicalTableId": tables["customers"]},
        "expression": {
            "relationships": [{"operator": "=", "fromField": "[customer]", "toField": "[id]"}]
        },
    }


def test_metadata(vds: Sandbox, admin: tsc.Server, shop: str):
    """Prevents: a client finds no column of a table by its metadata, or one of another table."""
    body = {"datasource": {"datasourceLuid": shop}}
    fields = ask(vds, admin, "read-metadata", body).json()["data"]
    assert [(each["fieldName"], each["dataType"]) for each in fields] == [
        ("id", "INTEGER"),
        ("name", "STRING"),
        ("id (orders)", "INTEGER"),
        ("customer", "INTEGER"),
        ("amount", "REAL"),
        ("placed", "DATE"),
    ]
    assert [each["logicalTableId"].partition("_")[0] for each in fields] == [
        *["customers"] * 2,
        *["orders"] * 4,
    ]
    (placed,) = [each for each in fields if each["fieldName"] == "placed"]
    assert {
        "fieldCaption": "placed",
        "fieldRole": "DIMENSION",
        "fieldType": "ORDINAL",
    }.items() <= placed.items()
    assert (placed["defaultAggregation"], placed["columnClass"]) == ("YEAR", "COLUMN")
