from dataclasses import replace

import pyarrow as pa
import pytest

from tableau_pipeline.core.declaration import Reconcile
from tableau_pipeline.errors import Check, RefusedError
from tableau_pipeline.hyper.tables import Column
from tableau_pipeline.refresh.plan import NoChange
from tableau_pipeline_tests.refresh.support.models import flights
from tableau_pipeline_tests.refresh.support.other_users import publishes
from tableau_pipeline_tests.refresh.support.partitioned import materialize
from tableau_pipeline_tests.refresh.support.pipeline import Pipeline

TWO_MONTHS = {"jan": flights(5), "feb": flights(3, delay=9)}


def test_one_changed_partition_is_a_change(pipeline: Pipeline):
    """Prevents: a change in one of many partitions gets lost in the sum."""
    materialize(pipeline, TWO_MONTHS)
    pipeline.run()
    materialize(pipeline, {"feb": flights(3, delay=10)})
    assert not isinstance(pipeline.run().plan, NoChange)
    assert pipeline.wrong() == []


def test_record_does_not_grow_with_the_partitions(pipeline: Pipeline):
    """Prevents: records that list three years of hours, until the journal is the slowest part."""
    sizes = []
    for number in (2, 40):
        materialize(pipeline, {str(hour): flights(2) for hour in range(number)})
        checkpoint = pipeline.run().checkpoint
        assert checkpoint
        sizes.append(len(checkpoint.model_dump_json()))
    assert max(sizes) - min(sizes) < 20


@pytest.mark.slow
def test_partition_that_was_dropped_is_not_missed(pipeline: Pipeline):
    """Prevents: what is published rightly is compared with rows that are no part of the model."""
    pipeline.declare(reconcile=Reconcile(checksums=True))
    materialize(pipeline, TWO_MONTHS)
    pipeline.run()
    materialize(pipeline, {}, without=["feb"])
    report = pipeline.run()
    assert report.reconciliation
    assert report.reconciliation.skipped is None
    assert pipeline.wrong() == []
    # Somebody publishes, and the rows decide.
    publishes(pipeline, flights(5), user=("", ""))
    report = pipeline.run()
    assert isinstance(report.plan, NoChange)
    assert report.warnings


def test_partitions_that_differ_in_their_columns(pipeline: Pipeline):
    """Prevents: an old partition without a new column is published as NULLs, or not at all."""
    wider = flights(3, gate=pa.array([1, 2, 3], pa.int64()))
    materialize(pipeline, {"jan": flights(5), "feb": wider})
    with pytest.raises(RefusedError) as caught:
        pipeline.run()
    for part in ('"flights"', "partition jan differs", "gate (bigint)", "Materialize jan"):
        assert part in str(caught.value)
    assert (pipeline.sessions, pipeline.extract_files()) == (0, [])


def test_partitions_are_reported_with_all_other_problems(pipeline: Pipeline):
    """Prevents: as many runs as mistakes, because the first one hides the others."""
    wider = flights(3, gate=pa.array([1, 2, 3], pa.int64()))
    materialize(pipeline, {"jan": flights(5), "feb": wider})
    (table,) = pipeline.declaration.tables
    pipeline.declare(tables=(replace(table, columns=(Column("seat", "string"),)),))
    with pytest.raises(RefusedError) as caught:
        pipeline.run()
    for part in ("partition jan differs", "seat (string) is missing"):
        assert part in caught.value.failed[Check.SCHEMA]
