from collections.abc import Callable
from uuid import uuid4

import pyarrow as pa
import pytest

from tableau_pipeline.core.declaration import Diff
from tableau_pipeline.errors import RefreshError
from tableau_pipeline.refresh.plan import Accept, Publish
from tableau_pipeline_tests.hyper.test_full_disk import hyperd_with
from tableau_pipeline_tests.refresh.support.crashes import killed_before
from tableau_pipeline_tests.refresh.support.models import flights
from tableau_pipeline_tests.refresh.support.pipeline import WHOLE, Pipeline
from tableau_pipeline_tests.refresh.support.server_jobs import jobs


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
@pytest.mark.parametrize("more", [{}, WHOLE, {"rebase": 1e-9}], ids=["update", "file", "both"])
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
