"""Refreshes that ship rows of a table, and refreshes that are refused."""

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
    """A table of the rows, with the columns."""
    schema = pa.schema(list(columns.items()))
    return pa.Table.from_pylist([dict(zip(columns, row, strict=True)) for row in rows], schema)


def ships(
    pipeline: Pipeline, rows: pa.Table | None = None, *accept: Accept, **around: Any
) -> RowCounts | None:
    """Refresh with the rows in the only table; return the shipped counts, None for no change."""
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
    """Run a function that must be refused with a message of these parts; return the error."""
    with pytest.raises(error) as caught:
        run()
    assert [part for part in parts if part not in str(caught.value)] == []
    return caught.value
