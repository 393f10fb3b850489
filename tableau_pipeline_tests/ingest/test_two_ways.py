"""Arrow reads a file as `csv_records` does, or leaves it."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tableau_pipeline.errors import RefusedError
from tableau_pipeline.ingest import text as text_module
from tableau_pipeline.ingest.options import Options
from tableau_pipeline.ingest.text import UnusualError, csv_records, quick_csv

MANY = settings(max_examples=400, suppress_health_check=[HealthCheck.function_scoped_fixture])


def outcome(read: Any, *arguments: Any) -> Any:
    """What it returns, or that it refuses."""
    try:
        return [repr(each) for each in read(*arguments)]
    except RefusedError:
        return "refused"


@pytest.mark.parametrize("block", [7, 1 << 22])
@MANY
@given(
    text=st.text('ab,";\r\n \ufeff\0é', max_size=40) | st.text('a,"\n', max_size=40),
    quote=st.sampled_from(['"', '"', ""]),
    width=st.integers(1, 3),
)
@example('a,"b""c\n",\n\n"",d\r\n', '"', 2)
@example('a,5" b\n', '"', 2)
@example('"",', '"', 2)
@example("\ufeff\ufeffa\n", '"', 1)
@example("a\n\nb", '"', 1)
def test_records(monkeypatch, tmp_path: Path, block: int, text: str, quote: str, width: int):
    """Prevents: a file that means one thing to Arrow, and another where a row of it is bad."""
    monkeypatch.setattr(text_module, "_BLOCK", block)
    path, options = tmp_path / "x.csv", Options(quote=quote, header=False)
    path.write_bytes(text.encode())

    def quick() -> list[tuple[str | None, ...]]:
        columns = [each for batch in quick_csv(path, options, width) for each in [batch]]
        return [
            row for batch in columns for row in zip(*(c.to_pylist() for c in batch), strict=True)
        ]

    def records() -> list[tuple[str | None, ...]]:
        rows = [tuple(values) for _, values in csv_records(path, options)]
        return [values for values in rows if values]

    try:
        found = outcome(quick)
    except UnusualError:
        return
    assert found == outcome(records)
