"""Declared metadata: published beside the rows, and merged with what people made of it."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from tableau_pipeline.core.checkpoint import PublishMode
from tableau_pipeline.core.declaration import Diff
from tableau_pipeline.errors import RefusedError
from tableau_pipeline.foresee import Note, foresee
from tableau_pipeline.metadata.fields import FieldMetadata, MetadataPolicy
from tableau_pipeline.refresh.plan import Accept, NoChange, Publish, UpdateTables
from tableau_pipeline_tests.refresh.support import other_users
from tableau_pipeline_tests.refresh.support.crashes import killed_before
from tableau_pipeline_tests.refresh.support.models import flights, snapshot
from tableau_pipeline_tests.refresh.support.other_users import ADMIN
from tableau_pipeline_tests.refresh.support.pipeline import Pipeline, session
from tableau_pipeline_tests.refresh.support.proxies import Proxy

WIDER = flights(gate=flights()["delay"])


def captions(pipeline: Pipeline, **captions: str) -> None:
    """Declare these captions, and no others."""
    (table,) = pipeline.declaration.tables
    fields = tuple(FieldMetadata(name, caption=text) for name, text in captions.items())
    pipeline.policy(table.policy, fields=fields)


def shown(pipeline: Pipeline) -> dict[str, str]:
    """The captions that the server holds, by column."""
    return other_users.captions(pipeline)


def assert_at_rest(pipeline: Pipeline) -> None:
    """The rows are the model's, and nothing is left to do."""
    assert pipeline.wrong() == []
    report = pipeline.run()
    assert isinstance(report.plan, NoChange), report.plan


def test_captions_come_with_the_first_refresh_and_follow_the_declaration(pipeline: Pipeline):
    """Prevents: captions that nobody sees before the second refresh, or that stay as first set."""
    pipeline.policy(Diff(("flight_id",)))
    captions(pipeline, delay="Delay", carrier="Airline")
    assert pipeline.run().decision == "publish (create)"
    assert shown(pipeline) == {"delay": "Delay", "carrier": "Airline"}
    assert_at_rest(pipeline)
    captions(pipeline, delay="Departure delay")
    report = pipeline.run()
    assert report.plan == Publish(
        PublishMode.OVERWRITE,
        "full publish: metadata: caption of delay, caption of carrier",
        merged=True,
    )
    assert shown(pipeline) == {"delay": "Departure delay"}
    pipeline.model("flights", flights(9))
    assert isinstance(pipeline.run().plan, UpdateTables)
    assert_at_rest(pipeline)


def test_what_people_edited_stays(pipeline: Pipeline):
    """Prevents: a caption or a calculated field of an analyst is gone with the next change of the
    declaration; or theirs is taken for ours later."""
    captions(pipeline, delay="Delay")
    pipeline.run()
    other_users.adds_a_calculated_field(pipeline)
    other_users.captions_a_column(pipeline, "carrier", "Line")
    other_users.captions_a_column(pipeline, "delay", "Lateness")
    assert isinstance(pipeline.run().plan, Publish | NoChange)
    captions(pipeline, delay="Delay", flight_id="Flight")
    assert pipeline.run().warnings == ()
    assert shown(pipeline) == {"delay": "Lateness", "carrier": "Line", "flight_id": "Flight"}
    assert "Delayed" in pipeline.tds()
    captions(pipeline, delay="Minutes late", flight_id="Flight")
    report = pipeline.run()
    assert '"Minutes late" as declared, and "Lateness" on the server' in str(report.warnings)
    assert shown(pipeline)["delay"] == "Lateness"
    assert_at_rest(pipeline)


def test_a_plan_tells_of_metadata(pipeline: Pipeline):
    """Prevents: a plan that is silent about captions, or about edits that will stay."""
    captions(pipeline, delay="Delay", carrier="Airline")
    pipeline.run()
    other_users.captions_a_column(pipeline, "delay", "Lateness")
    captions(pipeline, delay="Minutes late", carrier="Line")
    with session(pipeline.sandbox) as site:
        for look in (site, None):
            found = foresee(pipeline.refresh(), look)
            assert found.kind == "publish"
            assert Note("metadata", 'caption of carrier becomes "Line"') in found.notes
            conflicts = [note.text for note in found.notes if note.about == "conflict"]
            told = 'caption of delay is "Minutes late" as declared, and "Lateness" on the server'
            assert conflicts == ([told] if look else [])


