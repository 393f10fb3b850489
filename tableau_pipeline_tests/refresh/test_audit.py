"""An audit finds what refreshes cannot see, and changes nothing."""

from collections.abc import Callable

import pyarrow as pa
import pytest

from tableau_pipeline.audit import Audited, Finding, audit
from tableau_pipeline.core.declaration import INSTANCE_TAG_PREFIX, Diff, Reconcile
from tableau_pipeline.core.journal import Claim, Owner
from tableau_pipeline.errors import RefreshError
from tableau_pipeline.refresh.plan import NoChange
from tableau_pipeline_tests.refresh.support import other_users
from tableau_pipeline_tests.refresh.support.crashes import killed_before
from tableau_pipeline_tests.refresh.support.models import flights
from tableau_pipeline_tests.refresh.support.pipeline import Around, Pipeline, session
from tableau_pipeline_tests.refresh.support.proxies import BeforeDownload, Proxy

# Neither time stamps nor revisions of this server show that somebody updates data.
SILENT = {"updates_move_stamp": "never", "revisions": False}


def audited(pipeline: Pipeline, around_server: Around = lambda server: server) -> Audited:
    """What an audit finds; it must leave the journal as it was."""
    before = pipeline.journal.records()
    refresh = pipeline.refresh()
    with session(pipeline.sandbox) as site:
        found = audit(refresh, around_server(site))
    if found.finding is not Finding.REFRESHING:
        assert pipeline.journal.records() == before
    return found


@pytest.fixture
def published(pipeline: Pipeline) -> Pipeline:
    """A data source that is published, and that may be read back."""
    pipeline.declare(reconcile=Reconcile())
    pipeline.run()
    return pipeline


@pytest.mark.slow
def test_rows_are_compared_and_nothing_is_touched(star: Pipeline):
    """Prevents: an audit that is green because it compared nothing, or that changes something."""
    star.declare(reconcile=Reconcile())
    star.run()
    (item,) = star.found()
    before = other_users.content(star.eyes, str(item.id))
    found = audited(star)
    assert (found.finding, found.compared) == (Finding.EQUAL, "checksums")
    assert found.rows == found.expected == {"flights": 8, "airlines": 2}
    assert found.is_fine
    assert (found.note, found.link) == ("", item.webpage_url)
    assert other_users.content(star.eyes, str(item.id)) == before


@pytest.mark.slow
def test_an_update_that_leaves_no_stamp_is_found(new_pipeline: Callable[..., Pipeline]):
    """Prevents: rows that somebody deleted stay away for months, while all refreshes are green."""
    pipeline = new_pipeline(on=SILENT, reconcile=Reconcile())
    pipeline.policy(Diff(("flight_id",)))
    checkpoint = pipeline.run().checkpoint
    assert checkpoint
    other_users.deletes_a_flight(pipeline.sandbox, str(checkpoint.luid))
    assert isinstance(pipeline.run().plan, NoChange)
    found = audited(pipeline)
    assert found.finding is Finding.DIFFERS
    assert found.is_wrong
    assert (found.rows, found.expected) == ({"flights": 7}, {"flights": 8})
    assert found.note == ("flights holds 7 rows, its model 8. Run its refresh with full: true.")
    pipeline.run(full=True)
    assert pipeline.wrong() == []
    assert audited(pipeline).finding is Finding.EQUAL


@pytest.mark.parametrize(
    ("rule", "note"),
    [
        (None, "reconcile: never"),
        (Reconcile(max_mb=1e-6, by="download"), "larger than reconcile: max_mb"),
    ],
)
@pytest.mark.slow
def test_what_may_not_be_read_is_not_called_equal(
    pipeline: Pipeline, rule: Reconcile | None, note: str
):
    """Prevents: an audit that calls rows equal that it has not read, or that nobody looks at."""
    pipeline.declare(reconcile=rule)
    pipeline.run()
    found = audited(pipeline)
    assert (found.finding, found.compared, found.rows) == (Finding.UNCHANGED, None, {})
    assert note in found.note
    assert not found.is_fine
    assert not found.is_wrong


def test_rows_that_were_only_counted_are_not_called_compared(published: Pipeline):
    """Prevents: a weak comparison under the name of a strong one."""
    refusals = iter([RefreshError("not now")])

    def refuse_once() -> None:
        for refusal in refusals:
            raise refusal

    found = audited(published, lambda server: BeforeDownload(server, refuse_once))
    assert (found.finding, found.compared) == (Finding.EQUAL, "count on the server")
    assert found.note == "values not compared: it could not be read back: not now."


