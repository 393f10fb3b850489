import sys

import pytest

from tableau_pipeline.core.lake_table import LakeTable
from tableau_pipeline.errors import RefusedError
from tableau_pipeline.lake.tables import current_version
from tableau_pipeline_tests.environments import run

WITHOUT = """import sys
sys.modules["deltalake"] = sys.modules["pyiceberg"] = None
import tableau_pipeline.components, tableau_pipeline.lake, tableau_pipeline.scripting
"""


@pytest.mark.slow
def test_location_without_lakes():
    """Prevents: a deployment without the extras of lakes cannot load any code location."""
    run(sys.executable, "-c", WITHOUT)


@pytest.mark.parametrize(("format_", "library"), [("delta", "deltalake"), ("iceberg", "pyiceberg")])
def test_library_that_is_missing(monkeypatch: pytest.MonkeyPatch, format_: str, library: str):
    """Prevents: a library that is not installed shows as a traceback without the command."""
    for name in [
        name for name in sys.modules if name.startswith(f"tableau_pipeline.lake.{format_}")
    ]:
        monkeypatch.delitem(sys.modules, name)
    for name in [name for name in sys.modules if name.partition(".")[0] == library]:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setitem(sys.modules, library, None)
    expected = rf"/lake/orders needs {library}: pip install 'tableau_pipeline\[{format_}\]'"
    with pytest.raises(RefusedError, match=expected):
        current_version(LakeTable(**{format_: "/lake/orders"}))
