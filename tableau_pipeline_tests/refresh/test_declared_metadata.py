"""Declared metadata: published with the rows, and merged with the edits of users."""

import re
from collections.abc import Callable, Sequence
from functools import partial
from random import Random
from typing import Any

import pytest

from tableau_pipeline.core.checkpoint import PublishMode
from tableau_pipeline.core.declaration import Reconcile, Republish
from tableau_pipeline.core.fields import Calculation, FieldMetadata, MetadataPolicy
from tableau_pipeline.core.policies import Diff, ReplaceAll
from tableau_pipeline.errors import RefreshError, RefusedError
from tableau_pipeline.hyper.relationships import Relationship
from tableau_pipeline.metadata.contents import Metadata, read_metadata
from tableau_pipeline.metadata.merge import OnConflict
from tableau_pipeline.outcome import Accept
from tableau_pipeline.refresh.decide import NoChange, Options, Publish, UpdateTables
from tableau_pipeline.refresh.preview import Note, preview
from tableau_pipeline.refresh.refresh import refresh
from tableau_pipeline_tests.metadata.shapes import by_an_old_build
from tableau_pipeline_tests.refresh.support import other_users
from tableau_pipeline_tests.refresh.support.crashes import killed_before
from tableau_pipeline_tests.refresh.support.models import airlines, flights, snapshot
from tableau_pipeline_tests.refresh.support.other_users import ADMIN
from tableau_pipeline_tests.refresh.support.pipeline import STAR, Pipeline, session
from tableau_pipeline_tests.refresh.support.proxies import At, Proxy
from tableau_pipeline_tests.refresh.support.server_jobs import later
from tableau_pipeline_tests.refresh.support.shipping import refused
from tableau_sandbox.faults import FailJob


def captions(pipeline: Pipeline, **captions: str) -> None:
    """Declare these captions, and remove all other captions from the declaration."""
    (table,) = pipeline.declaration.tables
    fields = tuple(FieldMetadata(name, caption=text) for name, text in captions.items())
    pipeline.policy(table.policy, fields=fields)


def assert_at_rest(pipeline: Pipeline, **shown: str) -> None:
    """Check the captions and rows on the server, and that a refresh finds nothing to do."""
    assert other_users.captions(pipeline) == shown
    assert pipeline.wrong() == []
    report = pipeline.run()
    assert isinstance(report.plan, NoChange), report.plan


def test_captions_come_with_the_first_refresh_and_follow_the_declaration(pipeline: Pipeline):
    """Prevents: the first refresh sends no captions, or a later refresh does not update them."""
    pipeline.policy(Diff(("flight_id",)))
    captions(pipeline, delay="Delay", carrier="Airline")
    report = pipeline.run()
    assert report.decision == "publish (create)"
    assert report.sent > report.extract.size
    assert "MB sent, in 2 files)" in report.summary
    assert_at_rest(pipeline, delay="Delay", carrier="Airline")
    captions(pipeline, delay="Departure delay")
    expected = "full publish: metadata: caption of delay, caption of carrier removed"
    assert pipeline.run().plan == Publish(PublishMode.OVERWRITE, expected, merged=True)
    pipeline.model("flights", flights(9))
    assert isinstance(pipeline.run().plan, UpdateTables)
    assert_at_rest(pipeline, delay="Departure delay")


def test_places_are_known_to_maps(pipeline: Pipeline):
    """Prevents: a map does not recognize cities, or each refresh sets geographic roles again."""
    (table,) = pipeline.declaration.tables
    fields = (FieldMetadata("carrier", geo="city"), FieldMetadata("delay", geo="latitude"))
    pipeline.policy(table.policy, fields=fields)
    pipeline.run()
    for role in ("[City].[Name]", "[Geographical].[Latitude]"):
        assert pipeline.tds().count(role) == 1
    assert pipeline.run().decision == "no change"
    pipeline.policy(table.policy, fields=fields[:1])
    assert "geo of delay removed" in pipeline.run().reason
    assert "[Geographical]" not in pipeline.tds()


