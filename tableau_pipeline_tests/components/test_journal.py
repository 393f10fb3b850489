"""What Dagster keeps of refreshes, and that it stays findable however much has happened since."""

from datetime import UTC, datetime
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest
from sqlalchemy import text

from tableau_pipeline.components.journal import JOURNAL, journal_event, records_of
from tableau_pipeline.core.checkpoint import Outcome
from tableau_pipeline.core.journal import (
    Claim,
    ClaimRelease,
    Intent,
    Owner,
    Record,
    Recovered,
    read_history,
)
from tableau_pipeline.core.snapshot import Fingerprint, Part
from tableau_pipeline_tests.components.support.location import (
    KEY,
    MODEL,
    Location,
    decision,
    failure,
    look,
    store,
    withheld,
)
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


OTHER_TYPE = flights(8).set_column(2, "delay", pa.array(["late"] * 8))


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of the pages that anybody reads of Dagster's observations."""
    pages: list[int] = []
    fetch = dg.DagsterInstance.fetch_observations

    def counted(instance: dg.DagsterInstance, *args: Any, **more: Any) -> Any:
        pages.append(more["limit"])
        return fetch(instance, *args, **more)

    monkeypatch.setattr(dg.DagsterInstance, "fetch_observations", counted)
    return pages


def refused(location: Location, times: int) -> None:
    """Add the records of refreshes that were refused, as an automation leaves every half hour."""
    first = location.history("busy").number + 1
    for number in range(first, first + times):
        claim = Claim(refresh=number, owner=Owner(run_id="gone"))
        store(location, claim)
        store(location, ClaimRelease(refresh=number, claim=claim.id, run_id="gone"))


def multiply(location: Location, asset_key: dg.AssetKey, times: int) -> None:
    """Add copies of all events of an asset to Dagster's database: by the thousands in no time."""
    columns = "run_id, event, dagster_event_type, timestamp, step_key, asset_key, partition"
    key = asset_key.to_string()
    storage: Any = location.instance.event_log_storage
    copies = f"INSERT INTO event_logs ({columns}) SELECT {columns} FROM event_logs"
    with storage.index_connection() as connection:
        for _ in range(times.bit_length() - 1):
            connection.execute(text(f"{copies} WHERE asset_key = :key"), {"key": key})


def check_never_forgotten(
    location: Location, reads: list[int], *, others: int, own: int, factor: int = 1
) -> None:
    """A checkpoint, and a type change that was refused for long, are still known."""
    location.model()
    assert location.refresh("busy").success
    location.model(OTHER_TYPE)
    assert "schema changed" in failure(location.refresh("busy"))
    published = location.history("busy").checkpoint
    look(location, others)
    multiply(location, KEY, factor)
    refused(location, own)
    reads.clear()
    assert location.history("busy").checkpoint == published
    assert len(reads) == 2
    reads.clear()
    assert "schema changed" in failure(location.refresh("busy"))
    assert len(reads) <= 5, "two for each look at the records; Dagster itself takes one"
    assert sum(reads) <= 300
    # Its snapshot stays, too.
    location.days_pass()
    location.model(asset_key="raw/other")
    assert location.refresh("other", keep_days=1e-9).success
    assert 1 in location.stored(MODEL)
    # The name in the declaration changes: it is still the same data source.
    luid = location.checkpoint("busy").luid
    location.model(flights(8))
    assert location.refresh("busy", declared={"name": "busier"}).success
    assert location.checkpoint("busy").luid == luid
    assert location.wrong("busy", {"name": "busier"}) == []


def test_checkpoint_is_found_after_60_refusals(location: Location, reads: list[int]):
    """Prevents: a type change that was refused for days is published by itself; twins."""
    check_never_forgotten(location, reads, others=30, own=60)


@pytest.mark.slow
def test_checkpoint_is_found_after_10_000_observations(location: Location, reads: list[int]):
    """Prevents: the same after a year of refusals, dry runs and other people's sensors."""
    check_never_forgotten(location, reads, others=40, own=300, factor=256)


