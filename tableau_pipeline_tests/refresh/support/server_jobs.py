"""The jobs of a server, and the time that passes for jobs."""

from collections.abc import Sequence
from datetime import UTC, datetime

import pytest

from tableau_pipeline.core.drift import Job
from tableau_pipeline.errors import RefreshError
from tableau_pipeline_tests.refresh.support.pipeline import TIMEOUTS, Pipeline


def jobs(pipeline: Pipeline) -> Sequence[Job]:
    """All jobs that were ever begun for our data source, newest first."""
    found = pipeline.eyes.jobs(name=pipeline.name, since=datetime(2000, 1, 1, tzinfo=UTC))
    assert found is not None
    return found


def later(pipeline: Pipeline) -> None:
    """Let all jobs end, and advance the server's clock until no job can still run."""
    pipeline.sandbox.wait_until_idle()
    pipeline.sandbox.advance(TIMEOUTS.queue + TIMEOUTS.job + 2)


def too_early(pipeline: Pipeline) -> None:
    """Check that a refresh sends nothing while a job may still run."""
    before = len(jobs(pipeline))
    with pytest.raises(RefreshError, match=r"nothing is sent before 20\d\d-.* UTC"):
        pipeline.run()
    assert len(jobs(pipeline)) == before