@pytest.mark.slow
def test_what_people_edited_stays(pipeline: Pipeline):
    """Prevents: a changed declaration removes a caption or a calculated field of an analyst."""
    captions(pipeline, delay="Delay")
    pipeline.run()
    other_users.adds_a_calculated_field(pipeline)
    other_users.captions_a_column(pipeline, "carrier", "Line")
    other_users.captions_a_column(pipeline, "delay", "Lateness")
    assert isinstance(pipeline.run().plan, Publish | NoChange)
    captions(pipeline, delay="Delay", flight_id="Flight")
    assert pipeline.run().warnings == ()
    theirs = {"delay": "Lateness", "carrier": "Line", "flight_id": "Flight"}
    assert_at_rest(pipeline, **theirs)
    assert "Delayed" in pipeline.tds()
    captions(pipeline, delay="Minutes late", flight_id="Flight")
    expected = '"Minutes late" as declared, and "Lateness" on the server'
    assert expected in str(pipeline.run().warnings)
    assert_at_rest(pipeline, **theirs)


def test_a_plan_tells_of_metadata(pipeline: Pipeline):
    """Prevents: a plan lists neither new captions nor conflicts with captions of users."""
    captions(pipeline, delay="Delay", carrier="Airline")
    pipeline.run()
    other_users.captions_a_column(pipeline, "delay", "Lateness")
    captions(pipeline, delay="Minutes late", carrier="Line")
    with session(pipeline.sandbox) as site:
        for look in (site, None):
            found = preview(pipeline.refresh(), look)
            assert found.kind == "publish"
            assert Note("metadata", 'caption of carrier becomes "Line"') in found.notes
            conflicts = [note.text for note in found.notes if note.topic == "conflict"]
            expected = (
                'caption of delay is "Minutes late" as declared, and "Lateness" on the server'
            )
            assert conflicts == ([expected] if look else [])


@pytest.mark.slow
def test_policies_of_conflicts(pipeline: Pipeline):
    """Prevents: a refresh resolves a conflict of captions against the declared policy."""
    captions(pipeline, delay="Delay")
    pipeline.run()
    other_users.captions_a_column(pipeline, "delay", "Lateness")
    captions(pipeline, delay="Minutes late")
    pipeline.declare(metadata=MetadataPolicy(on_conflict="refuse"))
    refused(pipeline.run, 'is "Minutes late" as declared, and "Lateness"')
    refused(pipeline.run, "run once with accept: [metadata]")
    pipeline.declare(metadata=MetadataPolicy(on_conflict="replace"))
    assert '"Lateness" on the server' in str(pipeline.run().warnings)
    assert_at_rest(pipeline, delay="Minutes late")


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["keep", "refuse"])
def test_what_a_person_captioned_is_accepted(pipeline: Pipeline, policy: OnConflict):
    """Prevents: refreshes warn every night of a caption that a user has accepted."""
    captions(pipeline, delay="Delay")
    pipeline.run()
    other_users.captions_a_column(pipeline, "delay", "Lateness")
    captions(pipeline, delay="Minutes late")
    pipeline.declare(metadata=MetadataPolicy(on_conflict=policy))
    if policy == "keep":
        assert '"Lateness" on the server' in str(pipeline.run().warnings)
    assert pipeline.run(Accept.METADATA).warnings == ()
    for _ in range(2):
        pipeline.model("flights", flights(9))
        report = pipeline.run()
        assert report.warnings == ()
        assert "Lateness" in pipeline.tds()
    captions(pipeline, delay="Delay in minutes")
    pipeline.declare(metadata=MetadataPolicy(on_conflict="keep"))
    assert '"Delay in minutes" as declared' in str(pipeline.run().warnings)


def test_a_format_that_its_column_cannot_have(pipeline: Pipeline):
    """Prevents: a column of texts gets a number format, which Tableau silently ignores."""
    (table,) = pipeline.declaration.tables
    pipeline.policy(table.policy, fields=(FieldMetadata("carrier", format="0.0%"),))
    refused(pipeline.run, "The format of carrier: 'p0.0%' is a number format, and the values are")


