"""What a refresh ships of a table, so that the data source equals its models, or is refused for."""

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from tableau_pipeline.errors import RefusedError
from tableau_pipeline.extracts.delta import RowCounts
from tableau_pipeline.outcome import Accept
from tableau_pipeline.refresh.decide import NoChange, UpdateTables
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
    assert isinstance(report.plan, NoChange | UpdateTables), report.plan
    return report.tables.get(only.name)


def refused(
    run: Callable[[], object], *parts: str, error: type[Exception] = RefusedError
) -> Exception:
    """What a refresh, or anything else, is refused for: a message with these parts."""
    with pytest.raises(error) as caught:
        run()
    assert [part for part in parts if part not in str(caught.value)] == []
    return caught.value