def renamed_and_untagged(pipeline: Pipeline) -> None:
    (item,) = pipeline.found()
    other_users.changes(pipeline, name=f"{pipeline.name} better", project=f"Elsewhere {item.id}")
    with session(pipeline.sandbox) as site:
        site.untag(str(item.id), {pipeline.declaration.tag})


def replaced(pipeline: Pipeline) -> None:
    other_users.deletes(pipeline)
    other_users.publishes(pipeline, flights(3))


def records_are_lost(pipeline: Pipeline) -> None:
    instance = pipeline.journal.instance
    pipeline.journal.path.unlink()
    (item,) = pipeline.found()
    with session(pipeline.sandbox) as site:
        site.untag(str(item.id), {f"{INSTANCE_TAG_PREFIX}{instance}"})


def tagged_elsewhere(pipeline: Pipeline) -> None:
    (item,) = pipeline.found()
    with session(pipeline.sandbox) as site:
        site.tag(str(item.id), [f"{INSTANCE_TAG_PREFIX}elsewhere"])


def interrupted(pipeline: Pipeline) -> None:
    pipeline.model("flights", flights(9))
    assert killed_before(pipeline, "update")


@pytest.mark.parametrize(
    ("happens", "finding", "is_wrong", "notes"),
    [
        (
            other_users.adds_a_calculated_field,
            Finding.EQUAL,
            False,
            ["edited calculated fields, captions or folders"],
        ),
        (
            renamed_and_untagged,
            Finding.EQUAL,
            False,
            ['renamed "', 'moved "', "removed the tag tableau-pipeline:"],
        ),
        (other_users.deletes, Finding.GONE, True, []),
        (replaced, Finding.GONE, True, ["is gone, and another has its name"]),
        (records_are_lost, Finding.DRIFTED, True, ["no record shows what it holds"]),
        (interrupted, Finding.DRIFTED, True, ["interrupted"]),
        (tagged_elsewhere, Finding.FOREIGN, False, ["tableau-pipeline-instance:elsewhere"]),
    ],
    ids=lambda each: getattr(each, "__name__", ""),
)
def test_what_has_happened_since_is_told(
    published: Pipeline, happens: Callable, finding: Finding, is_wrong: bool, notes: list[str]
):
    """Prevents: dashboards without data, or without the work of analysts, and a green audit; a red
    one for what another deployment publishes."""
    happens(published)
    found = audited(published)
    assert (found.finding, found.is_wrong, found.is_fine) == (finding, is_wrong, False)
    assert [part for part in notes if part not in found.note] == []


def test_a_running_refresh_is_not_judged(published: Pipeline):
    """Prevents: half a refresh that is taken for drift."""
    owner = Owner(run_id="another-run")
    published.journal.append(Claim(refresh=2, owner=owner))
    found = audited(published)
    assert (found.finding, found.is_wrong) == (Finding.REFRESHING, False)
    assert "run another-run is refreshing it" in found.note


@pytest.mark.slow
def test_a_refresh_that_runs_meanwhile_is_noticed(published: Pipeline):
    """Prevents: new rows that look wrong since the audit knows the old checkpoint only."""
    published.model("flights", flights(9))
    found = audited(published, lambda server: BeforeDownload(server, published.run))
    assert found.finding is Finding.REFRESHING
    assert published.journal.owner.run_id in found.note
    assert audited(published).finding is Finding.EQUAL


def test_an_error_is_a_finding(published: Pipeline):
    """Prevents: one broken data source that keeps all others from being looked at."""

    class Broken(Proxy):
        def find_by_luid(self, luid: str) -> None:
            raise OSError("the disk is full")

    found = audited(published, Broken)
    assert (found.finding, found.note) == (Finding.FAILED, "the disk is full.")
    published.journal.path.write_text("no journal", "utf-8")
    with session(published.sandbox) as site:
        found = audit(published.refresh(), site)
    assert found.finding is Finding.FAILED
    assert "is damaged" in found.note


@pytest.mark.slow
def test_rows_that_are_not_published_yet_are_told(published: Pipeline):
    """Prevents: old rows called equal, silent on the newer ones."""
    published.model("flights", flights(8))
    assert audited(published).newer == ()
    published.model("flights", pa.concat_tables([flights(8), flights(9).slice(8)]))
    found = audited(published)
    assert (found.finding, found.newer) == (Finding.EQUAL, ("flights",))
    assert found.note == "Not published yet: new rows of flights."
