"""What tests of lakes share."""

from pathlib import Path

import pytest
from pyiceberg.catalog.sql import SqlCatalog

from tableau_pipeline_tests.refresh.lakes.support import sql_catalog


@pytest.fixture
def catalog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SqlCatalog:
    """An Iceberg catalog in SQLite, which the environment names to pyiceberg."""
    return sql_catalog(monkeypatch, tmp_path, f"file://{tmp_path}/lake")
