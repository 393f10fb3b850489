"""A file is split into the records that Python's csv module finds in it, or refused."""

import csv
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tableau_pipeline.errors import RefusedError
from tableau_pipeline.ingest import csv_files
from tableau_pipeline.ingest.csv_files import csv_chunks
from tableau_pipeline.ingest.options import Options

MANY = settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.mark.parametrize("block", [7, 1 << 22])
@MANY
@given(
    text=st.text('ab,";\r\n \ufeffé', max_size=40) | st.text('a,"\n', max_size=40),
    quote=st.sampled_from(['"', '"', ""]),
    width=st.integers(1, 3),
)
@example('a,"b""c\n",\n\n"",d\r\n', '"', 2)
@example('a,5" b\n', '"', 2)
@example('"",', '"', 2)
@example("\ufeff\ufeffa\n", '"', 1)
@example("a\n\nb", '"', 1)
@example("a\rb\r\n", "", 1)
def test_records(monkeypatch, tmp_path: Path, block: int, text: str, quote: str, width: int):
    """Prevents: rows that grow together, fall apart or vanish, and lines that are not theirs."""
    monkeypatch.setattr(csv_files, "_BLOCK", block)
    path, options = tmp_path / "x.csv", Options(quote=quote, header=False)
    path.write_bytes(text.encode())
    found, problems = [], set()
    try:
        for chunk in csv_chunks(path, options, width):
            rows = zip(*(each.fill_null("").to_pylist() for each in chunk.columns), strict=True)
            found += zip(chunk.places(), map(list, rows), strict=True)
            problems |= {place for place, _ in chunk.problems}
    except RefusedError:
        # Of quotes and carriage returns, Python makes a guess.
        assert (quote and quote in text) or "\r" in text
        return
    with path.open(encoding="utf-8-sig", newline="") as file:
        quoting = csv.QUOTE_MINIMAL if quote else csv.QUOTE_NONE
        reader, line, expected, wrong = csv.reader(file, strict=True, quoting=quoting), 1, [], set()
        for row in reader:
            if len(row) == width:
                expected.append((f"line {line}", row))
            elif row or width == 1:
                wrong.add(f"line {line}")
            line = reader.line_num + 1
    assert (found, problems) == (expected, wrong)
