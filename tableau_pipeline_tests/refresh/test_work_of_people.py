"""A refresh keeps the edits of users; if it removes an edit, it saves a copy and warns."""

import re
import zipfile
from collections.abc import Callable

import pytest

from tableau_pipeline.core.fields import Calculation, FieldMetadata, MetadataPolicy
from tableau_pipeline.core.policies import ReplaceAll
from tableau_pipeline.errors import RefreshError, UnreachableError, UnreadableError
from tableau_pipeline.metadata.contents import Metadata
from tableau_pipeline.metadata.document import local_name
from tableau_pipeline.outcome import Accept
from tableau_pipeline.refresh.decide import NoChange
from tableau_pipeline.refresh.preview import preview
from tableau_pipeline_tests.refresh.support import other_users
from tableau_pipeline_tests.refresh.support.crashes import killed_before
from tableau_pipeline_tests.refresh.support.models import flights
from tableau_pipeline_tests.refresh.support.pipeline import Pipeline, session
from tableau_pipeline_tests.refresh.support.proxies import Proxy
from tableau_pipeline_tests.refresh.support.shipping import refused

ALIASES = b"<aliases><alias key='&quot;AA&quot;' value='American' /></aliases></column>"
FOLDER = (
    b"<folders-common><folder name='Lines'><folder-item name='[carrier]' type='field' /></folder>"
    b"</folders-common><layout"
)


def captions(pipeline: Pipeline, **captions: str) -> None:
    """Declare these captions, and remove all other captions from the declaration."""
    fields = tuple(FieldMetadata(name, caption=text) for name, text in captions.items())
    pipeline.policy(ReplaceAll(), fields=fields)


def saved(pipeline: Pipeline) -> list[str]:
    """Return the metadata in the copies that refreshes have saved."""
    found = []
    for path in sorted((pipeline.folder / "kept").glob("*")):
        with zipfile.ZipFile(path) as package:
            (name,) = (each for each in package.namelist() if each.endswith(".tds"))
            found.append(package.read(name).decode())
    return found


def works_on_a_column(pipeline: Pipeline) -> None:
    """Give a column a caption, aliases and a new folder, as a user does."""
    other_users.captions_a_column(pipeline, "carrier", "Line")
    column = rb"(<column [^>]*name=.\[carrier\].[^>]*?) ?/>"
    other_users.edits(pipeline, lambda tds: re.sub(column, rb"\1>" + ALIASES, tds))
    other_users.edits(pipeline, lambda tds: tds.replace(b"<layout", FOLDER, 1))


@pytest.mark.slow
def test_a_column_goes_and_returns(pipeline: Pipeline):
    """Prevents: a refresh removes a column with users' edits, and no warning names a copy."""
    pipeline.policy(ReplaceAll())
    pipeline.run()
    works_on_a_column(pipeline)
    other_users.adds_a_calculated_field(pipeline)
    pipeline.model("flights", flights(7).drop_columns("carrier"))
    work = 'what people made of it: caption "Line", folder "Lines", aliases'
    work = f"Removing carrier also removes {work}"
    refused(pipeline.run, "accept: [schema]", work)
    assert saved(pipeline) == []
    pipeline.declare(on_schema_change="publish")
    with session(pipeline.sandbox) as site:
        assert work in str(preview(pipeline.refresh(), site).notes)
    report = pipeline.run()
    assert work in str(report.warnings)
    assert ["Line" in each and "American" in each for each in saved(pipeline)] == [True]
    assert "Delayed" in pipeline.tds()
    assert "Line" not in pipeline.tds()
    pipeline.model("flights", flights(8).drop_columns("carrier"))
    assert pipeline.run().warnings == ()
    pipeline.model("flights", flights(8))
    (warning,) = pipeline.run().warnings
    (file,) = (pipeline.folder / "kept").iterdir()
    for part in ("carrier is back", 'caption "Line"', str(file)):
        assert part in warning
    report = pipeline.run()
    assert isinstance(report.plan, NoChange)
    assert report.warnings == ()


