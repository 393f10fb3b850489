"""Rollbacks to an earlier published version of a lake table."""

from typing import Any

import pytest

from tableau_pipeline.errors import HeldError
from tableau_pipeline_tests.refresh.lakes.support import follow, in_order, published
from tableau_pipeline_tests.refresh.lakes.tables import Delta, Iceberg
from tableau_pipeline_tests.refresh.support.pipeline import Pipeline
from tableau_pipeline_tests.refresh.support.shipping import refused
from tableau_pipeline_tests.refresh.test_rollback import back, held, release


@pytest.mark.slow
@pytest.mark.parametrize("make", [Delta, Iceberg])
def test_a_lake_table_goes_back(pipeline: Pipeline, make: Any, catalog: Any, tmp_path: Any):
    """Prevents: a rollback publishes the newest rows, or the whole table instead of an update."""
    lake = make(tmp_path, catalog)
    follow(pipeline, lake.format, lake.location)
    first = pipeline.run().checkpoint
    then = in_order(lake.rows())
    lake.change("append", {40, 41}, 1)
    lake.change("merge", {1, 40}, 2)
    forward = pipeline.run()
    lake.change("optimise", set(), 3)
    done = back(pipeline, first.refresh)
    assert (done.decision, forward.decision) == ("update", "update")
    assert published(pipeline) == then
    with pytest.raises(HeldError):
        pipeline.run()
    release(pipeline)
    pipeline.run()
    assert published(pipeline) == in_order(lake.rows())


@pytest.mark.slow
@pytest.mark.parametrize("make", [Delta, Iceberg])
def test_files_that_the_table_has_removed(
    pipeline: Pipeline, make: Any, catalog: Any, tmp_path: Any
):
    """Prevents: a refused rollback to removed files changes something, or stops later refreshes."""
    lake = make(tmp_path, catalog)
    follow(pipeline, lake.format, lake.location)
    first = pipeline.run().checkpoint
    lake.change("overwrite" if make is Delta else "append", {20, 21}, 1)
    pipeline.run()
    lake.change("vacuum", set(), 2)
    refused(lambda: back(pipeline, first.refresh), f"cannot go back to version {first.refresh}")
    assert held(pipeline) is None
    assert published(pipeline) == in_order(lake.rows())
