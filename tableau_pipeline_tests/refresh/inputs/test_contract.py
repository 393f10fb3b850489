from dataclasses import replace

import pytest

from tableau_pipeline.core.declaration import Table
from tableau_pipeline.errors import Check, RefusedError
from tableau_pipeline.extracts.checks import contract_problems, spark_name
from tableau_pipeline.hyper.tables import Column
from tableau_pipeline.hyper.types import TypePolicy
from tableau_pipeline_tests.refresh.support.pipeline import Pipeline


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
    pipeline.declare(tables=(replace(table, columns=columns),))
    with pytest.raises(RefusedError) as refused:
        pipeline.run()
    for part in ("gate (string) is missing", "flight_id is bigint, not int", "is not in it"):
        assert part in refused.value.failed[Check.SCHEMA]
    assert pipeline.found() == []


def test_what_is_declared_of_types_is_no_difference():
    """Prevents: a contract that a table breaks by its own declaration of time zones."""
    types = TypePolicy(timestamps="with_time_zone")
    table = Table("t", "t", columns=(Column("at", "timestamp"),))
    found = [types.apply(Column("at", "timestamp"))]
    assert list(contract_problems(table, found, types)) == []
