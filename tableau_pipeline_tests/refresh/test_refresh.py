"""What one refresh does, tells, takes of a site's budgets, and leaves on the disk."""

import logging
import re
from collections.abc import Callable
from uuid import uuid4

import pyarrow as pa
import pytest

from tableau_pipeline.core.checkpoint import PublishMode
from tableau_pipeline.core.declaration import Diff, Reconcile
from tableau_pipeline.errors import RefreshError, RefusedError
from tableau_pipeline.refresh.plan import Accept, Publish, UpdateTables
from tableau_pipeline_tests.docs.page import page
from tableau_pipeline_tests.hyper.test_build import hyperd_with
from tableau_pipeline_tests.refresh.support.crashes import killed_before
from tableau_pipeline_tests.refresh.support.models import airlines, flights
from tableau_pipeline_tests.refresh.support.pipeline import WHOLE, Pipeline, session
from tableau_pipeline_tests.refresh.support.server_jobs import jobs


def test_first_publish(star: Pipeline):
    """Prevents: a data source is created with other rows than its models, or without our tag."""
    report = star.run()
    assert isinstance(report.plan, Publish)
    assert report.plan.mode is PublishMode.CREATE
    assert star.wrong() == []
    (item,) = star.found()
    ours = f"tableau-pipeline-instance:{star.journal.instance}"
    assert item.tags == {star.declaration.tag, ours}
    assert report.checkpoint is not None
    assert (report.checkpoint.luid, report.checkpoint.updated_at) == (item.id, item.updated_at)
    assert star.journal.checkpoint() == report.checkpoint
    assert report.extract is not None
    assert report.extract.rows == {"flights": 8, "airlines": 2}


def test_unchanged_checkpoint_names_the_newest_versions(pipeline: Pipeline):
    """Prevents: the version that is recorded is collected although an equal one is kept."""
    pipeline.run()
    newest = pipeline.model("flights", flights())
    report = pipeline.run()
    assert report.checkpoint is not None
    assert list(report.checkpoint.versions) == [("flights", newest.number)]


def test_publish_false_builds_the_file_without_a_server(star: Pipeline):
    """Prevents: trying a file out needs a server, signs in or records that it was sent."""
    report = star.run(build_only=True)
    assert report.extract is not None
    assert report.extract.path.exists()
    assert report.extract.rows == {"flights": 8, "airlines": 2}
    assert (report.checkpoint, star.sessions) == (None, 0)
    assert not star.journal.path.exists()
    assert star.found() == []


def test_dry_run_changes_nothing(pipeline: Pipeline):
    """Prevents: somebody looks at what would happen, and it happens."""
    assert pipeline.decide().startswith("publish (create): first publish")
    assert (pipeline.found(), pipeline.journal.path.exists()) == ([], False)
    pipeline.run()
    before = pipeline.found()[0].updated_at
    pipeline.model("flights", flights(delay=1))
    records = pipeline.journal.records()
    report = pipeline.run(dry_run=True)
    assert isinstance(report.plan, UpdateTables)
    assert (report.job_id, report.checkpoint) == (None, None)
    assert pipeline.found()[0].updated_at == before
    assert pipeline.journal.records() == records
    assert pipeline.wrong() != []


_LINK = "http://127.0.0.1:"


def _matches(pattern: str, line: str) -> bool:
    return re.fullmatch(pattern, line) is not None


def test_line_tells_what_a_refresh_did(star: Pipeline, caplog: pytest.LogCaptureFixture):
    """Prevents: a run that ends without a line on what was published, where, and whether it is
    right."""
    caplog.set_level(logging.INFO)
    star.declare(reconcile=Reconcile())
    name, end = star.declaration.name, rf" in \d+\.\d s, equal by count on the server, {_LINK}\S+"
    first = star.run()
    assert _matches(rf"{name}: publish \(create\), 8 rows, 0\.\d\d MB{end}", first.summary)
    star.model("airlines", airlines("AA", "UA", "B6"))
    second = star.run()
    assert _matches(rf"{name}: update, -2 \+3 rows, 0\.\d\d MB{end}", second.summary)
    third = star.run()
    unchanged = rf"{name}: no change in \d+\.\d s, equal when last compared, 20[^,]+ UTC, "
    assert _matches(rf"{unchanged}{_LINK}\S+", third.summary)
    assert [line for line in caplog.messages if line.startswith(f"{name}: ")] == [
        first.summary,
        second.summary,
        third.summary,
    ]


def test_line_of_a_dry_run_and_of_a_refusal(pipeline: Pipeline):
    """Prevents: a dry run that reads as if something had been sent."""
    name = pipeline.declaration.name
    assert pipeline.run(dry_run=True).summary.startswith(
        f"{name}: dry run, nothing sent; a refresh would be: publish (create) in "
    )
    pipeline.run()
    pipeline.model("flights", flights(1))
    refused = f'{name}: the refresh would be refused: Table "flights": model "flights" has 1 rows'
    assert pipeline.run(dry_run=True).summary.startswith(refused)


DECISIONS = {
    "nothing changed": "no change",
    "update": "update",
    "publish": "publish (replace)",
}


