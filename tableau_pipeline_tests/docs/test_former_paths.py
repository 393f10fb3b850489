from typing import Any

from tableau_pipeline import scripting
from tableau_pipeline.actions import batch, validate

# As the pages and examples of the release before this one wrote them.
IMPORTS = """
from tableau_pipeline.refresh.batch import Batch, Delete, Upsert, source, target
from tableau_pipeline.refresh.batch import Insert, Replace, Update, all_of, always, any_of
from tableau_pipeline.refresh.batch_check import batch_problems
from tableau_pipeline.refresh.declaration import Declaration, Table
from tableau_pipeline.refresh.errors import BatchError, RefreshError, RefusedError
from tableau_pipeline.refresh.step import Refresh, Report
"""


def test_documented_imports():
    """Prevents: scripts that fail at their first line after an update of the package.

    And worse: an `except RefreshError` of a class that nothing raises any more.
    """
    names: dict[str, Any] = {}
    exec(IMPORTS, names)
    for name in ("Declaration", "Table", "RefreshError", "RefusedError", "Report"):
        assert names[name] is getattr(scripting, name)
    for name in ("Batch", "Delete", "Upsert", "Insert", "Replace", "Update", "BatchError"):
        assert names[name] is getattr(batch, name)
    assert names["batch_problems"] is validate.batch_problems