def test_new_columns_keep_what_people_made(pipeline: Pipeline):
    """Prevents: a new column removes users' calculated fields, or stops the refresh."""
    pipeline.run()
    other_users.adds_a_calculated_field(pipeline)
    pipeline.model("flights", flights(gate=flights()["delay"]))
    expected = "full publish: flights.gate is new (int)"
    assert pipeline.run().plan == Publish(PublishMode.OVERWRITE, expected, merged=True)
    for part in ("Delayed", "<remote-name>gate<"):
        assert part in pipeline.tds()
    assert not (pipeline.folder / "kept").exists()
    assert_at_rest(pipeline)


@pytest.mark.slow
def test_a_column_that_people_use_goes_only_if_that_is_accepted(pipeline: Pipeline):
    """Prevents: a refresh removes a column without a message, and breaks a calculated field."""
    captions(pipeline, carrier="Airline")
    pipeline.run()
    other_users.adds_a_calculated_field(pipeline)
    pipeline.model("flights", flights().drop_columns("flight_id"))
    expected = '"flight_id" of "Extract", still used in calculated field "Delayed", is gone'
    refused(lambda: pipeline.run(Accept.SCHEMA), expected)
    assert pipeline.run(Accept.OVERWRITE, Accept.SCHEMA).decision == "publish (overwrite)"
    assert "Delayed" not in pipeline.tds()
    assert len([*(pipeline.folder / "kept").iterdir()]) == 1
    assert_at_rest(pipeline, carrier="Airline")


@pytest.mark.few_variants(1)
@pytest.mark.parametrize("others", [False, True], ids=["same columns", "other columns"])
def test_adoption_merges(pipeline: Pipeline, *, others: bool):
    """Prevents: an adoption drops a user's calculated field, or replaces a user's caption."""
    rows = flights(8).append_column("gate", flights(8)["delay"]).drop_columns("delay")
    other_users.publishes(pipeline, rows if others else flights(5))
    other_users.adds_a_calculated_field(pipeline)
    other_users.captions_a_column(pipeline, "carrier", "Line")
    captions(pipeline, delay="Delay", carrier="Airline")
    pipeline.declare(adopt=True)
    warnings = str(pipeline.run().warnings)
    for part in ('"Airline" as declared, and "Line" on the server', "was saved as"):
        assert part in warnings
    assert "Delayed" in pipeline.tds()
    assert_at_rest(pipeline, delay="Delay", carrier="Line")


def test_a_server_without_mode_replace(new_pipeline: Callable[..., Pipeline]):
    """Prevents: full publishes fail on a server that does not know the publish mode Replace."""
    pipeline = new_pipeline(on={"replace": "refused"})
    pipeline.run()
    other_users.adds_a_calculated_field(pipeline)
    pipeline.model("flights", flights(delay=1))
    pipeline.run(full=True)
    assert "Delayed" in pipeline.tds()
    assert_at_rest(pipeline)


@pytest.mark.slow
def test_a_table_that_went_in_a_publish_nobody_knows_of(new_pipeline: Callable[..., Pipeline]):
    """Prevents: a refresh is killed while it drops a table, and no later refresh succeeds."""
    edges = (*STAR, Relationship("flights", "carriers", STAR[0].on))
    names = ("flights", "airlines", "carriers")
    pipeline = new_pipeline(on={"replace": "refused"}, tables=names, relationships=edges)
    pipeline.model("airlines", airlines())
    pipeline.model("carriers", airlines())
    pipeline.run()
    two = pipeline.declaration.tables[:2]
    pipeline.declare(tables=two, relationships=STAR, on_schema_change="publish")
    assert killed_before(pipeline, "publish")
    pipeline.run()
    assert_at_rest(pipeline)


FOLDERS = (
    b"<folders-common><folder name='Late'><folder-item name='[Calculation_1]' type='field' />"
    b"</folder></folders-common><object-graph"
)


class Upgrading(Proxy):
    """A server that returns metadata in an older form until the first publish."""

    is_old = True

    def metadata(self, luid: str) -> Metadata:
        held = self.behind.metadata(luid)
        return read_metadata(by_an_old_build(held.tds, Random(1))) if self.is_old else held

    def before(self, name: str, args: Sequence[Any]) -> None:
        self.is_old &= name != "publish"


