"""One refresh: its decisions, its summary, its requests to the site and its files."""

import logging
import re
from collections.abc import Callable
from uuid import uuid4

import pyarrow as pa
import pytest

from tableau_pipeline.core.checkpoint import PublishMode
from tableau_pipeline.core.declaration import Reconcile
from tableau_pipeline.core.policies import Diff
from tableau_pipeline.errors import RefreshError, RefusedError
from tableau_pipeline.outcome import Accept
from tableau_pipeline.refresh.decide import Publish
from tableau_pipeline_tests.docs.page import page
from tableau_pipeline_tests.hyper.test_build import hyperd_with
from tableau_pipeline_tests.refresh.support.crashes import killed_before
from tableau_pipeline_tests.refresh.support.models import airlines, flights
from tableau_pipeline_tests.refresh.support.pipeline import WHOLE, Pipeline, session
from tableau_pipeline_tests.refresh.support.server_jobs import jobs


@pytest.mark.slow
def test_first_publish(star: Pipeline):
    """Prevents: a first publish creates a data source with wrong rows, or without our tags."""
    report = star.run()
    assert report.plan.mode is PublishMode.CREATE
    assert star.wrong() == []
    (item,) = star.found()
    ours = f"tableau-pipeline-instance:{star.journal.instance}"
    assert item.tags == {star.declaration.tag, ours}
    assert (report.checkpoint.luid, report.checkpoint.updated_at) == (item.id, item.updated_at)
    assert star.journal.checkpoint() == report.checkpoint
    assert report.extract.rows == {"flights": 8, "airlines": 2}


def test_unchanged_checkpoint_names_the_newest_versions(pipeline: Pipeline):
    """Prevents: a refresh without changes records an old version, which is deleted later."""
    pipeline.run()
    newest = pipeline.model("flights", flights())
    assert list(pipeline.run().checkpoint.versions) == [("flights", newest.number)]


def test_publish_false_builds_the_file_without_a_server(star: Pipeline):
    """Prevents: `build_only` signs in to a server, or records that the file was sent."""
    report = star.run(build_only=True)
    assert star.extract_files() == [report.extract.path]
    assert report.extract.rows == {"flights": 8, "airlines": 2}
    assert (star.sessions, star.found()) == (0, [])
    assert not (star.folder / "journal").exists()


@pytest.fixture
def path() -> str:
    """Return the path of a project; neither the project nor its parents exist."""
    return f"Aviation {uuid4().hex[:6]}/Curated/2013"


def projects(pipeline: Pipeline) -> set[str]:
    with session(pipeline.sandbox) as site:
        return {project.name for project in site.tsc.projects.all()}


def test_dry_run_changes_nothing(pipeline: Pipeline, path: str):
    """Prevents: a dry run changes the server or the disk, or claims that it has sent rows."""
    pipeline.policy(Diff(("flight_id",)))
    pipeline.declare(project=path, create_project=True)
    known = projects(pipeline)
    prefix = f"{pipeline.name}: dry run, nothing sent; a refresh would be: "
    assert pipeline.run(dry_run=True).summary.startswith(f"{prefix}publish (create) in ")
    assert (pipeline.found(), pipeline.extract_files(), projects(pipeline)) == ([], [], known)
    assert not (pipeline.folder / "journal").exists()
    pipeline.run()
    before, history = pipeline.found()[0].updated_at, pipeline.journal.history()
    pipeline.model("flights", flights(delay=1))
    assert pipeline.run(dry_run=True).summary.startswith(f"{prefix}update")
    assert pipeline.extract_files() == []
    assert (pipeline.found()[0].updated_at, pipeline.journal.history()) == (before, history)
    pipeline.model("flights", flights(1))
    refused = 'the refresh would be refused: Table "flights": model "flights" has 1 rows'
    assert pipeline.run(dry_run=True).summary.startswith(f"{pipeline.name}: {refused}")


@pytest.mark.slow
def test_line_tells_what_a_refresh_did(star: Pipeline, caplog: pytest.LogCaptureFixture):
    """Prevents: a summary omits the decision, the rows, the comparison or the link of a refresh."""
    caplog.set_level(logging.INFO)
    star.declare(reconcile=Reconcile())
    link = r"http://127.0.0.1:\S+"
    end = rf" rows, 0\.\d\d MB in \d+\.\d s, equal by count on the server, {link}"
    patterns = (
        rf"publish \(create\), 8{end}",
        rf"update, -2 \+3{end}",
        rf"no change in \d+\.\d s, equal when last compared, 20[^,]+ UTC, {link}",
    )
    summaries = [star.run().summary]
    star.model("airlines", airlines("AA", "UA", "B6"))
    summaries += [star.run().summary, star.run().summary]
    for pattern, summary in zip(patterns, summaries, strict=True):
        assert re.fullmatch(f"{star.name}: {pattern}", summary)
    assert [line for line in caplog.messages if line.startswith(f"{star.name}: ")] == summaries


