import runpy

from tableau_pipeline_tests.conftest import ROOT
from tableau_pipeline_tests.docs.page import page

SCRIPT = runpy.run_path(str(ROOT / "scripts" / "yaml_reference.py"), run_name="yaml_reference")


def test_the_page_is_up_to_date():
    """Prevents: a page of keys that are not those that the code reads. `make docs` writes it."""
    text = page("reference/yaml.md").whole.text
    assert SCRIPT["with_tables"](text) == text
