from hypothesis import example, given
from hypothesis import strategies as st

from tableau_pipeline.hyper.process import connect, hyper_process
from tableau_pipeline.hyper.types import string_literal


@given(text=st.text(st.characters(exclude_categories=["Cs"])))
@example("\x1f0")
@example("\x007\\'")
@example("E'\\x41'")
def test_texts_arrive_as_they_are(text: str):
    """Prevents: a condition on a text with a control character means another text, or fails."""
    with connect(hyper_process()) as connection:
        assert connection.execute_scalar_query(f"SELECT {string_literal(text)}") == text