DECISIONS = {"nothing changed": "no change", "update": "update", "publish": "publish (replace)"}


@pytest.mark.slow
def test_requests_are_those_of_the_page(pipeline: Pipeline, caplog: pytest.LogCaptureFixture):
    """Prevents: a refresh sends more requests to the site than the documentation promises."""
    log = "tableau_sandbox.requests"
    caplog.set_level(logging.INFO, log)
    rows = page("explanation/scale.md").sections["Data sources"].rows()
    fixed, queries, for_a_look, records = (row for row in rows if "update" in row)
    pipeline.policy(Diff(("flight_id",)))
    pipeline.declare(reconcile=Reconcile())
    # The first publish and the first update send more requests: they learn how the site lists jobs.
    for rows in (6, 7, 8):
        pipeline.model("flights", flights(rows))
        pipeline.run()
    for number, (what, decision) in enumerate(DECISIONS.items()):
        pipeline.model("flights", flights(8 + number))
        caplog.clear()
        before = pipeline.journal.history().number
        assert pipeline.run(full=what == "publish").decision == decision
        asked = [str(each.args[1]) for each in caplog.records if each.name == log and each.args]
        at_job = [number for number, path in enumerate(asked) if "/jobs/" in path]
        # While its job is queued, a refresh asks for the job and for the data source in turn.
        looks = at_job[-1] - at_job[0] + 1 if at_job else 0
        between = asked[at_job[0] : at_job[-1]] if at_job else []
        assert all(re.search(r"/(jobs|datasources)/[^/]+$", path) for path in between), between
        assert len(asked) == int(fixed[what]) + looks * int(for_a_look[what]), asked
        assert sum("/vizql-data-service/" in path for path in asked) == int(queries[what])
        assert pipeline.journal.history().number - before == int(records[what])


def test_missing_project_is_named(pipeline: Pipeline, path: str):
    """Prevents: a refresh creates a project with a misspelt name, or publishes to Default."""
    top = path.split("/")[0]
    pipeline.declare(project=path)
    for missing in (f'"{top}" on the site', f'"Curated" in "{top}"'):
        known = projects(pipeline)
        with pytest.raises(RefusedError) as caught:
            pipeline.run()
        remedies = ("create_project: true", "may not see")
        for part in (f'"{path}"', f"no project {missing}", *remedies):
            assert part in str(caught.value)
        assert projects(pipeline) == known
        assert (pipeline.found(), pipeline.extract_files()) == ([], [])
        with session(pipeline.sandbox) as site:
            site.project(top, create=True)


@pytest.mark.slow
def test_those_of_killed_refreshes_are_removed(pipeline: Pipeline):
    """Prevents: each killed refresh leaves a file behind, until the disk is full."""
    pipeline.run()
    pipeline.declare(**WHOLE)
    for delay, step in enumerate(("upload", "job"), 1):
        pipeline.model("flights", flights(delay=delay))
        assert killed_before(pipeline, step)
        assert len(pipeline.extract_files()) == 1
    report = pipeline.run()
    assert pipeline.extract_files() == [report.extract.path]


@pytest.mark.slow
def test_full_disk_sends_nothing(pipeline: Pipeline):
    """Prevents: on a full disk, a refresh publishes a file without its tables."""
    pipeline.run()
    text = pa.array([f"{uuid4()}" for _ in range(20_000)])
    pipeline.model("flights", flights(20_000, text=text))
    sent = len(jobs(pipeline))
    with pytest.raises(RefreshError, match=r"No space is left for .+\.hyper: hyperd could not"):
        pipeline.run(Accept.SCHEMA, around={"hyper": lambda: hyperd_with(1_000_000)})
    assert (len(jobs(pipeline)), pipeline.extract_files()) == (sent, [])
    assert isinstance(pipeline.run(Accept.SCHEMA).plan, Publish)
    assert pipeline.wrong() == []


@pytest.mark.slow
def test_key_below_another_key(new_pipeline: Callable[..., Pipeline]):
    """Prevents: a refresh of `sales` deletes the files of `sales/eu`."""
    # Keys must be unique on the site, which all tests of this process share.
    own = f"sales_{uuid4().hex[:8]}"
    pipelines = [new_pipeline(key=key) for key in (own, f"{own}/eu")]
    for delay in (0, 1):
        for pipeline in pipelines:
            pipeline.model("flights", flights(delay=delay))
            pipeline.run()
    assert [pipeline.wrong() for pipeline in pipelines] == [[], []]
    assert len(pipelines[0].extract_files()) == 2
