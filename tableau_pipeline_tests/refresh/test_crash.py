import signal
from collections.abc import Callable

import pytest

from tableau_pipeline.core.declaration import Table
from tableau_pipeline.core.policies import Diff
from tableau_pipeline.refresh.limits import Limits
from tableau_pipeline.refresh.plan import Accept, NoChange
from tableau_pipeline_tests.refresh import analyst
from tableau_pipeline_tests.refresh.crashes import Fuse, killed_after, killed_for_real
from tableau_pipeline_tests.refresh.models import flights
from tableau_pipeline_tests.refresh.pipeline import WHOLE, Pipeline

MOST_CALLS = 30
EXTRA = {"gate": flights(8)["delay"]}


def first(pipeline: Pipeline) -> None:
    """Nothing is published yet."""


def new_rows(pipeline: Pipeline) -> None:
    pipeline.run()
    rows = flights(9).to_pylist()
    rows[0]["delay"] = 99
    pipeline.model("flights", flights(9).from_pylist(rows[:1] + rows[3:], flights().schema))


def new_file(pipeline: Pipeline) -> None:
    pipeline.declare(**WHOLE)
    new_rows(pipeline)


def changed_rows(pipeline: Pipeline) -> None:
    pipeline.declare(tables=(Table("flights", "flights", policy=Diff(("flight_id",))),))
    new_rows(pipeline)


def new_column(pipeline: Pipeline) -> None:
    pipeline.run()
    pipeline.model("flights", flights(8, **EXTRA))


def adopted(pipeline: Pipeline) -> None:
    analyst.publishes(pipeline, flights(8, **EXTRA))
    pipeline.declare(adopt=True)


def settled(pipeline: Pipeline) -> None:
    """The one data source of our name is ours, holds the snapshots, and nothing is left to do."""
    (item,) = pipeline.found()
    assert pipeline.wrong() == []
    assert pipeline.declaration.tag in item.tags
    (snapshot,) = pipeline.models["flights"]
    metadata = pipeline.tds()
    assert [f"<remote-name>{name}<" in metadata for name in ("gate", "delay")] == [
        any(column.name == "gate" for column in snapshot.columns),
        True,
    ]
    assert isinstance(pipeline.run().plan, NoChange)


def recover(pipeline: Pipeline, fuse: Fuse, before: Callable[[Pipeline], None]) -> None:
    landed_unheard = fuse.trace == ["record", "publish"]
    if before is new_column and landed_unheard:
        # The metadata is not what we left; whether an analyst edited it cannot be known.
        assert pipeline.decide().startswith("refuse")
        pipeline.run(Accept.OVERWRITE)
    else:
        pipeline.run()


@pytest.mark.parametrize(
    ("before", "sent_by"),
    [
        (first, "publish"),
        (new_rows, "update"),
        (changed_rows, "update"),
        pytest.param(new_file, "publish", marks=pytest.mark.slow),
        pytest.param(new_column, "publish", marks=pytest.mark.slow),
        pytest.param(adopted, "publish", marks=pytest.mark.slow),
    ],
)
def test_killed_at_any_moment(
    new_pipeline: Callable[..., Pipeline], before: Callable[[Pipeline], None], sent_by: str
):
    """Prevents: a killed run leaves old rows, a second data source, or no way on."""
    traces = []
    for calls in range(1, MOST_CALLS):
        pipeline = new_pipeline(key=f"flights_{calls}")
        before(pipeline)
        fuse = killed_after(pipeline, calls)
        if fuse is None:
            break
        traces.append(fuse.trace)
        recover(pipeline, fuse, before)
        settled(pipeline)
    assert traces[0] == ["record"]
    assert traces[1] == ["record", sent_by]
    assert traces[-1][:3] == ["record", sent_by, "record"]
    assert traces[-1][-1] == "record"
    assert ("metadata_digest" in traces[-1]) is (sent_by == "publish")


@pytest.mark.parametrize(
    "before",
    [
        new_rows,
        pytest.param(new_file, marks=pytest.mark.slow),
        pytest.param(changed_rows, marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize(("calls", "again"), [(1, 2), (2, 1), (2, 2), (3, 2), (2, 3)])
def test_killed_twice_with_different_content(
    pipeline: Pipeline, before: Callable[[Pipeline], None], calls: int, again: int
):
    """Prevents: what a first killed run had sent passes for what a second one sent."""
    before(pipeline)
    wanted = pipeline.models["flights"]
    assert killed_after(pipeline, calls)
    pipeline.model("flights", flights(10))
    assert killed_after(pipeline, again)
    pipeline.models["flights"] = wanted
    pipeline.run()
    settled(pipeline)


@pytest.mark.parametrize("before", [new_file, new_rows, changed_rows])
@pytest.mark.parametrize("calls", [1, 2, 3, 5])
def test_killed_then_back_to_the_published_content(
    pipeline: Pipeline, before: Callable[[Pipeline], None], calls: int
):
    """Prevents: rows that a killed run sent stay, because the model is as it was before it."""
    before(pipeline)
    assert killed_after(pipeline, calls)
    pipeline.model("flights", flights())
    assert not pipeline.decide().startswith("no change")
    pipeline.run()
    settled(pipeline)


@pytest.mark.parametrize("calls", [1, 2, 3, 4])
def test_renamed_in_the_declaration_after_a_crash(
    new_pipeline: Callable[..., Pipeline], calls: int
):
    """Prevents: the open sending to the old name makes us go on with the old data source."""
    pipeline = new_pipeline()
    pipeline.run()
    pipeline.model("flights", flights(9))
    assert killed_after(pipeline, calls)
    old = pipeline.name
    pipeline.declare(name=f"{old} renamed")
    pipeline.run()
    settled(pipeline)
    assert {item.name for item in pipeline.found()} == {f"{old} renamed"}


def test_edits_before_a_crash_are_spared(pipeline: Pipeline):
    """Prevents: an interrupted refresh makes the next one drop an analyst's calculated field."""
    pipeline.run()
    analyst.adds_a_calculated_field(pipeline)
    pipeline.model("flights", flights(9))
    assert killed_after(pipeline, 3)
    pipeline.run()
    pipeline.model("flights", flights(9, gate=flights(9)["delay"]))
    assert pipeline.decide().startswith("refuse")
    assert analyst.CALCULATION[:24] in pipeline.tds()


def test_killed_for_real(pipeline: Pipeline):
    """Prevents: a process that is gone keeps the lock or the extract, which ours only let go of."""
    assert killed_for_real(pipeline, 2) == -signal.SIGKILL
    (left,) = pipeline.journal.intents()
    assert left.outcome is None
    assert left.payload in pipeline.extract_files()
    pipeline.run(around={"limits": Limits(lock=0, job=30)})
    settled(pipeline)
