"""Arrow reads a file as `csv_records` does, or leaves it; its values are those of the parsers."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from pyspark.sql import types as T

from tableau_pipeline.errors import RefusedError
from tableau_pipeline.ingest import text as text_module
from tableau_pipeline.ingest.options import Options
from tableau_pipeline.ingest.text import UnusualError, csv_records, quick_csv
from tableau_pipeline.ingest.values import converted, parser

MANY = settings(max_examples=400, suppress_health_check=[HealthCheck.function_scoped_fixture])
TYPES = st.sampled_from(
    [
        *(
            T.ByteType(),
            T.ShortType(),
            T.IntegerType(),
            T.LongType(),
            T.FloatType(),
            T.DoubleType(),
        ),
        *(T.DecimalType(3, 1), T.DecimalType(2, 2), T.DecimalType(38, 0), T.DateType()),
        *(T.TimestampType(), T.TimestampNTZType(), T.BooleanType(), T.VarcharType(3)),
    ]
)
DIGITS = st.text("0123456789", min_size=1, max_size=20)
TEXTS = (
    st.text("0123456789-+.,eE", min_size=1, max_size=12)
    | st.builds("{}{}{}".format, st.sampled_from(["", "-"]), DIGITS, st.sampled_from(["", ".0"]))
    | st.builds("{}.{}".format, DIGITS, DIGITS)
    | st.floats().map(repr)
    | st.floats(width=32).map("{:.9g}".format)
    | st.datetimes().map(str)
    | st.builds("{}{}".format, st.datetimes().map(str), st.from_regex(r"\A([+-]\d\d:?\d\d|Z)\Z"))
    | st.from_regex(r"\A\d{4}-[01]\d-[0-3]\d([T ][0-2]\d:[0-6]\d(:[0-6]\d(\.\d{1,7})?)?)?\Z")
    | st.sampled_from(
        ["true", "FALSE", "nan", "-inf", "-0", "007", "1_0", " 1", "1\n", "٣", "äöü", "0000-01-01"]
    )
)
SIGNS = st.sampled_from([(".", ""), (",", ""), (",", "."), (".", ","), (".", "'"), (",", " ")])


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


@MANY
@given(texts=st.lists(st.none() | TEXTS, max_size=4), type_=TYPES, signs=SIGNS)
def test_values(texts: list[str | None], type_: T.DataType, signs: tuple[str, str]):
    """Prevents: a value that Arrow reads and the parser does not, or as another one."""
    options = Options(decimal=signs[0], thousands=signs[1])
    read = parser(type_, options)
    assert read
    expected: list[Any] = []
    bad = []
    for number, text in enumerate(texts):
        try:
            expected.append(None if text is None else read(text))
        except ValueError:
            expected.append(None)
            bad.append(number)
    found, positions = converted(pa.array(texts, pa.string()), type_, options)
    assert positions == bad
    assert repr(found.to_pylist()) == repr(pa.array(expected, found.type).to_pylist())
