import runpy

import pytest

from tableau_pipeline_tests.conftest import ROOT
from tableau_pipeline_tests.docs.page import page

SCRIPT = runpy.run_path(str(ROOT / "scripts" / "yaml_reference.py"), run_name="yaml_reference")


def test_the_page_is_up_to_date():
    """Prevents: a page of keys that are not those that the code reads. `make docs` writes it."""
    text = page("reference/yaml.md").whole.text
    assert SCRIPT["with_tables"](text) == text


def test_a_page_without_marks_is_an_error():
    """Prevents: tables that are never brought up to date again, as somebody removed their marks."""
    with pytest.raises(ValueError, match="TableauPipeline"):
        SCRIPT["with_tables"]("# YAML keys\n")