@pytest.mark.slow
def test_a_column_goes_that_only_the_declaration_describes(pipeline: Pipeline):
    """Prevents: a refresh takes the declared metadata of a column for users' edits, and warns."""
    fields = (FieldMetadata("carrier", caption="Airline"), FieldMetadata("delay", caption="Late"))
    pipeline.policy(ReplaceAll(), fields=fields)
    pipeline.run()
    other_users.adds_a_calculated_field(pipeline)
    pipeline.policy(ReplaceAll(), fields=fields[1:])
    pipeline.model("flights", flights().drop_columns("carrier"))
    assert pipeline.run(Accept.SCHEMA).warnings == ()
    assert saved(pipeline) == []


@pytest.mark.slow
@pytest.mark.few_variants(1)
@pytest.mark.parametrize("replace", ["keeps-metadata", "refused"])
def test_a_database_in_place_of_our_file(new_pipeline: Callable[..., Pipeline], replace: str):
    """Prevents: a user connects the data source to a database, and no refusal names a remedy."""
    pipeline = new_pipeline(on={"replace": replace})
    pipeline.run()
    other_users.connects_to_a_database(pipeline)
    pipeline.model("flights", flights(9))
    texts = ("the published data source has no .hyper file", '"Delayed"', "accept: [overwrite]")
    refused(pipeline.run, *texts)
    assert pipeline.run(Accept.OVERWRITE).decision == "publish (overwrite)"
    assert pipeline.wrong() == []
    assert [file.suffix for file in (pipeline.folder / "kept").iterdir()] == [".tds"]


@pytest.mark.slow
def test_a_caption_that_is_also_declared_for_a_while(pipeline: Pipeline):
    """Prevents: a refresh removes a user's caption that was also declared for a while."""
    pipeline.run()
    other_users.captions_a_column(pipeline, "carrier", "Line")
    for fields in ((FieldMetadata("carrier", caption="Line"),), ()):
        pipeline.policy(ReplaceAll(), fields=fields)
        pipeline.run()
        assert other_users.captions(pipeline) == {"carrier": "Line"}


@pytest.mark.slow
def test_a_caption_that_another_field_has(pipeline: Pipeline):
    """Prevents: a refresh gives a column the caption of an analyst's field."""
    captions(pipeline, delay="Delay")
    pipeline.run()
    other_users.adds_a_calculated_field(pipeline)
    captions(pipeline, delay="Delayed", flight_id="Flight")
    conflict = (
        'caption of delay is "Delayed" as declared, and "Delay" on the server, where another field '
        'has the name "Delayed"'
    )
    for _ in range(2):
        assert conflict in str(pipeline.run().warnings)
        assert other_users.captions(pipeline) == {"delay": "Delay", "flight_id": "Flight"}
    pipeline.declare(metadata=MetadataPolicy(on_conflict="refuse"))
    refused(pipeline.run, conflict)
    other_users.edits(pipeline, lambda tds: tds.replace(b"'Delayed'", b"'Late'"))
    other_users.edits(pipeline, lambda tds: tds.replace(b'"Delayed"', b'"Late"'))
    assert pipeline.run().warnings == ()
    assert other_users.captions(pipeline) == {"delay": "Delayed", "flight_id": "Flight"}


@pytest.mark.slow
def test_a_new_column_with_the_name_of_a_field(pipeline: Pipeline):
    """Prevents: a refresh gives a new column the name of an analyst's field."""
    pipeline.run()
    other_users.adds_a_calculated_field(pipeline)
    pipeline.model("flights", flights(Delayed=flights()["delay"]))
    pipeline.run()
    assert "<local-name>[Delayed (Extract)]<" in pipeline.tds()
    assert isinstance(pipeline.run().plan, NoChange)
    assert pipeline.wrong() == []


