"""What people have made in a data source is kept, or named before it goes."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import obstore
import pytest

from tableau_pipeline.core.checkpoint import PublishMode
from tableau_pipeline.core.declaration import ReplaceAll
from tableau_pipeline.errors import RefreshError, RefusedError
from tableau_pipeline.metadata.digest import read_metadata
from tableau_pipeline.metadata.fields import FieldMetadata
from tableau_pipeline.objects.stores import opened
from tableau_pipeline.publishing.rest import tds_in
from tableau_pipeline.refresh.plan import Accept, NoChange, Options, Publish, UpdateTables
from tableau_pipeline.refresh.refresh import refresh
from tableau_pipeline_tests.deployment.object_stores import S3Server
from tableau_pipeline_tests.refresh.support import other_users
from tableau_pipeline_tests.refresh.support.models import flights
from tableau_pipeline_tests.refresh.support.other_users import ADMIN
from tableau_pipeline_tests.refresh.support.pipeline import Pipeline

OTHER_SCHEMA = flights(8).append_column("gate", flights(8)["delay"])


def saved(pipeline: Pipeline) -> list[Path]:
    """The packages that refreshes have kept."""
    return sorted((pipeline.folder / "kept").glob("*.tdsx"))


def mode_of(pipeline: Pipeline, *accept: Accept, **options: bool) -> PublishMode:
    plan = pipeline.run(*accept, **options).plan
    assert isinstance(plan, Publish), plan
    return plan.mode


def adopting(pipeline: Pipeline, rows: object = None) -> str:
    """Somebody's data source with a calculated field, which is to become ours; its LUID."""
    hers = other_users.publishes(pipeline, flights(5) if rows is None else rows)
    other_users.adds_a_calculated_field(pipeline)
    pipeline.declare(adopt=True)
    return str(hers.id)


def test_adoption_keeps_calculated_fields(pipeline: Pipeline):
    """Prevents: `adopt: true` drops the calculated fields of the person it takes over from."""
    luid = adopting(pipeline)
    assert "publish (replace)" in pipeline.decide()
    assert saved(pipeline) == [], "a dry run keeps nothing"
    report = pipeline.run()
    assert report.plan == Publish(
        PublishMode.REPLACE,
        "first publish: takes over the data source (adopt), which has the same tables and columns",
    )
    assert [item.id for item in pipeline.found()] == [luid]
    assert pipeline.wrong() == []
    assert other_users.CALCULATION[:24] in pipeline.tds()
    (file,) = saved(pipeline)
    assert str(file) in str(report.warnings)
    assert read_metadata(tds_in(file)).work == {"calculated fields": ("Delayed",)}
    pipeline.declare(adopt=False)
    assert isinstance(pipeline.run().plan, NoChange)


def test_adopted_extract_of_a_database(pipeline: Pipeline):
    """Prevents: the second refresh of what was an extract drops the work that the first kept, or
    sends an update that no server applies to an extract."""
    other_users.publishes(pipeline, flights(5), user=ADMIN)
    other_users.makes_it_an_extract(pipeline)
    pipeline.declare(adopt=True)
    assert mode_of(pipeline) is PublishMode.REPLACE
    assert isinstance(pipeline.run().plan, NoChange)
    pipeline.model("flights", flights(8, delay=1))
    plan = pipeline.run().plan
    assert isinstance(plan, Publish)
    assert plan.mode is PublishMode.REPLACE
    assert "takes no updates" in plan.reason
    assert pipeline.wrong() == []
    assert other_users.CALCULATION[:24] in pipeline.tds()
    # To let it take updates, its metadata has to go: that is asked for.
    assert mode_of(pipeline, Accept.OVERWRITE, full=True) is PublishMode.OVERWRITE
    pipeline.model("flights", flights(8, delay=2))
    assert isinstance(pipeline.run().plan, UpdateTables)
    assert pipeline.wrong() == []


def test_adoption_names_what_it_would_drop(star: Pipeline):
    """Prevents: work is gone, and nobody was told which."""
    pipeline = star
    adopting(pipeline, OTHER_SCHEMA)
    before = pipeline.tds()
    for look in (pipeline.decide, pipeline.run):
        try:
            said = str(look())
        except RefusedError as error:
            said = str(error)
        for part in ('calculated fields "Delayed"', "accept: [overwrite]", "kept"):
            assert part in said
        assert "Extract.gate (INTEGER) would go" in said
    assert pipeline.tds() == before
    assert mode_of(pipeline, Accept.OVERWRITE) is PublishMode.OVERWRITE
    assert pipeline.wrong() == []
    (file,) = saved(pipeline)
    assert read_metadata(tds_in(file)).work == {"calculated fields": ("Delayed",)}


def test_adoption_by_a_server_that_keeps_nothing_is_red(new_pipeline: Callable[..., Pipeline]):
    """Prevents: Replace drops the work after all, and the run is green."""
    pipeline = new_pipeline(on={"replace": "like-overwrite"})
    adopting(pipeline)
    with pytest.raises(RefreshError) as caught:
        pipeline.run()
    (file,) = saved(pipeline)
    for part in (str(file), 'calculated fields "Delayed"', "Replace"):
        assert part in str(caught.value)
    assert pipeline.wrong() == []


def test_what_cannot_be_kept_is_not_replaced(pipeline: Pipeline):
    """Prevents: a full disk where the package is kept, and the work is replaced all the same."""
    adopting(pipeline)
    (pipeline.folder / "kept").write_text("no folder", "utf-8")
    before = pipeline.tds()
    with pytest.raises(RefreshError, match="kept"):
        pipeline.run()
    assert pipeline.tds() == before


@pytest.mark.slow
def test_work_is_kept_in_an_object_store(
    pipeline: Pipeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Prevents: what was saved, or set in the metadata, is gone with the container that ran."""
    adopting(pipeline)
    pipeline.policy(ReplaceAll(), fields=(FieldMetadata("delay", caption="Delay"),))
    with S3Server(tmp_path / "server").running() as store:
        for name, value in store.settings.items():
            monkeypatch.setenv(name, value)
        opened.cache_clear()
        url = f"{store.url}/kept"
        report = refresh(replace(pipeline.refresh(), kept=url), Options())
        (found,) = obstore.list(opened(url)).collect()
        assert f"{url}/{found['path']}" in str(report.warnings)
        file = tmp_path / "kept.tdsx"
        pipeline.policy(ReplaceAll(), fields=(FieldMetadata("delay", caption="Late"),))
        assert not refresh(replace(pipeline.refresh(), kept=url), Options()).warnings
        assert other_users.captions(pipeline)["delay"] == "Late"
        file.write_bytes(bytes(obstore.get(opened(url), found["path"]).bytes()))
    opened.cache_clear()
    assert read_metadata(tds_in(file)).work == {"calculated fields": ("Delayed",)}


def test_column_that_another_user_published_is_not_dropped_unasked(pipeline: Pipeline):
    """Prevents: a column that somebody added by publishing is gone, and nobody was asked."""
    pipeline.run()
    other_users.publishes(pipeline, OTHER_SCHEMA, user=ADMIN)
    before = pipeline.tds()
    with pytest.raises(RefusedError) as caught:
        pipeline.run()
    for part in ('has the column "gate" of "Extract", which is not ours', "accept: [overwrite]"):
        assert part in str(caught.value)
    assert pipeline.tds() == before
    assert mode_of(pipeline, Accept.OVERWRITE) is PublishMode.OVERWRITE
    assert pipeline.wrong() == []
    assert "<remote-name>gate<" not in pipeline.tds()
    assert isinstance(pipeline.run().plan, NoChange)
