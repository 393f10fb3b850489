from collections.abc import Generator
from pathlib import Path

import dagster as dg
import pytest

from tableau_pipeline.sandbox.testing import running_sandbox
from tableau_pipeline_tests.components.location import Location


@pytest.fixture
def location(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[Location]:
    """Data sources on an instance and a server of their own."""
    monkeypatch.setenv("PIPELINE_DATA_DIR", str(tmp_path))
    with running_sandbox(tmp_path / "sandbox") as sandbox, dg.instance_for_test() as instance:
        yield Location(sandbox, tmp_path / "snapshots", instance)
