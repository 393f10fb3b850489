from tableau_pipeline.core.checkpoint import PublishMode
from tableau_pipeline.refresh.plan import NoChange, Publish, Update
from tableau_pipeline_tests.refresh.support.models import flights
from tableau_pipeline_tests.refresh.support.pipeline import Pipeline


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


def test_unchanged_builds_and_sends_nothing(star: Pipeline):
    """Prevents: a schedule without new data wastes a build, an upload and the extract's cache."""
    star.run()
    before = star.found()[0].updated_at
    star.model("flights", flights())  # the same rows in a new snapshot
    report = star.run()
    assert isinstance(report.plan, NoChange)
    assert report.extract is None
    assert star.found()[0].updated_at == before
    assert len(star.extract_files()) == 1


def test_unchanged_checkpoint_names_the_newest_versions(pipeline: Pipeline):
    """Prevents: the version that is recorded is collected although an equal one is kept."""
    pipeline.run()
    newest = pipeline.model("flights", flights())
    report = pipeline.run()
    assert report.checkpoint is not None
    assert list(report.checkpoint.versions) == [("flights", newest.number)]


def test_full_publishes_what_is_equal(pipeline: Pipeline):
    """Prevents: nobody can force a publish when the server's copy is suspect."""
    pipeline.run()
    before = pipeline.found()[0].updated_at
    assert pipeline.run(full=True).plan == Publish(
        PublishMode.REPLACE, "in full: asked for (full: true)"
    )
    assert pipeline.wrong() == []
    assert pipeline.found()[0].updated_at > before
    assert isinstance(pipeline.run().plan, NoChange)


def test_publish_false_builds_the_file_without_a_server(star: Pipeline):
    """Prevents: trying a file out needs a server, signs in or records that it was sent."""
    report = star.run(publish=False)
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
    assert isinstance(report.plan, Update)
    assert (report.job_id, report.checkpoint) == (None, None)
    assert pipeline.found()[0].updated_at == before
    assert pipeline.journal.records() == records
    assert pipeline.wrong() != []