def test_policies_of_conflicts(pipeline: Pipeline):
    """Prevents: a conflict is settled in another way than declared."""
    captions(pipeline, delay="Delay")
    pipeline.run()
    other_users.captions_a_column(pipeline, "delay", "Lateness")
    captions(pipeline, delay="Minutes late")
    pipeline.declare(metadata=MetadataPolicy(on_conflict="refuse"))
    with pytest.raises(RefusedError, match='is "Minutes late" as declared, and "Lateness"'):
        pipeline.run()
    pipeline.declare(metadata=MetadataPolicy(on_conflict="replace"))
    assert '"Lateness" on the server' in str(pipeline.run().warnings)
    assert shown(pipeline) == {"delay": "Minutes late"}
    assert_at_rest(pipeline)


def test_new_columns_keep_what_people_made(pipeline: Pipeline):
    """Prevents: each new column costs the calculated fields of people, or a refusal."""
    pipeline.run()
    other_users.adds_a_calculated_field(pipeline)
    pipeline.model("flights", WIDER)
    report = pipeline.run()
    assert report.plan == Publish(
        PublishMode.OVERWRITE, "full publish: flights.gate is new (int)", merged=True
    )
    assert "Delayed" in pipeline.tds()
    assert "<remote-name>gate<" in pipeline.tds()
    assert not (pipeline.folder / "kept").exists()
    assert_at_rest(pipeline)


def test_a_column_that_people_use_goes_only_if_that_is_accepted(pipeline: Pipeline):
    """Prevents: a calculated field is broken by a column that goes, and nobody was told."""
    captions(pipeline, carrier="Airline")
    pipeline.run()
    other_users.adds_a_calculated_field(pipeline)
    pipeline.model("flights", flights().drop_columns("flight_id"))
    with pytest.raises(
        RefusedError,
        match='"flight_id" of "Extract" is gone, which is in calculated field "Delayed"',
    ):
        pipeline.run(Accept.SCHEMA)
    assert pipeline.decide(Accept.OVERWRITE, Accept.SCHEMA).startswith("publish (overwrite)")
    pipeline.run(Accept.OVERWRITE, Accept.SCHEMA)
    assert "Delayed" not in pipeline.tds()
    assert shown(pipeline) == {"carrier": "Airline"}
    assert len([*(pipeline.folder / "kept").iterdir()]) == 1
    assert_at_rest(pipeline)


@pytest.mark.parametrize("others", [False, True], ids=["same columns", "other columns"])
def test_adoption_merges(pipeline: Pipeline, *, others: bool):
    """Prevents: the work of the person whose data source is adopted is gone or in the way."""
    rows = flights(8).append_column("gate", flights(8)["delay"]).drop_columns("delay")
    other_users.publishes(pipeline, rows if others else flights(5))
    other_users.adds_a_calculated_field(pipeline)
    other_users.captions_a_column(pipeline, "carrier", "Line")
    captions(pipeline, delay="Delay", carrier="Airline")
    pipeline.declare(adopt=True)
    report = pipeline.run()
    assert '"Airline" as declared, and "Line" on the server' in str(report.warnings)
    assert "was saved as" in str(report.warnings)
    assert shown(pipeline) == {"delay": "Delay", "carrier": "Line"}
    assert "Delayed" in pipeline.tds()
    assert_at_rest(pipeline)


def test_a_server_without_mode_replace(new_pipeline: Callable[..., Pipeline]):
    """Prevents: where publish mode Replace is not known, whole publishes are a dead end."""
    pipeline = new_pipeline(on={"replace": "refused"})
    pipeline.run()
    other_users.adds_a_calculated_field(pipeline)
    pipeline.model("flights", flights(delay=1))
    pipeline.run(full=True)
    assert "Delayed" in pipeline.tds()
    assert_at_rest(pipeline)


def test_metadata_alone(pipeline: Pipeline):
    """Prevents: a new caption waits for models, or brings rows along that were not to go out."""
    with pytest.raises(RefusedError, match="Refresh without metadata_only"):
        pipeline.run(metadata_only=True)
    pipeline.run()
    before = pipeline.journal.checkpoint()
    pipeline.model("flights", flights(20))
    captions(pipeline, delay="Delay")
    report = pipeline.run(metadata_only=True)
    assert shown(pipeline) == {"delay": "Delay"}
    assert before
    assert report.checkpoint
    assert report.checkpoint.tables == before.tables
    assert isinstance(pipeline.run(metadata_only=True).plan, NoChange)
    pipeline.run()
    assert_at_rest(pipeline)


