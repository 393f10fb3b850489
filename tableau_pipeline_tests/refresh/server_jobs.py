"""The jobs of a server, and how time goes by for them."""

import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest

from tableau_pipeline.core.server import JobEntry
from tableau_pipeline.errors import RefreshError
from tableau_pipeline_tests.refresh.pipeline import Pipeline


def jobs(pipeline: Pipeline) -> Sequence[JobEntry]:
    """All that were ever begun for our data source, newest first."""
    found = pipeline.eyes.jobs(name=pipeline.name, since=datetime(2000, 1, 1, tzinfo=UTC))
    assert found is not None
    return found


def hours_later(pipeline: Pipeline) -> None:
    """Let all jobs end, and all that is recorded be older than jobs may take."""
    while any(job.outcome is None for job in jobs(pipeline)):
        time.sleep(0.01)
    for intent in pipeline.journal.intents():
        past = intent.recorded_at - timedelta(hours=3)
        pipeline.journal.append(intent.model_copy(update={"recorded_at": past}))


def too_early(pipeline: Pipeline) -> None:
    """Nothing is sent beside a job that may still run."""
    before = len(jobs(pipeline))
    with pytest.raises(RefreshError, match="Nothing is sent beside it before"):
        pipeline.run()
    assert len(jobs(pipeline)) == before
