"""Custom batches, and the data sources that they may change."""

import dagster as dg
import pytest

from tableau_pipeline.actions.batch import Batch, Delete, target
from tableau_pipeline.components import send_batch
from tableau_pipeline.core.identity import INSTANCE_TAG_PREFIX
from tableau_pipeline.resources import TableauServerResource
from tableau_pipeline_tests.components.support.location import Location, failure, rows_on
from tableau_pipeline_tests.refresh.support.pipeline import session

THEIRS = f"{INSTANCE_TAG_PREFIX}of-others"


@dg.asset
def forget(context: dg.AssetExecutionContext, tableau: TableauServerResource) -> None:
    """Delete a row of the data source."""
    leaving = Delete(target="Extract", where=target("flight_id") == 1)
    send_batch(context, "shared", batch=Batch([leaving]), tableau=tableau)


@pytest.fixture
def sent(location: Location):
    """A function that runs the asset `forget`."""
    return lambda: dg.materialize(
        [forget],
        instance=location.instance,
        resources={"tableau": location.resources()["tableau"]},
        raise_on_error=False,
    )


def taken_over(location: Location, tag: str, *, keeps_key: bool = True) -> str:
    """Publish "shared", replace our tags by another tag, and return the LUID."""
    location.model()
    assert location.refresh("shared").success
    with session(location.sandbox) as site:
        (item,) = (each for each in site.tsc.datasources.all() if each.name == "shared")
        ours = {tag for tag in item.tags if tag.startswith(INSTANCE_TAG_PREFIX)}
        site.untag(str(item.id), ours if keeps_key else set(item.tags))
        site.tag(str(item.id), {tag})
    return str(item.id)


@pytest.mark.slow
def test_what_others_have_taken_over(location: Location, sent):
    """Prevents: a batch changes another deployment's data source, or removes its tag."""
    luid = taken_over(location, THEIRS)
    before = rows_on(location.sandbox, "shared")
    refused = failure(sent())
    assert f'is published by another deployment of this pipeline (tag "{THEIRS}")' in refused
    assert "Nothing was sent: once that is done, send the batch" in refused
    assert rows_on(location.sandbox, "shared") == before
    with session(location.sandbox) as site:
        remote = site.find_by_luid(luid)
    assert remote
    assert remote.instances == {"of-others"}


@pytest.mark.slow
def test_what_another_key_has(location: Location, sent):
    """Prevents: a batch changes a data source of another declaration, or removes its tag."""
    taken_over(location, "tableau-pipeline:theirs", keeps_key=False)
    assert 'is published under the key "theirs"' in failure(sent())


@pytest.mark.slow
def test_what_another_environment_has(location: Location, sent):
    """Prevents: an error advises a takeover that no refresh may perform."""
    taken_over(location, f"{THEIRS}@Staging")
    message = failure(sent())
    assert "is published by another environment" in message
    assert "takeover" not in message