def interrupted(location: Location, times: int) -> None:
    """Add the records of refreshes that were killed while they sent, one after another."""
    base, known = location.checkpoint("busy"), records_of(location.instance, "busy")
    for _ in range(times):
        history = read_history(known)
        number = history.number + 1
        recovered = history.recovered
        for each in history.intents:
            recovered = recovered.after(each.model_copy(update={"outcome": Outcome.LOST}))
        intent = Intent(
            refresh=number,
            recorded_at=datetime.now(UTC),
            run_id="gone",
            mode=None,
            name="busy",
            project_id="",
            luid=base.luid,
            target=base.model_copy(update={"refresh": number}),
        )
        records: list[Record] = [Claim(refresh=number, owner=Owner(run_id="gone"))]
        records += [recovered.recorded_by(number)] if history.intents else []
        known += (*records, intent)
        for record in (*records, intent):
            store(location, record)


def test_checkpoint_is_found_after_60_kills(location: Location, reads: list[int]):
    """Prevents: a refresh that is killed every night for months costs more and more reads."""
    location.model()
    assert location.refresh("busy").success
    luid = location.checkpoint("busy").luid
    interrupted(location, 60)
    reads.clear()
    history = location.history("busy")
    assert len(reads) <= 2
    assert history.checkpoint
    assert history.checkpoint.luid == luid
    assert len(history.intents) == 1, "the last one; the others are accounted for"
    assert "interrupted" in decision(location.refresh("busy"))
    assert location.wrong("busy") == []


def test_a_refused_refresh_of_a_lost_request_keeps_what_it_found_out(location: Location):
    """Prevents: the job of an interrupted request is asked for again and again, until it is
    forgotten."""
    location.model()
    assert location.refresh("busy").success
    interrupted(location, 1)
    location.model(OTHER_TYPE)
    assert not location.refresh("busy").success
    history = location.history("busy")
    assert history.intents == ()
    assert "interrupted" in str(history.recovered.distrust)


def newer(record: Record) -> dg.AssetObservation:
    """A record as a later release may store it."""
    event = journal_event("busy", record)
    ((name, value),) = event.metadata.items()
    assert isinstance(value, dg.JsonMetadataValue)
    assert isinstance(value.data, dict)
    data = {**value.data, "format": 99, "release": "9.8.7", "tenant": "north"}
    return dg.AssetObservation(
        event.asset_key, partition=event.partition, metadata={name: dg.MetadataValue.json(data)}
    )


CLAIM = Claim(refresh=7, owner=Owner(run_id="newer"))


@pytest.mark.parametrize(
    "record", [CLAIM, Recovered(refresh=7, through=6)], ids=["claim", "requests"]
)
def test_a_record_of_a_later_release_stops_a_refresh(location: Location, record: Record):
    """Prevents: in a rolling upgrade the old release sends beside the new one, as it does not see
    the claim or the open request of that one."""
    location.model()
    assert location.refresh("busy").success
    location.model(flights(7))
    jobs = len(location.jobs("busy"))
    location.instance.report_runless_asset_event(newer(record))
    for config in ({}, {"dry_run": True}, {"full": True}):
        message = failure(location.refresh("busy", **config))
        assert "release 9.8.7 of tableau_pipeline wrote it" in message
        assert JOURNAL.to_user_string() in message
        assert "Upgrade this deployment" in message
    assert len(location.jobs("busy")) == jobs


def test_a_record_of_a_later_release_keeps_all_snapshots(location: Location):
    """Prevents: snapshots that only the newer release knows to be published are removed."""
    for _ in range(3):
        location.model()
    location.days_pass()
    location.instance.report_runless_asset_event(newer(Recovered(refresh=7, through=6)))
    result = location.refresh("sibling", keep_days=1e-9)
    assert result.success
    assert "Old snapshots were not removed" in location.log(result)
    assert "release 9.8.7" in location.log(result)
    assert location.stored() == [1, 2, 3]


def test_events_of_a_data_source_are_those_that_people_look_for(location: Location):
    """Prevents: plots and events of the published asset that are broken by records of ours."""
    location.model()
    assert location.refresh("busy").success
    location.model()
    assert location.refresh("busy", full=True).success
    assert location.instance.fetch_observations(KEY, limit=10).records == []
    assert len(location.instance.fetch_materializations(KEY, limit=10).records) == 2
    assert records_of(location.instance, "busy")