@pytest.mark.slow
def test_a_server_that_rewrites_old_documents(pipeline: Pipeline):
    """Prevents: an adoption fails because the server rewrites metadata in another form."""
    other_users.publishes(pipeline, flights())
    other_users.adds_a_calculated_field(pipeline)
    other_users.edits(pipeline, lambda tds: tds.replace(b"<object-graph", FOLDERS))
    pipeline.declare(adopt=True)
    assert pipeline.run(around={"around_server": Upgrading}).decision == "publish (replace)"
    for part in ("Delayed", "Late"):
        assert part in pipeline.tds()
    assert_at_rest(pipeline)


class Dropping(Proxy):
    """A server that drops the caption "Delay" from published metadata."""

    def metadata(self, luid: str) -> Metadata:
        held = self.behind.metadata(luid)
        return read_metadata(re.sub(rb" caption=.Delay.", b"", held.tds))


def test_a_server_that_drops_what_was_sent(pipeline: Pipeline):
    """Prevents: a server drops a caption, and no warning says so."""
    captions(pipeline, delay="Delay")
    report = refresh(pipeline.refresh(around_server=Dropping), Options())
    expected = 'caption of delay (none instead of "Delay")'
    assert expected in str(report.warnings)


@pytest.mark.slow
def test_a_server_without_packages(new_pipeline: Callable[..., Pipeline]):
    """Prevents: a server refuses .tdsx packages, and no message names the cause or the remedy."""
    pipeline = new_pipeline(on={"packages": False})
    captions(pipeline, delay="Delay")
    expected = (
        r"not supported.* \(metadata: caption of delay\)\. If this is the cause: remove it from"
    )
    report = pipeline.run()
    assert re.search(expected, str(report.warnings))
    assert "Its rows are published. Its metadata is not set yet" in str(report.warnings)
    assert pipeline.wrong() == []
    assert report.checkpoint == pipeline.journal.checkpoint()
    with pytest.raises(RefusedError, match=expected):
        pipeline.run()
    captions(pipeline)
    assert_at_rest(pipeline)


@pytest.mark.slow
@pytest.mark.parametrize("nth", [1, 2])
def test_a_first_refresh_whose_download_is_refused(pipeline: Pipeline, nth: int):
    """Prevents: a first refresh counts as refused although it has published the rows."""
    captions(pipeline, delay="Delay")

    def refuse() -> None:
        raise RefusedError("You may not download it.")

    report = pipeline.run(
        around={"around_server": lambda server: At(server, "metadata", refuse, nth=nth)}
    )
    told = "You may not download it. Its metadata is not set yet"
    assert (told in str(report.warnings)) is (nth == 2)
    pipeline.run()
    assert_at_rest(pipeline, delay="Delay")


@pytest.mark.slow
def test_metadata_alone(pipeline: Pipeline):
    """Prevents: `metadata_only` waits for models, or publishes rows that it must leave out."""
    refused(lambda: pipeline.run(metadata_only=True), "Refresh without metadata_only")
    before = pipeline.run().checkpoint
    pipeline.model("flights", flights(20))
    captions(pipeline, delay="Delay")
    assert pipeline.run(metadata_only=True).checkpoint.tables == before.tables
    assert isinstance(pipeline.run(metadata_only=True).plan, NoChange)
    pipeline.run()
    assert_at_rest(pipeline, delay="Delay")


@pytest.mark.slow
@pytest.mark.parametrize("step", ["publish", "intent", "job", "outcome", "closing"])
def test_interrupted(pipeline: Pipeline, step: str):
    """Prevents: after an interruption, a refresh mistakes declared captions for users' edits."""
    captions(pipeline, delay="Delay", carrier="Airline")
    pipeline.run()
    for line in ("Airline", "Line"):
        captions(pipeline, delay=f"Late by {line}", carrier="Airline")
        assert killed_before(pipeline, step)
        if line != "Airline":
            other_users.captions_a_column(pipeline, "carrier", line)
        captions(pipeline, delay=f"Lateness by {line}", carrier="Airline")
        pipeline.run()
        assert_at_rest(pipeline, delay=f"Lateness by {line}", carrier=line)


