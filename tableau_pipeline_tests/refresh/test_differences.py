"""The published rows against the newest models, row by row."""

from collections.abc import Callable
from dataclasses import replace

import pyarrow as pa
import pytest

from tableau_pipeline.core.declaration import Append, Diff, Policy
from tableau_pipeline.diff import diff
from tableau_pipeline.errors import RefreshError
from tableau_pipeline.extracts.differences import Differences
from tableau_pipeline.hyper.process import Hyperd, hyper_process
from tableau_pipeline_tests.refresh.support.models import flights
from tableau_pipeline_tests.refresh.support.other_users import changes_the_file
from tableau_pipeline_tests.refresh.support.pipeline import Pipeline, session

TABLE = '"Extract"."Extract"'


def look(
    pipeline: Pipeline,
    samples: int = 0,
    hyper: Callable[[], Hyperd] = hyper_process,
    shares: list[float] | None = None,
) -> tuple[list[str], Differences]:
    """What `diff` finds in the one table; `shares` is told how far it was each time."""
    told: list[float] = [] if shares is None else shares
    setup = pipeline.refresh(hyper=hyper)
    with session(pipeline.sandbox) as site:
        layout, found = diff(
            setup, site, samples=samples, tell=lambda _, *share: told.extend(share)
        )
    return layout, found["flights"]


def test_by_key(pipeline: Pipeline):
    """Prevents: a change of one value that shows as a row gone and a row new."""
    pipeline.policy(Diff(("flight_id",)))
    pipeline.model("flights", flights(8))
    pipeline.run()
    _, equal = look(pipeline, samples=1)
    assert equal == Differences(("flight_id",), 0, 0, 8, 8, {"carrier": 0, "delay": 0})
    changes_the_file(pipeline, f"DELETE FROM {TABLE} WHERE flight_id = 0")
    changes_the_file(pipeline, f"UPDATE {TABLE} SET carrier = NULL WHERE flight_id < 3")
    changes_the_file(pipeline, f"UPDATE {TABLE} SET flight_id = 99 WHERE flight_id = 7")
    _, found = look(pipeline, samples=1)
    counts = found.only_published, found.only_model, found.both, found.equal
    assert counts == (1, 2, 6, 4)
    assert found.columns == {"carrier": 2, "delay": 0}
    assert found.percent_equal == {"carrier": 66.67, "delay": 100.0}
    assert found.samples == {"carrier": [[1, None, flights(8)["carrier"][1].as_py()]]}


@pytest.mark.parametrize("policy", [Diff(("flight_id",)), Append("flight_id")])
def test_whole_rows(pipeline: Pipeline, policy: Policy):
    """Prevents: a row that is there twice counts as one, or pairs with two."""
    pipeline.policy(policy)
    pipeline.model("flights", flights(8))
    pipeline.run()
    changes_the_file(pipeline, f"INSERT INTO {TABLE} SELECT * FROM {TABLE} WHERE flight_id = 1")
    changes_the_file(pipeline, f"DELETE FROM {TABLE} WHERE flight_id = 5")
    _, found = look(pipeline)
    assert found == Differences((), 1, 1, 7, 7)


@pytest.mark.parametrize("policy", [Diff(("flight_id",)), Append("flight_id")])
def test_little_memory(pipeline: Pipeline, policy: Policy):
    """Prevents: a comparison in slices that loses rows, or counts them twice."""
    pipeline.policy(policy)
    pipeline.model("flights", flights(2000))
    pipeline.run()
    changes_the_file(pipeline, f"DELETE FROM {TABLE} WHERE flight_id < 10")
    changes_the_file(pipeline, f"UPDATE {TABLE} SET delay = -1 WHERE flight_id % 100 = 50")
    process, shares = Hyperd(memory=2**31, telemetry=False), []
    whole = look(pipeline, samples=30, hyper=lambda: process)
    # So little that it is compared in slices.
    process.memory = 30_000
    slices = look(pipeline, samples=30, hyper=lambda: process, shares=shares)
    assert len(shares) >= 8
    assert slices[1].samples.keys() == whole[1].samples.keys()
    assert replace(slices[1], samples={}) == replace(whole[1], samples={})
    for column, rows in whole[1].samples.items():
        assert len(rows) == 20
        assert sorted(slices[1].samples[column]) == rows


def test_other_columns(pipeline: Pipeline):
    """Prevents: a new column hides that the rows are equal in all others, or passes unnoticed."""
    pipeline.model("flights", flights(8))
    pipeline.run()
    rows = flights(8)
    pipeline.model("flights", rows.append_column("gate", pa.array(["A"] * 8)))
    layout, found = look(pipeline)
    assert layout == ["Extract.gate (TEXT) is new"]
    assert (found.is_equal, found.both) == (True, 8)


def test_several_tables(star: Pipeline):
    """Prevents: a difference in a dimension that is reported of the facts, or of none."""
    facts, dimension = star.declaration.tables
    star.declare(tables=(replace(facts, policy=Diff(("flight_id",))), dimension))
    star.run()
    with session(star.sandbox) as site:
        _, equal = diff(star.refresh(), site, samples=1, tell=print)
        assert [each.is_equal for each in equal.values()] == [True, True]
        changes_the_file(star, 'UPDATE "Extract"."flights" SET delay = -1 WHERE flight_id = 3')
        changes_the_file(star, 'DELETE FROM "Extract"."airlines" WHERE carrier = \'AA\'')
        layout, found = diff(star.refresh(), site, samples=1, tell=print)
    assert layout == []
    assert found["flights"].columns == {"carrier": 0, "delay": 1}
    assert found["flights"].samples["delay"][0][:2] == [3, -1]
    assert found["airlines"] == Differences((), 0, 1, 1, 1)


def test_nothing_to_compare(pipeline: Pipeline):
    """Prevents: "equal" for what was never published."""
    pipeline.model("flights", flights(8))
    with pytest.raises(RefreshError, match="no record shows that it was published"):
        look(pipeline)
