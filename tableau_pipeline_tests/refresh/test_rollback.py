"""Rollbacks to an earlier version, and holds, which stop refreshes until users release them."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest

from tableau_pipeline.core.checkpoint import Checkpoint
from tableau_pipeline.core.declaration import Retain
from tableau_pipeline.core.fields import FieldMetadata
from tableau_pipeline.core.hold import Hold, end_hold, hold_of, put_hold
from tableau_pipeline.core.policies import Append, Diff, Partitions, Policy, ReplaceAll
from tableau_pipeline.errors import HeldError, RefreshError, RefusedError
from tableau_pipeline.outcome import Accept, accepts_of
from tableau_pipeline.refresh.refresh import rollback
from tableau_pipeline.refresh.report import Refreshed
from tableau_pipeline_tests.refresh.support import other_users
from tableau_pipeline_tests.refresh.support.crashes import Crashing, CrashPoint, KilledError
from tableau_pipeline_tests.refresh.support.models import flights
from tableau_pipeline_tests.refresh.support.other_users import ADMIN
from tableau_pipeline_tests.refresh.support.pipeline import Pipeline, published_rows
from tableau_pipeline_tests.refresh.support.proxies import At, Proxy
from tableau_pipeline_tests.refresh.support.shipping import refused
from tableau_pipeline_tests.refresh.test_partitions_and_windows import LAX, NOON, visits

New = Callable[..., Pipeline]
POLICIES: dict[str, Policy] = {
    "replace": ReplaceAll(),
    "diff": Diff(("flight_id",)),
    "append": Append("flight_id"),
}


def back(pipeline: Pipeline, version: int, *, dry_run: bool = False, **around: Any) -> Any:
    """Roll back to a version as the user "ann"."""
    hold = Hold(by="ann", why="the model is wrong", version=version)
    return rollback(pipeline.refresh(**around), hold, dry_run=dry_run)


def held(pipeline: Pipeline) -> Hold | None:
    return hold_of(pipeline.journal.place, pipeline.journal.key)


def release(pipeline: Pipeline) -> None:
    end_hold(pipeline.journal.place, pipeline.journal.key)


def rows(pipeline: Pipeline) -> pa.Table:
    """Return the published rows, sorted."""
    (item,) = pipeline.found()
    found = published_rows(pipeline.eyes, str(item.id))
    return found.sort_by([(name, "ascending") for name in found.column_names])


def versions(pipeline: Pipeline) -> list[Checkpoint]:
    return [*pipeline.journal.checkpoints()]


def published(pipeline: Pipeline, count: int, **around: Any) -> Refreshed:
    pipeline.model("flights", flights(count))
    return pipeline.run(around=around)


@pytest.mark.few_variants(1)
@pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)
def test_back_and_forward(pipeline: Pipeline, policy: Policy):
    """Prevents: a rollback restores other rows, or the next run publishes the bad model again."""
    pipeline.policy(policy, guard=LAX)
    first = published(pipeline, 5).checkpoint
    then = rows(pipeline)
    forward = published(pipeline, 9)
    (newer, older) = versions(pipeline)
    assert (newer.refresh, older.refresh) == (forward.checkpoint.refresh, first.refresh)
    done = back(pipeline, first.refresh)
    assert rows(pipeline) == then
    assert done.checkpoint.tables == first.tables
    if isinstance(policy, Diff):
        assert (done.decision, forward.decision) == ("update", "update")
        assert done.sent <= 1.1 * forward.sent
    with pytest.raises(HeldError, match=r"held since .* by ann, at version 1: the model is wrong"):
        pipeline.run()
    assert rows(pipeline) == then
    release(pipeline)
    assert pipeline.run().decision == "update"
    assert pipeline.wrong() == []
    assert pipeline.run().decision == "no change"


@pytest.mark.slow
@pytest.mark.few_variants(1)
def test_a_dry_run_of_a_rollback(pipeline: Pipeline):
    """Prevents: a dry run of a rollback holds or changes the data source."""
    pipeline.policy(Diff(("flight_id",)), guard=LAX)
    published(pipeline, 5)
    published(pipeline, 9)
    plan = back(pipeline, 1, dry_run=True).plan
    assert plan.decision == "update"
    assert held(pipeline) is None
    assert pipeline.wrong() == []


@pytest.mark.slow
@pytest.mark.few_variants(1)
def test_windows_end_where_they_ended_then(pipeline: Pipeline):
    """Prevents: a rollback uses the window of today, and drops a day that dashboards had."""
    pipeline.policy(Diff(("id",)), retain=Retain("day", 9), guard=LAX)
    pipeline.model("flights", visits(range(20)))
    pipeline.run(around={"now": NOON})
    then = rows(pipeline)
    pipeline.model("flights", visits(range(5, 20)))
    pipeline.run(around={"now": NOON + timedelta(days=3)})
    assert rows(pipeline) != then
    back(pipeline, 1, now=NOON + timedelta(days=4))
    assert rows(pipeline) == then


@pytest.mark.slow
@pytest.mark.few_variants(1)
def test_columns_come_back(pipeline: Pipeline):
    """Prevents: a rollback restores the rows, but keeps the columns of the newer version."""
    pipeline.policy(Diff(("flight_id",)), guard=LAX)
    pipeline.declare(on_schema_change="additive")
    published(pipeline, 5)
    then = rows(pipeline)
    pipeline.model("flights", flights(5).append_column("extra", pa.array(range(5), pa.int64())))
    pipeline.run()
    assert rows(pipeline) != then
    back(pipeline, 1)
    assert rows(pipeline) == then


@pytest.mark.slow
@pytest.mark.few_variants(1)
def test_metadata_come_back_and_edits_stay(pipeline: Pipeline):
    """Prevents: a rollback keeps a wrong caption, or drops a caption that a user has set."""
    pipeline.policy(Diff(("flight_id",)), guard=LAX)

    def declare(caption: str) -> None:
        (table,) = pipeline.declaration.tables
        field = FieldMetadata("delay", caption=caption)
        pipeline.declare(tables=(replace(table, fields=(field,)),))

    declare("Delay")
    published(pipeline, 5)
    declare("Lateness")
    published(pipeline, 9)
    assert other_users.captions(pipeline)["delay"] == "Lateness"
    other_users.captions_a_column(pipeline, "carrier", "Airline")
    back(pipeline, 1)
    assert other_users.captions(pipeline) == {"delay": "Delay", "carrier": "Airline"}
    release(pipeline)
    pipeline.run()
    assert other_users.captions(pipeline) == {"delay": "Lateness", "carrier": "Airline"}
    assert pipeline.wrong() == []


@pytest.mark.slow
@pytest.mark.few_variants(1)
def test_versions_that_are_gone(pipeline: Pipeline):
    """Prevents: a rollback to a missing version holds the data source, or changes its rows."""
    pipeline.policy(Diff(("flight_id",)), guard=LAX)
    published(pipeline, 5)
    published(pipeline, 9)
    refused(lambda: back(pipeline, 7), 'No record is left of a refresh 7 of "')
    before = pipeline.declaration
    (table,) = before.tables
    pipeline.declare(tables=(replace(table, name="other"),))
    refused(lambda: back(pipeline, 1), "were declared differently at version 1")
    pipeline.declaration = before
    for file in sorted((pipeline.folder / "snapshots" / "flights" / "@versions").iterdir())[:-1]:
        file.unlink()
    refused(lambda: back(pipeline, 1), "cannot go back to version 1", "or no longer there")
    assert held(pipeline) is None
    assert pipeline.wrong() == []


@pytest.mark.few_variants(1)
def test_a_rollback_that_the_server_refuses(pipeline: Pipeline):
    """Prevents: a data source stays held although the server has refused the rollback."""
    pipeline.policy(Diff(("flight_id",)), guard=LAX)
    published(pipeline, 5)
    published(pipeline, 9)

    def refuse() -> None:
        raise RefusedError("You may not write.")

    with pytest.raises(RefusedError, match="You may not"):
        back(pipeline, 1, around_server=lambda server: At(server, "update", refuse))
    assert held(pipeline) is None
    assert pipeline.wrong() == []


STEPS = ("claim", "upload", "intent", "update", "job", "outcome", "closing")


@pytest.mark.slow
@pytest.mark.parametrize("step", STEPS)
def test_killed_while_it_goes_back(pipeline: Pipeline, step: str):
    """Prevents: after a killed rollback, a run publishes the bad model, or no rollback works."""
    pipeline.policy(Diff(("flight_id",)), guard=LAX)
    published(pipeline, 5)
    then = rows(pipeline)
    published(pipeline, 9)
    crash = CrashPoint(step)
    with pytest.raises(KilledError):
        back(
            pipeline,
            1,
            around_journal=lambda journal: Crashing(journal, crash),
            around_server=lambda server: Crashing(server, crash),
        )
    pipeline.sandbox.wait_until_idle()
    if step == "claim":
        assert held(pipeline) is None
    else:
        with pytest.raises(HeldError):
            pipeline.run()
    back(pipeline, 1)
    assert rows(pipeline) == then


@pytest.mark.few_variants(1)
def test_held_without_a_rollback(pipeline: Pipeline):
    """Prevents: a refresh changes a data source that a user holds, or a hold never ends."""
    published(pipeline, 5)
    put_hold(pipeline.journal.place, pipeline.journal.key, Hold(by="ann"))
    pipeline.model("flights", flights(9))
    with pytest.raises(HeldError, match=r"held since .* by ann\. Nothing was done"):
        pipeline.run()
    release(pipeline)
    release(pipeline)
    pipeline.run()
    assert pipeline.wrong() == []


def test_a_hold_that_cannot_be_read(pipeline: Pipeline):
    """Prevents: a refresh changes a held data source because the file of its hold is damaged."""
    pipeline.run()
    put_hold(pipeline.journal.place, pipeline.journal.key, Hold(by="ann"))
    (file,) = (pipeline.folder / "journal").rglob("@holds/*.json")
    file.write_text("{")
    with pytest.raises(RefusedError, match="is damaged, or a newer release wrote it"):
        pipeline.run()


@pytest.mark.slow
def test_partitions_go_back(pipeline: Pipeline):
    """Prevents: a rollback keeps a partition that was added after the version."""
    pipeline.policy(Partitions("part"), guard=LAX)
    pipeline.snapshot("flights", visits(range(3)), partition="a")
    pipeline.run()
    then = rows(pipeline)
    more = visits(range(3, 5)).set_column(2, "part", pa.array(["b"] * 3))
    pipeline.snapshot("flights", more, partition="b")
    pipeline.run()
    assert rows(pipeline) != then
    back(pipeline, 1)
    assert rows(pipeline) == then


@pytest.mark.few_variants(1)
def test_a_data_source_of_another_deployment(pipeline: Pipeline):
    """Prevents: a rollback asks users to accept a takeover, which only a refresh can do."""
    pipeline.policy(Diff(("flight_id",)), guard=LAX)
    published(pipeline, 5)
    published(pipeline, 9)
    other = replace(pipeline, folder=pipeline.folder / "elsewhere")
    other.model("flights", flights(7))
    other.run(Accept.TAKEOVER)
    told = back(pipeline, 1, dry_run=True).summary
    assert "refresh with accept: [takeover] first, then roll back" in told
    refusal: Any = refused(lambda: back(pipeline, 1), "another deployment", "then roll back")
    assert accepts_of(refusal.refusals) == []
    assert "run once" not in str(refusal)
    pipeline.run(Accept.TAKEOVER)
    back(pipeline, 1)
    assert rows(pipeline).num_rows == 5


@pytest.mark.slow
@pytest.mark.few_variants(1)
def test_work_that_a_rollback_would_drop(pipeline: Pipeline):
    """Prevents: a rollback asks users to accept an overwrite, which only a refresh can do."""
    pipeline.policy(Diff(("flight_id",)), guard=LAX)
    pipeline.declare(on_schema_change="additive")
    pipeline.model("flights", flights(5).drop_columns("delay"))
    pipeline.run()
    published(pipeline, 9)
    made = other_users.CALCULATION.replace("flight_id", "delay").encode()
    other_users.edits(pipeline, lambda tds: tds.replace(b"<aliases", made + b"<aliases", 1))
    refusal: Any = refused(lambda: back(pipeline, 1), "An overwrite drops", "then roll back")
    assert accepts_of(refusal.refusals) == []
    pipeline.run(Accept.OVERWRITE, full=True)
    back(pipeline, 1)
    assert rows(pipeline).num_rows == 5


@pytest.mark.slow
def test_work_that_appears_while_it_goes_back(pipeline: Pipeline):
    """Prevents: the same advice, where another user has published columns while the rollback took
    effect, so that its second attempt is refused."""
    pipeline.policy(Diff(("flight_id",)), guard=LAX)
    published(pipeline, 5)
    published(pipeline, 9)

    class Meddled(Proxy):
        is_over = False

        def after(self, name: str, answer: object) -> None:
            if name == "job" and getattr(answer, "outcome", None) and not self.is_over:
                self.is_over = True
                other_users.publishes(pipeline, flights(9, gate=flights(9)["delay"]), user=ADMIN)

    parts = ("The update took effect", "An overwrite drops", "then roll back")
    error = refused(lambda: back(pipeline, 1, around_server=Meddled), *parts, error=RefreshError)
    assert "Run again with" not in str(error)
