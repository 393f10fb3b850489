"""Audits, and comparisons row by row. Neither changes anything."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest
import tableauserverclient as TSC

from tableau_pipeline.components.audit import AuditedDatasource, audit
from tableau_pipeline.core.declaration import Reconcile
from tableau_pipeline.core.identity import INSTANCE_TAG_PREFIX
from tableau_pipeline.core.journal import Claim, Owner
from tableau_pipeline.core.policies import Append, Diff, Policy
from tableau_pipeline.errors import RefreshError
from tableau_pipeline.hyper import open_hyper
from tableau_pipeline.hyper.process import Hyperd, hyper_process
from tableau_pipeline.outcome import Accept, Status
from tableau_pipeline.refresh.row_differences import Differences, diff
from tableau_pipeline_tests.refresh.support import other_users
from tableau_pipeline_tests.refresh.support.crashes import killed_before
from tableau_pipeline_tests.refresh.support.models import airlines, flights
from tableau_pipeline_tests.refresh.support.other_users import changes_the_file
from tableau_pipeline_tests.refresh.support.pipeline import Around, Pipeline, session
from tableau_pipeline_tests.refresh.support.proxies import At, Proxy


def audited(pipeline: Pipeline, around_server: Around = lambda server: server) -> AuditedDatasource:
    """Audit the data source, and check that the audit leaves the journal unchanged."""
    before = pipeline.journal.history()
    with session(pipeline.sandbox) as site:
        found = audit(pipeline.refresh(), around_server(site))
    if found.status is not Status.RUNNING:
        assert pipeline.journal.history() == before
    return found


@pytest.fixture
def published(pipeline: Pipeline) -> Pipeline:
    """A data source that is published, and that may be read back."""
    pipeline.declare(reconcile=Reconcile())
    pipeline.run()
    return pipeline


@pytest.mark.slow
def test_rows_are_compared_and_nothing_is_touched(star: Pipeline):
    """Prevents: an audit reports equal rows that it has not compared, or changes something."""
    star.declare(reconcile=Reconcile())
    star.run()
    (item,) = star.found()
    before = other_users.content(star.eyes, str(item.id))
    found = audited(star)
    assert (found.status, found.compared) == (Status.EQUAL, "checksums")
    assert found.rows == "flights 8 / 8, airlines 2 / 2"
    assert (found.is_fine, found.note, found.link) == (True, "", item.webpage_url)
    assert other_users.content(star.eyes, str(item.id)) == before
    star.model("airlines", airlines())
    star.model("flights", pa.concat_tables([flights(8), flights(9).slice(8)]))
    assert audited(star).status is Status.EQUAL


@pytest.mark.slow
def test_what_may_not_be_read_is_not_called_equal(pipeline: Pipeline):
    """Prevents: an audit reports equal rows although it may not read the rows."""
    for rule, note in (
        (None, "reconcile: never"),
        (Reconcile(max_mb=1e-6, by="download"), "larger than reconcile: max_mb"),
    ):
        pipeline.declare(reconcile=rule)
        pipeline.run()
        found = audited(pipeline)
        assert (found.status, found.compared, found.rows) == (Status.UNCHANGED, "", "8 / ?")
        assert note in found.note
        assert (found.is_fine, found.is_wrong) == (False, False)


def test_rows_that_were_only_counted_are_not_called_compared(published: Pipeline):
    """Prevents: an audit reports compared rows although it has only counted the rows."""

    def refuse() -> None:
        raise RefreshError("not now")

    found = audited(published, lambda server: At(server, "download", refuse))
    assert (found.status, found.compared) == (Status.EQUAL, "count on the server")
    assert found.note == "values not compared: the file could not be read back: not now."


def happens(pipeline: Pipeline, what: str) -> None:
    """Let something happen to the data source, to the records or to a refresh."""
    luid, site = str(pipeline.found()[0].id), pipeline.eyes
    match what:
        case "field":
            other_users.adds_a_calculated_field(pipeline)
        case "filter gone":
            other_users.filters_rows(pipeline)
            pipeline.run()
            other_users.filters_no_rows(pipeline)
        case "renamed, untagged":
            name = f"{pipeline.name} better"
            other_users.changes(pipeline, name=name, project=f"Elsewhere {luid}")
            site.untag(luid, {pipeline.declaration.tag})
        case "deleted":
            other_users.deletes(pipeline)
        case "replaced":
            other_users.deletes(pipeline)
            other_users.publishes(pipeline, flights(3))
        case "records lost":
            pipeline.journal.forget()
        case "interrupted":
            pipeline.model("flights", flights(9))
            assert killed_before(pipeline, "update")
        case "tagged elsewhere":
            site.tag(luid, [f"{INSTANCE_TAG_PREFIX}elsewhere"])


@pytest.mark.few_variants(1)
@pytest.mark.parametrize(
    ("what", "finding", "notes"),
    [
        ("field", Status.EQUAL, ["edited calculated fields, captions or folders"]),
        (
            "renamed, untagged",
            Status.EQUAL,
            ['renamed "', 'moved "', "removed the tag tableau-pipeline:"],
        ),
        ("filter gone", Status.DRIFTED, ['the filter on "Row access"', "may see too many rows"]),
        ("deleted", Status.GONE, []),
        ("replaced", Status.GONE, ["is gone, and another has its name"]),
        ("records lost", Status.DRIFTED, ["no record shows what it holds"]),
        ("interrupted", Status.DRIFTED, ["interrupted"]),
        ("tagged elsewhere", Status.FOREIGN, ["tableau-pipeline-instance:elsewhere"]),
    ],
)
def test_what_has_happened_since_is_told(
    published: Pipeline, what: str, finding: Status, notes: list[str]
):
    """Prevents: an audit overlooks a loss, or judges the data source of another deployment."""
    happens(published, what)
    found = audited(published)
    is_wrong = finding in (Status.GONE, Status.DRIFTED)
    assert (found.status, found.is_wrong, found.is_fine) == (finding, is_wrong, False)
    assert [part for part in notes if part not in found.note] == []


@pytest.mark.slow
def test_a_running_refresh_is_not_judged(published: Pipeline):
    """Prevents: an audit reports drift because a refresh runs at the same time."""
    published.model("flights", flights(9))
    found = audited(published, lambda server: At(server, "download", published.run))
    assert found.status is Status.RUNNING
    assert "a refresh that has just ended has changed it" in found.note
    assert audited(published).status is Status.EQUAL
    other = Claim(refresh=3, owner=Owner(run_id="another-run"))
    begins = partial(published.journal.store, other)
    meanwhile = audited(published, lambda server: At(server, "download", begins))
    for found, does in ((meanwhile, "has changed it"), (audited(published), "is refreshing it")):
        assert (found.status, found.is_wrong) == (Status.RUNNING, False)
        assert f"run another-run {does}" in found.note


def test_an_error_is_a_finding(published: Pipeline):
    """Prevents: one broken data source stops the audit of all others."""

    class Broken(Proxy):
        def find_by_luid(self, luid: str) -> None:
            raise OSError("the disk is full")

    found = audited(published, Broken)
    assert (found.status, found.note) == (Status.UNKNOWN, "the disk is full.")
    published.journal.files()[-1].write_text("no journal", "utf-8")
    found = audit(published.refresh(), published.eyes)
    assert found.status is Status.UNKNOWN
    assert "is damaged" in found.note


TABLE = '"Extract"."Extract"'


def look(
    pipeline: Pipeline,
    samples: int = 0,
    hyper: Callable[[], Hyperd] = hyper_process,
    tell: Callable[..., None] = lambda *_: None,
) -> tuple[list[str], Differences]:
    """The differences that `diff` finds in the only table. `tell` gets the progress."""
    with session(pipeline.sandbox) as site:
        layout, found = diff(pipeline.refresh(hyper=hyper), site, samples=samples, tell=tell)
    return layout, found["flights"]


@pytest.mark.slow
def test_by_key(pipeline: Pipeline):
    """Prevents: a changed value shows as a removed row and a new row."""
    pipeline.policy(Diff(("flight_id",)))
    with pytest.raises(RefreshError, match='Default" has no data source of this name'):
        look(pipeline)
    pipeline.run()
    _, equal = look(pipeline, samples=1)
    assert equal == Differences(("flight_id",), 0, 0, 8, 8, {"carrier": 0, "delay": 0})
    changes_the_file(pipeline, f"DELETE FROM {TABLE} WHERE flight_id = 0")
    changes_the_file(pipeline, f"UPDATE {TABLE} SET carrier = NULL WHERE flight_id < 3")
    changes_the_file(pipeline, f"UPDATE {TABLE} SET flight_id = 99 WHERE flight_id = 7")
    _, found = look(pipeline, samples=1)
    changed = {"carrier": [[1, None, flights(8)["carrier"][1].as_py()]]}
    assert found == Differences(("flight_id",), 1, 2, 6, 4, {"carrier": 2, "delay": 0}, changed)
    assert found.percent_equal == {"carrier": 66.67, "delay": 100.0}


@pytest.mark.slow
@pytest.mark.parametrize("policy", [Diff(("flight_id",)), Append("flight_id")])
def test_whole_rows(pipeline: Pipeline, policy: Policy):
    """Prevents: a repeated row counts as one row, or pairs with two rows."""
    pipeline.policy(policy)
    pipeline.run()
    changes_the_file(pipeline, f"INSERT INTO {TABLE} SELECT * FROM {TABLE} WHERE flight_id = 1")
    changes_the_file(pipeline, f"DELETE FROM {TABLE} WHERE flight_id = 5")
    _, found = look(pipeline)
    assert found == Differences((), 1, 1, 7, 7)


@pytest.mark.slow
@pytest.mark.parametrize("policy", [Diff(("flight_id",)), Append("flight_id")])
def test_little_memory(pipeline: Pipeline, policy: Policy):
    """Prevents: a comparison in slices loses rows, or counts rows twice."""
    pipeline.policy(policy)
    pipeline.model("flights", flights(2000))
    pipeline.run()
    changes_the_file(pipeline, f"DELETE FROM {TABLE} WHERE flight_id < 10")
    changes_the_file(pipeline, f"UPDATE {TABLE} SET delay = -1 WHERE flight_id % 100 = 50")
    process, shares = Hyperd(memory=2**31, telemetry=False), []
    _, whole = look(pipeline, 30, lambda: process)
    # So little memory that the rows are compared in slices.
    process.memory = 30_000
    _, slices = look(pipeline, 30, lambda: process, lambda _, *share: shares.extend(share))
    assert len(shares) >= 8
    in_order = {column: sorted(rows) for column, rows in slices.samples.items()}
    assert replace(slices, samples=in_order) == whole
    assert {len(rows) for rows in whole.samples.values()} <= {20}


def test_other_columns(pipeline: Pipeline):
    """Prevents: a new column makes equal rows look different, or goes unnoticed."""
    pipeline.run()
    pipeline.model("flights", flights(8, gate=pa.array(["A"] * 8)))
    layout, found = look(pipeline)
    assert layout == ["Extract.gate (TEXT) is new"]
    assert (found.is_equal, found.both) == (True, 8)


@pytest.mark.slow
@pytest.mark.few_variants(1)
@pytest.mark.parametrize("schema", ["Extract", "public"])
def test_what_others_have_published(pipeline: Pipeline, tmp_path: Path, schema: str):
    """Prevents: before a takeover, a user cannot see the differences from the existing rows."""
    pipeline.policy(Diff(("flight_id",)))
    file = tmp_path / "theirs.hyper"
    with open_hyper(file, "w") as opened:
        if schema != "public":
            opened.execute(f'CREATE SCHEMA "{schema}"')
        rows = "(0, 'AA', 0), (1, 'UA', 7)"
        opened.execute(
            f'CREATE TABLE "{schema}"."flights" AS SELECT CAST(a AS BIGINT) AS flight_id, '
            f"b AS carrier, CAST(c AS INT) AS delay FROM (VALUES {rows}) AS t (a, b, c)"
        )
    with session(pipeline.sandbox, *other_users.ANN) as site:
        item = TSC.DatasourceItem(site.project("Default", create=False), name=pipeline.name)
        site.tsc.datasources.publish(item, file, "CreateNew")
    _, found = look(pipeline, samples=1)
    assert (found.both, found.equal, found.only_model) == (2, 1, 6)
    assert found.samples["delay"][0][:2] == [1, 7]
    # The same holds after another user has published over our data source.
    pipeline.declare(adopt=True)
    pipeline.run(Accept.OVERWRITE)
    assert look(pipeline)[1].is_equal
    with session(pipeline.sandbox) as site:
        item = TSC.DatasourceItem(site.project("Default", create=False), name=pipeline.name)
        site.tsc.datasources.publish(item, file, "Overwrite")
    assert look(pipeline)[1].only_model == 6


@pytest.mark.slow
def test_several_tables(star: Pipeline):
    """Prevents: a difference in a dimension is reported for the fact table, or for no table."""
    facts, dimension = star.declaration.tables
    star.declare(tables=(replace(facts, policy=Diff(("flight_id",))), dimension))
    star.run()
    with session(star.sandbox) as site:
        _, equal = diff(star.refresh(), site, samples=1, tell=print)
        assert [each.is_equal for each in equal.values()] == [True, True]
        changes_the_file(star, 'UPDATE "Extract"."flights" SET delay = -1 WHERE flight_id = 3')
        changes_the_file(star, 'DELETE FROM "Extract"."airlines" WHERE carrier = \'AA\'')
        layout, found = diff(star.refresh(), site, samples=1, tell=print)
    assert layout == []
    assert found["flights"].columns == {"carrier": 0, "delay": 1}
    assert found["flights"].samples["delay"][0][:2] == [3, -1]
    assert found["airlines"] == Differences((), 0, 1, 1, 1)
