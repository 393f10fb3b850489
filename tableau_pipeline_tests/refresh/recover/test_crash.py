import signal
from collections.abc import Callable
from dataclasses import replace

import pytest

from tableau_pipeline.core.declaration import Diff, Table
from tableau_pipeline.refresh.plan import NoChange
from tableau_pipeline_tests.refresh.support import other_users
from tableau_pipeline_tests.refresh.support.crashes import (
    killed_after,
    killed_before,
    killed_for_real,
)
from tableau_pipeline_tests.refresh.support.models import flights
from tableau_pipeline_tests.refresh.support.pipeline import TIMEOUTS, WHOLE, Pipeline

MOST_STEPS = 20
EXTRA = {"gate": flights(8)["delay"]}
PUBLISHED = ["claim", "upload", "intent", "publish", "job", "outcome", "closing"]
UPDATED = ["claim", "upload", "intent", "update", "job", "outcome", "closing"]
TAGGED = [*PUBLISHED[:-1], "tag", "closing"]


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
    other_users.publishes(pipeline, flights(5))
    pipeline.declare(adopt=True)


def renamed(pipeline: Pipeline) -> None:
    new_rows(pipeline)
    pipeline.declare(name=f"{pipeline.name} renamed")


def assert_recovered(pipeline: Pipeline) -> None:
    """The one data source of our name is ours, holds the snapshots, and nothing is left to do."""
    (item,) = pipeline.found()
    assert pipeline.wrong() == []
    assert pipeline.declaration.tag in item.tags
    columns = {column.name for column in pipeline.models["flights"].columns}
    metadata = pipeline.tds()
    for name in ("gate", "delay"):
        assert (f"<remote-name>{name}<" in metadata) is (name in columns)
    assert isinstance(pipeline.run().plan, NoChange)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("before", "steps"),
    [
        (first, TAGGED),
        (changed_rows, UPDATED),
        (renamed, [UPDATED[0], "move", *UPDATED[1:]]),
        (new_file, PUBLISHED),
        (new_column, PUBLISHED),
        (adopted, TAGGED),
    ],
)
def test_killed_at_any_moment(
    new_pipeline: Callable[..., Pipeline], before: Callable[[Pipeline], None], steps: list[str]
):
    """Prevents: a killed run leaves old rows, a second data source, or no way on."""
    trace: list[str] = []
    for number in range(1, MOST_STEPS):
        pipeline = new_pipeline()
        before(pipeline)
        crash = killed_after(pipeline, number)
        if crash is None:
            break
        trace = crash.trace
        pipeline.run()
        assert_recovered(pipeline)
    assert trace == steps[:-1]


@pytest.mark.few_variants(1)
@pytest.mark.parametrize("step", ["update", "job", "outcome", "closing"])
def test_renamed_in_the_declaration_after_a_crash(pipeline: Pipeline, step: str):
    """Prevents: the open sending to the old name makes a second data source of the new one."""
    new_rows(pipeline)
    (before,) = pipeline.found()
    assert killed_before(pipeline, step)
    old = pipeline.name
    pipeline.declare(name=f"{old} renamed")
    pipeline.run()
    assert_recovered(pipeline)
    (item,) = pipeline.found()
    assert (item.id, item.name) == (before.id, f"{old} renamed")


def test_edits_before_a_crash_are_spared(pipeline: Pipeline):
    """Prevents: an interrupted refresh makes the next one drop an analyst's calculated field."""
    pipeline.run()
    other_users.adds_a_calculated_field(pipeline)
    pipeline.model("flights", flights(9))
    assert killed_before(pipeline, "outcome")
    pipeline.run()
    pipeline.model("flights", flights(9, gate=flights(9)["delay"]))
    assert pipeline.decide().startswith("refuse")
    assert other_users.CALCULATION[:24] in pipeline.tds()


@pytest.mark.slow
def test_killed_for_real(pipeline: Pipeline):
    """Prevents: a process that is gone keeps the lock or the claim, which ours only let go of."""
    assert killed_for_real(pipeline, before="job") == -signal.SIGKILL
    (left,) = pipeline.journal.intents()
    assert left.outcome is None
    pipeline.run(around={"timeouts": replace(TIMEOUTS, claim=0)})
    assert_recovered(pipeline)