STEPS = ["upload", "intent", "publish", "job", "outcome", "closing"]


@pytest.mark.parametrize("edited", [False, True], ids=["", "edited meanwhile"])
@pytest.mark.parametrize("step", STEPS)
def test_interrupted(pipeline: Pipeline, step: str, *, edited: bool):
    """Prevents: an interrupted publish of metadata is forgotten: what it set is taken for the
    work of people, or what people made since for ours."""
    captions(pipeline, delay="Delay", carrier="Airline")
    pipeline.run()
    captions(pipeline, delay="Late", carrier="Airline")
    assert killed_before(pipeline, step)
    if edited:
        other_users.captions_a_column(pipeline, "carrier", "Line")
    captions(pipeline, delay="Lateness", carrier="Airline")
    pipeline.run()
    expected = {"delay": "Lateness", "carrier": "Line" if edited else "Airline"}
    assert shown(pipeline) == expected
    assert_at_rest(pipeline)


@pytest.mark.parametrize("nth", [1, 2])
@pytest.mark.parametrize("step", ["intent", "publish", "job", "outcome", "tag", "closing"])
def test_first_refresh_is_interrupted(pipeline: Pipeline, step: str, nth: int):
    """Prevents: metadata that never come, because the first refresh was killed between its two
    publishes, or anywhere else."""
    captions(pipeline, delay="Delay")
    assert killed_before(pipeline, step, nth=nth) or (step in ("tag", "closing") and nth == 2)
    pipeline.run()
    assert shown(pipeline) == {"delay": "Delay"}
    assert_at_rest(pipeline)


class EditsBetween(Proxy):
    """A server on which somebody edits a data source once it has been created and tagged."""

    def __init__(self, behind: Any, pipeline: Pipeline) -> None:
        super().__init__(behind)
        self._pipeline: Pipeline | None = pipeline

    def before(self, name: str, args: Sequence[Any]) -> None:
        if name == "upload" and args[0].suffix == ".tdsx" and self._pipeline:
            pipeline, self._pipeline = self._pipeline, None
            other_users.captions_a_column(pipeline, "carrier", "Line")


def test_an_edit_between_the_two_first_publishes(pipeline: Pipeline):
    """Prevents: the second publish of a first refresh replaces what somebody published between."""
    captions(pipeline, delay="Delay")
    report = pipeline.run(around={"around_server": lambda server: EditsBetween(server, pipeline)})
    assert "Its metadata is not set yet" in str(report.warnings)
    pipeline.run()
    assert shown(pipeline) == {"delay": "Delay", "carrier": "Line"}
    assert_at_rest(pipeline)


def test_metadata_of_other_tables(pipeline: Pipeline):
    """Prevents: captions for a data source whose metadata name other tables stop its refreshes."""
    other_users.publishes(pipeline, flights(5), user=ADMIN)
    other_users.makes_it_an_extract(pipeline)
    captions(pipeline, delay="Delay")
    pipeline.declare(adopt=True)
    for _ in range(2):
        pipeline.run()
        assert pipeline.wrong() == []
    assert_at_rest(pipeline)


def test_both_uploads_of_a_first_refresh_count(pipeline: Pipeline):
    """Prevents: half of what a first refresh with metadata has sent, told as all of it."""
    captions(pipeline, delay="Delay")
    report = pipeline.run()
    assert report.extract
    assert report.sent > report.extract.size


def test_comments_of_a_model_are_descriptions(pipeline: Pipeline):
    """Prevents: descriptions that stand in Spark already have to be typed again; or that come back
    as a change each night."""
    comments = {"delay": "Minutes late.", "carrier": "Its code."}
    snapshot(pipeline.folder / "snapshots", flights(9), comments=comments)
    field = FieldMetadata("carrier", description="The airline.")
    (table,) = pipeline.declaration.tables
    pipeline.policy(table.policy, fields=(field,))
    pipeline.run()
    assert "<run>Minutes late.</run>" in pipeline.tds()
    assert "<run>The airline.</run>" in pipeline.tds()
    assert "Its code." not in pipeline.tds()
    assert_at_rest(pipeline)
