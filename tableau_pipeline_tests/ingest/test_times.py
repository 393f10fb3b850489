import pytest

from tableau_pipeline.ingest.values import time_pattern


@pytest.mark.parametrize(
    ("pattern", "text"),
    [("yyyy-MM-dd hh:mm[ a]", "2020-01-01 05:00"), ("[yyyy-]MM-dd", "01-02")],
)
def test_what_a_format_makes_optional_may_be_needed(pattern: str, text: str):
    """Prevents: a KeyError without line or column where a row is bad."""
    with pytest.raises(ValueError, match=text):
        time_pattern(pattern)(text)