@pytest.fixture
def paths(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    """The paths of the requests so far, each only once."""
    log = "tableau_sandbox.requests"
    caplog.set_level(logging.INFO, log)

    def new() -> list[str]:
        found = [str(each.args[1]) for each in caplog.records if each.name == log and each.args]  # ty: ignore
        caplog.clear()
        return found

    return new


def test_requests_are_those_of_the_page(pipeline: Pipeline, paths: Callable[[], list[str]]):
    """Prevents: a refresh that takes more of the site's budgets than somebody has planned with."""
    rows = page("explanation/scale.md").sections["Data sources"].rows()
    fixed, queries, for_a_look, records = (row for row in rows if "update" in row)
    pipeline.policy(Diff(("flight_id",)))
    pipeline.declare(reconcile=Reconcile())
    pipeline.run()
    for number, (what, decision) in enumerate(DECISIONS.items()):
        pipeline.model("flights", flights(8 + number))
        paths()
        report = pipeline.run(full=what == "publish")
        asked = paths()
        assert report.plan
        assert report.plan.decision == decision
        at_job = [number for number, path in enumerate(asked) if "/jobs/" in path]
        # A look is at the job, or in turn at the data source while the job waits in the queue.
        looks = at_job[-1] - at_job[0] + 1 if at_job else 0
        assert len(asked) == int(fixed[what]) + looks * int(for_a_look[what]), asked
        assert sum("/vizql-data-service/" in path for path in asked) == int(queries[what])
        kept = pipeline.journal.records()
        newest = max(each.refresh for each in kept)
        assert sum(each.refresh == newest for each in kept) == int(records[what])


@pytest.fixture
def path() -> str:
    """A path of projects that do not exist."""
    return f"Aviation {uuid4().hex[:6]}/Curated/2013"


def names(pipeline: Pipeline) -> set[str]:
    with session(pipeline.sandbox) as site:
        return {project.name for project in site.tsc.projects.all()}


@pytest.mark.parametrize("depth", [0, 1])
def test_missing_project_is_named(pipeline: Pipeline, path: str, depth: int):
    """Prevents: a misspelt project is created, or the data source lands in Default."""
    top = path.split("/")[0]
    if depth:
        with session(pipeline.sandbox) as site:
            site.project(top, create=True)
    pipeline.declare(project=path)
    known = names(pipeline)
    with pytest.raises(RefusedError) as caught:
        pipeline.run()
    missing, where = [(top, "on the site"), ("Curated", f'in "{top}"')][depth]
    for part in (
        f'"{path}"',
        f'no project "{missing}" {where}',
        "create_project: true",
        "may not see",
    ):
        assert part in str(caught.value)
    assert names(pipeline) == known
    assert (pipeline.found(), pipeline.extract_files()) == ([], [])


def test_dry_run_creates_no_project(pipeline: Pipeline, path: str):
    """Prevents: a dry run leaves projects behind, or fails where the real run would not."""
    pipeline.declare(project=path, create_project=True)
    known = names(pipeline)
    assert pipeline.decide().startswith("publish (create)")
    assert names(pipeline) == known


@pytest.mark.few_variants(1)
@pytest.mark.parametrize("step", ["upload", "publish", "job"])
def test_those_of_killed_refreshes_are_removed(pipeline: Pipeline, step: str):
    """Prevents: each refresh that is killed leaves a file behind until the disk is full."""
    pipeline.run()
    pipeline.declare(**WHOLE)
    for delay in (1, 2):
        pipeline.model("flights", flights(delay=delay))
        assert killed_before(pipeline, step)
        assert len(pipeline.extract_files()) == 1
    report = pipeline.run()
    assert report.extract is not None
    assert pipeline.extract_files() == [report.extract.path]


@pytest.mark.few_variants(1)
@pytest.mark.parametrize(
    "more", [{}, WHOLE, {"republish": {"growth": 1e-9}}], ids=["update", "file", "both"]
)
def test_dry_run_leaves_none(new_pipeline: Callable[..., Pipeline], more: dict):
    """Prevents: a look at the plan leaves a payload behind, or stumbles over one that is gone."""
    pipeline = new_pipeline(**more)
    pipeline.policy(Diff(("flight_id",)))
    pipeline.run()
    pipeline.model("flights", flights(delay=1))
    pipeline.decide()
    assert pipeline.extract_files() == []


def test_full_disk_sends_nothing(pipeline: Pipeline):
    """Prevents: a file that lost its tables to a full disk is sent, and readers find no rows."""
    pipeline.run()
    text = pa.array([f"{uuid4()}" for _ in range(20_000)])
    pipeline.model("flights", flights(20_000, text=text))
    sent = len(jobs(pipeline))
    with pytest.raises(RefreshError, match=r"No space is left for .+\.hyper: hyperd could not"):
        pipeline.run(Accept.SCHEMA, around={"hyper": lambda: hyperd_with(1_000_000)})
    assert len(jobs(pipeline)) == sent
    assert pipeline.extract_files() == []
    assert isinstance(pipeline.run(Accept.SCHEMA).plan, Publish)
    assert pipeline.wrong() == []


@pytest.mark.few_variants(1)
@pytest.mark.parametrize("keys", [("sales", "sales/eu"), ("sales/eu", "sales")])
@pytest.mark.slow
def test_key_below_another_key(new_pipeline: Callable[..., Pipeline], keys: tuple[str, str]):
    """Prevents: tidying up after one data source touches the files of another."""
    # A key counts on the whole site, which the tests of this process share.
    own = f"sales_{uuid4().hex[:8]}"
    pipelines = [new_pipeline(key=key.replace("sales", own)) for key in keys]
    for delay in (0, 1):
        for pipeline in pipelines:
            pipeline.model("flights", flights(delay=delay))
            pipeline.run()
    assert [pipeline.wrong() for pipeline in pipelines] == [[], []]
    assert len(pipelines[0].extract_files()) == 2
