"""What a refresh ships of a table, and that the data source equals its models after it."""

from typing import Any

import pyarrow as pa

from tableau_pipeline.extracts.delta import RowCounts
from tableau_pipeline.refresh.plan import Accept, NoChange, UpdateTables
from tableau_pipeline_tests.refresh.support.pipeline import Pipeline


def table(rows: list[tuple], **columns: pa.DataType) -> pa.Table:
    """Rows of values in these columns."""
    schema = pa.schema(list(columns.items()))
    return pa.Table.from_pylist([dict(zip(columns, row, strict=True)) for row in rows], schema)


def ships(
    pipeline: Pipeline, rows: pa.Table | None = None, *accept: Accept, **around: Any
) -> RowCounts | None:
    """Refresh with these rows in the only table: what was shipped; None for no change."""
    (only,) = pipeline.declaration.tables
    if rows is not None:
        pipeline.model(only.name, rows)
    report = pipeline.run(*accept, around=around)
    assert pipeline.wrong() == []
    if isinstance(report.plan, NoChange):
        return None
    assert isinstance(report.plan, UpdateTables), report.plan
    assert isinstance(pipeline.run(around=around).plan, NoChange)
    return report.tables[only.name]
