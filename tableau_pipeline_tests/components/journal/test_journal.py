"""What Dagster keeps of refreshes."""

from typing import Any

import dagster as dg
import pytest

from tableau_pipeline.components.journal import JOURNAL, records_of
from tableau_pipeline.core.journal import ClaimRelease
from tableau_pipeline.core.snapshot import Fingerprint, Part
from tableau_pipeline_tests.components.support.location import MODEL, Location, decision, failure
from tableau_pipeline_tests.components.support.records import look, store, withheld
from tableau_pipeline_tests.refresh.support.models import flights


@pytest.mark.slow
@pytest.mark.parametrize("others", [0, pytest.param(60, marks=pytest.mark.slow)])
def test_a_checkpoint_that_is_stored_late_is_none_of_the_newest(
    location: Location, monkeypatch: pytest.MonkeyPatch, others: int
):
    """Prevents: an older run, whose record comes last, brings back what was published before."""
    location.model()
    with withheld(ClaimRelease, monkeypatch=monkeypatch) as late:
        assert location.refresh("busy").success
    location.model(flights(9))
    assert location.refresh("busy").success
    newest = location.checkpoint("busy")
    look(location, others)
    (closing,) = late
    assert closing.refresh < newest.refresh
    store(location, closing)
    assert location.checkpoint("busy") == newest
    assert decision(location.refresh("busy")).startswith("no change")
    assert location.wrong("busy") == []


def test_a_lost_checkpoint_leaves_the_guards_on(location: Location):
    """Prevents: 1,000 rows that become one, unasked, because no record of the 1,000 is left."""
    location.model()
    assert location.refresh("busy").success
    checkpoint = location.checkpoint("busy")
    location.instance.wipe_assets([JOURNAL])
    location.model(flights(1))
    assert "1 rows where 8 are published" in failure(location.refresh("busy"))
    location.model(flights(7))
    assert "no record shows what it holds" in decision(location.refresh("busy"))
    assert location.wrong("busy") == []
    assert location.checkpoint("busy").luid == checkpoint.luid
    assert decision(location.refresh("busy")).startswith("no change")


@pytest.mark.slow
def test_deleted_runs_take_no_records_along(location: Location):
    """Prevents: everything is published again after somebody tidied up the list of runs."""
    location.model()
    result = location.refresh("busy")
    assert result.success
    location.instance.delete_run(result.run_id)
    assert decision(location.refresh("busy")).startswith("no change")


@pytest.mark.slow
def test_records_are_small_and_few_are_read(location: Location, monkeypatch: pytest.MonkeyPatch):
    """Prevents: megabytes in Dagster's database for each refresh of a model by hours, and a
    refresh that reads all of them, again and again."""
    hours = location.partitions[MODEL] = dg.StaticPartitionsDefinition(
        [str(n) for n in range(5000)]
    )
    written = location.model(flights(8))
    nothing = Fingerprint(rows=0, hash_sum=0)
    parts = [
        Part(partition=key, version=2, fingerprint=nothing, files=())
        for key in hours.get_partition_keys()[1:]
    ]
    whole = written.parts[0].model_copy(update={"partition": "0"})
    location.store.commit(
        MODEL,
        lambda number, _: written.model_copy(update={"number": number, "parts": (whole, *parts)}),
    )
    assert location.refresh("busy").success
    assert location.wrong("busy") == []
    records = records_of(location.instance, "busy")
    assert max(len(record.model_dump_json()) for record in records) < 3000
    look(location, 200)
    assert location.refresh("busy").success
    pages, fetch = [], dg.DagsterInstance.fetch_observations

    def counted(instance: dg.DagsterInstance, *args: Any, **more: Any) -> Any:
        pages.append(more["limit"])
        return fetch(instance, *args, **more)

    monkeypatch.setattr(dg.DagsterInstance, "fetch_observations", counted)
    assert location.refresh("busy").success
    assert len(pages) <= 5, "two for each look at the records; Dagster itself takes one"