@pytest.mark.slow
@pytest.mark.parametrize(
    "killed", ["publish 2", "publish", "job", "outcome", "tag", "closing", "job 2", "outcome 2"]
)
def test_first_refresh_is_interrupted(pipeline: Pipeline, killed: str):
    """Prevents: the first refresh is killed, and no later refresh publishes the metadata."""
    captions(pipeline, delay="Delay")
    step, *second = killed.split()
    assert killed_before(pipeline, step, nth=2 if second else 1)
    pipeline.run()
    assert_at_rest(pipeline, delay="Delay")


@pytest.mark.slow
def test_an_edit_between_the_two_first_publishes(pipeline: Pipeline):
    """Prevents: the second publish of a first refresh overwrites the edit of a user."""
    captions(pipeline, delay="Delay")

    def edited(server: Any) -> At:
        edit = partial(other_users.captions_a_column, pipeline, "carrier", "Line")
        return At(server, "upload", edit, nth=2)

    report = pipeline.run(around={"around_server": edited})
    assert "Its metadata is not set yet" in str(report.warnings)
    pipeline.run()
    assert_at_rest(pipeline, delay="Delay", carrier="Line")


@pytest.mark.slow
@pytest.mark.parametrize("nth", [1, 2])
def test_a_publish_that_misses_its_data_source(pipeline: Pipeline, nth: int):
    """Prevents: a user renames the data source during a publish, and its metadata are lost."""
    pipeline.declare(reconcile=Reconcile(by="download"))
    if nth == 1:
        pipeline.run()
    captions(pipeline, delay="Delay")
    # A refresh checks that its publish has kept formulas that call USERNAME(). The rename must not
    # make this check fail.
    pipeline.declare(calculations=(Calculation("Mine", formula="[carrier] = USERNAME()"),))
    new_name = f"{pipeline.name} of Ann"

    def renamed(server: Any) -> At:
        rename = partial(other_users.changes, pipeline, name=new_name)
        return At(server, "publish", rename, nth=nth)

    report = pipeline.run(around={"around_server": renamed})
    assert "may be a second data source of that name" in report.summary + str(report.warnings)
    pipeline.declare(name=new_name)
    assert_at_rest(pipeline, delay="Delay")


@pytest.mark.slow
@pytest.mark.few_variants(1)
@pytest.mark.parametrize("after", ["a failure", "a crash", "an unknown outcome"])
def test_they_come_back_where_replace_drops_them(new_pipeline: Callable[..., Pipeline], after: str):
    """Prevents: after a failed publish, no refresh restores captions that a server drops."""
    pipeline = new_pipeline(on={"replace": "like-overwrite"})
    pipeline.declare(republish=Republish(growth=1e-6))
    captions(pipeline, delay="Delay")
    pipeline.run()
    pipeline.model("flights", flights(9))
    if after == "a crash":
        assert killed_before(pipeline, "publish", nth=2)
    elif after == "an unknown outcome":
        assert killed_before(pipeline, "job")
        later(pipeline)
    else:
        with pipeline.sandbox.armed(FailJob(nth=2)), pytest.raises(RefreshError):
            pipeline.run()
    assert "Delay" not in pipeline.tds()
    pipeline.run()
    assert_at_rest(pipeline, delay="Delay")


@pytest.mark.slow
def test_metadata_of_other_tables(pipeline: Pipeline):
    """Prevents: refreshes with captions fail if the published metadata name other tables."""
    other_users.publishes(pipeline, flights(5), user=ADMIN)
    other_users.makes_it_an_extract(pipeline)
    captions(pipeline, delay="Delay")
    pipeline.declare(adopt=True)
    for _ in range(3):
        report = pipeline.run()
        assert pipeline.wrong() == []
    assert isinstance(report.plan, NoChange)


@pytest.mark.slow
def test_comments_of_a_model_are_descriptions(pipeline: Pipeline):
    """Prevents: descriptions do not show a model's comments, or change at each refresh."""
    comments = {"delay": "Minutes late.", "carrier": "Its code."}
    snapshot(pipeline.folder / "snapshots", flights(9), comments=comments)
    pipeline.policy(ReplaceAll(), fields=(FieldMetadata("carrier", description="The airline."),))
    pipeline.run()
    expected = re.findall("<run>(.+?)</run>", pipeline.tds())
    assert sorted(expected) == ["Minutes late.", "The airline."]
    assert_at_rest(pipeline)
