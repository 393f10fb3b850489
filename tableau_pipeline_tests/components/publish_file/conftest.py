from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import dagster as dg
import pyarrow as pa
import pytest

from tableau_pipeline_tests.conftest import Shipped
from tableau_pipeline_tests.refresh.support.pipeline import published_rows, session

Publish = Callable[..., dg.ExecuteInProcessResult]


@pytest.fixture
def publish(shipped: Shipped) -> Publish:
    """Runs the job as the launchpad does."""

    def run(**config: Any) -> dg.ExecuteInProcessResult:
        return shipped.definitions.resolve_job_def("publish_file").execute_in_process(
            instance=shipped.instance,
            raise_on_error=False,
            run_config={"ops": {"publish_files": {"config": config}}},
        )

    return run


@pytest.fixture
def name() -> str:
    """Of a data source that nobody published yet."""
    return f"Files {uuid4().hex[:8]}"


def published(shipped: Shipped, name: str) -> pa.Table:
    """The rows on the server, in the order of their first column."""
    with session(shipped.sandbox) as site:
        (item,) = site.tsc.datasources.filter(name=name)
        rows = published_rows(site, str(item.id))
    return rows.sort_by(rows.column_names[0])


def write(path: Path, *lines: str) -> Path:
    """A file of these lines."""
    path.write_text("\n".join(lines) + "\n", "utf-8")
    return path
