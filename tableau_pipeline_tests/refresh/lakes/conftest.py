"""Fixtures for the tests of lakes."""

from pathlib import Path

import pytest
from pyiceberg.catalog.sql import SqlCatalog

from tableau_pipeline_tests.refresh.lakes.support import sql_catalog


@pytest.fixture
def catalog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SqlCatalog:
    """An Iceberg catalog in SQLite. Environment variables name the catalog to pyiceberg."""
    return sql_catalog(monkeypatch, tmp_path, f"file://{tmp_path}/lake")