@pytest.mark.slow
def test_a_calculation_goes_that_a_field_uses(pipeline: Pipeline):
    """Prevents: a refusal promises a copy that no run saves, or a user's broken field stays."""
    captions(pipeline, delay="Delay")
    pipeline.declare(calculations=(Calculation(name="Half", formula="[delay] / 2"),))
    pipeline.run()
    local = local_name("Half").encode()
    other_users.adds_a_calculated_field(pipeline)
    other_users.edits(pipeline, lambda tds: tds.replace(b"[flight_id] &gt; 1", local + b" &gt; 1"))
    pipeline.declare(calculations=())
    problem = 'the calculation "Half", still used in calculated field "Delayed", is gone'
    refused(pipeline.run, problem, "saves the data source")
    pipeline.run(Accept.OVERWRITE)
    assert ["Delayed" in each and "Half" in each for each in saved(pipeline)] == [True]
    assert "Delayed" not in pipeline.tds()
    assert other_users.captions(pipeline) == {"delay": "Delay"}


def test_a_change_that_breaks_nothing_drops_nothing(pipeline: Pipeline):
    """Prevents: `accept: [overwrite]` drops users' edits although only a caption changes."""
    pipeline.run()
    other_users.adds_a_calculated_field(pipeline)
    captions(pipeline, delay="Delay")
    pipeline.run(Accept.OVERWRITE)
    assert "Delayed" in pipeline.tds()
    assert saved(pipeline) == []


def unreadable(pipeline: Pipeline) -> None:
    """Give the data source a `.tds` that this pipeline cannot read."""
    deep = b"<deep>" * 300 + b"</deep>" * 300 + b"<layout"
    other_users.edits(pipeline, lambda tds: tds.replace(b"<layout", deep, 1))


@pytest.mark.slow
@pytest.mark.parametrize("killed", ["", "closing"])
def test_a_document_that_cannot_be_read(pipeline: Pipeline, killed: str):
    """Prevents: a data source gets no new rows because its `.tds` cannot be read."""
    captions(pipeline, delay="Delay")
    assert killed_before(pipeline, killed) if killed else pipeline.run()
    unreadable(pipeline)
    warning = "cannot be read, so they stay unchanged"
    for rows in (8, 9):
        pipeline.model("flights", flights(rows))
        assert warning in str(pipeline.run().warnings)
        assert pipeline.wrong() == []
    pipeline.model("flights", flights(9).drop_columns("carrier"))
    refused(lambda: pipeline.run(Accept.SCHEMA), "accept: [overwrite]")
    pipeline.run(Accept.SCHEMA, Accept.OVERWRITE)
    assert ["<deep" in each for each in saved(pipeline)] == [True]
    assert pipeline.run().warnings == ()
    assert other_users.captions(pipeline) == {"delay": "Delay"}


def test_a_document_of_others_that_cannot_be_read(pipeline: Pipeline):
    """Prevents: a refresh adopts a data source whose metadata it cannot read."""
    other_users.publishes(pipeline, flights())
    unreadable(pipeline)
    pipeline.declare(adopt=True)
    refused(pipeline.run, "cannot be read", error=RefreshError)


class Mangling(Proxy):
    """A server whose metadata the pipeline cannot read."""

    def metadata(self, luid: str) -> Metadata:
        raise UnreadableError(f"The server sent {luid} in a form that cannot be read.")


def test_a_server_that_makes_documents_that_cannot_be_read(pipeline: Pipeline):
    """Prevents: the first refresh fails although it has created the data source."""
    captions(pipeline, delay="Delay")
    for rows in (7, 8):
        pipeline.model("flights", flights(rows))
        report = pipeline.run(around={"around_server": Mangling})
        assert "cannot be read" in str(report.warnings)
        assert pipeline.wrong() == []


def test_a_copy_of_a_refresh_that_fails(pipeline: Pipeline, caplog: pytest.LogCaptureFixture):
    """Prevents: a publish without an answer removes edits, and no message names the saved copy."""
    pipeline.run()
    works_on_a_column(pipeline)

    class Silent(Proxy):
        def publish(self, *args: object, **more: object) -> str:
            self.behind.publish(*args, **more)
            raise UnreachableError("no answer.")

    with pytest.raises(RefreshError, match="no answer"):
        pipeline.run(Accept.OVERWRITE, full=True, around={"around_server": Silent})
    (path,) = (pipeline.folder / "kept").glob("*")
    assert f"was saved as {path}" in caplog.text
