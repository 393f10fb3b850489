"""The pipeline reads CSV records as Python's csv module does, and values as Python's types do."""

import csv
import re
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal, InvalidOperation, localcontext
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tableau_pipeline.errors import RefusedError
from tableau_pipeline.ingest import csv_files
from tableau_pipeline.ingest.columns import arguments_of
from tableau_pipeline.ingest.csv_files import csv_chunks
from tableau_pipeline.ingest.options import ReadOptions
from tableau_pipeline.ingest.values import converted

MANY = settings(max_examples=80)
DIGITS = st.text("0123456789", min_size=1, max_size=20)
TEXTS = (
    st.text("0123456789-+.eE", min_size=1, max_size=12)
    | st.builds("{}{}{}".format, st.sampled_from(["", "-"]), DIGITS, st.sampled_from(["", ".0"]))
    | st.builds("{}.{}".format, DIGITS, DIGITS)
    | st.text("0123456789", min_size=37, max_size=41)
    | st.floats().map(repr)
    | st.floats().map("{:.17g}".format)
    | st.datetimes().map(str)
    | st.builds("{}{}".format, st.datetimes().map(str), st.from_regex(r"\A([+-]\d\d:?\d\d|Z)\Z"))
    | st.from_regex(r"\A\d{4}-[01]\d-[0-3]\d([T ][0-2]\d:[0-6]\d(:[0-6]\d(\.\d{1,7})?)?)?\Z")
    | st.sampled_from(["TRUE", "false", "nan", "-inf", "1_0", " 1", "1\n", "٣", "0000-01-01"])
)


def number(text: str) -> Decimal:
    """Read a text as an exact number, digit by digit."""
    if not re.fullmatch(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,4})?", text, re.ASCII):
        raise ValueError(text)
    return Decimal(text)


def decimal(type_: str) -> Callable[[str], Decimal]:
    precision, scale = arguments_of(type_)

    def read(text: str) -> Decimal:
        with localcontext(prec=1000):
            scaled = number(text).scaleb(scale)
            if scaled % 1 or abs(scaled) >= 10**precision:
                raise ValueError(text)
            return Decimal(int(scaled)).scaleb(-scale)

    return read


def whole(text: str) -> int:
    if not re.fullmatch(r"[+-]?\d+", text, re.ASCII):
        raise ValueError(text)
    return int(text)


def moment(text: str) -> datetime:
    if not re.fullmatch(r"[^ T]{10}([ T]\d\d:\d\d(:\d\d(\.\d{1,6})?)?([+-]\d\d:?\d\d|Z)?)?", text):
        raise ValueError(text)
    return datetime.fromisoformat(text)


def instant(text: str) -> datetime:
    found = moment(text)
    return found.astimezone(UTC) if found.tzinfo else found.replace(tzinfo=UTC)


def wall_clock(text: str) -> datetime:
    if moment(text).tzinfo:
        raise ValueError(text)
    return moment(text)


def day(text: str) -> date:
    if not re.fullmatch(r"\d{4}-\d\d-\d\d", text, re.ASCII):
        raise ValueError(text)
    return date.fromisoformat(text)


@pytest.mark.parametrize(
    ("type_", "read"),
    [
        ("int", lambda text: pa.scalar(whole(text), pa.int32()).as_py()),
        ("bigint", lambda text: pa.scalar(whole(text), pa.int64()).as_py()),
        *((each, decimal(each)) for each in ("decimal(3,1)", "decimal(38,0)")),
        ("date", day), ("timestamp", instant), ("timestamp_ntz", wall_clock),
        ("boolean", lambda text: {"true": True, "false": False}[text.lower()]),
    ],
)  # fmt: skip
@MANY
@given(texts=st.lists(st.none() | TEXTS, max_size=4))
@example(texts=["2.402823669209385e+38", "9" * 39, "1E+3"])
@example(texts=["0" * 39, "-0E+99", f"1.{'0' * 40}", f"{'0' * 40}12.50"])
def test_values(type_: str, read: Callable[[str], Any], texts: list[str | None]):
    """Prevents: the pipeline reads a text as a wrong value, or rejects a valid text."""
    expected = []
    for text in texts:
        try:
            expected.append(None if text is None else read(text))
        except (ValueError, KeyError, OverflowError, InvalidOperation, pa.ArrowInvalid):
            expected.append(None)
    assert converted(pa.array(texts, pa.string()), type_, ReadOptions()).to_pylist() == expected


@MANY
@given(st.floats(allow_nan=False, allow_infinity=False), st.booleans())
def test_every_double_is_read_as_programs_write_it(value: float, short: bool):
    """Prevents: the pipeline refuses a double in the notation of another program."""
    text = repr(value) if short else f"{value:.17g}"
    assert converted(pa.array([text]), "double", ReadOptions()).to_pylist() == [value]


@MANY
@given(TEXTS)
@example("9007199254740993")
@example("5.960464477539063e-08")
def test_a_number_is_exact_in_a_double_or_bad(text: str):
    """Prevents: a number with too many digits for a double is rounded instead of rejected."""
    (found,) = converted(pa.array([text]), "double", ReadOptions()).to_pylist()
    if found is not None and "n" not in text:
        digits = len("".join(map(str, number(text).as_tuple().digits)).rstrip("0")) or 1
        # Accept both roundings: to 16 digits, `repr` rounds 2^-24 up, and the format "e" down.
        written = repr(found), f"{found:.{digits - 1}e}"
        assert number(text) in (Decimal(found), *map(Decimal, written))


@pytest.mark.parametrize(
    ("pattern", "text", "found"),
    [
        ("dd.MM.yyyy HH:mm", "31.12.2023 10:30", datetime(2023, 12, 31, 10, 30)),
        ("d MMM yy, h:mm a", "3 Feb 24, 12:05 PM", datetime(2024, 2, 3, 12, 5)),
        ("MMMM d, yyyy 'at' HH:mm:ss.SS", "may 3, 2024 at 01:02:03.05",
         datetime(2024, 5, 3, 1, 2, 3, 50_000)),
        ("yyyyMMddHHmmss.SSSSSSX", "20240229235959.999999-01",
         datetime(2024, 3, 1, 0, 59, 59, 999_999)),
        ("dd.MM.yyyy", "30.02.2024", None),
        ("h:mm a yyyy", "13:00 am 2024", None),
    ],
)  # fmt: skip
def test_formats(pattern: str, text: str, found: datetime | None):
    """Prevents: a timestamp in a declared format gives another time, or an error of Arrow."""
    options = ReadOptions(timestamp_format=pattern)
    (value,) = converted(pa.array([text]), "timestamp", options).to_pylist()
    assert (value and value.replace(tzinfo=None)) == found


FILES = settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.mark.slow
@pytest.mark.parametrize("block", [7, 1 << 22])
@FILES
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
    """Prevents: CSV rows are merged, split or lost, or their line numbers are wrong."""
    monkeypatch.setattr(csv_files, "_BLOCK", block)
    path, options = tmp_path / "x.csv", ReadOptions(quote=quote, header=False)
    path.write_bytes(text.encode())
    found, problems = [], set()
    try:
        for chunk in csv_chunks(path, options, width):
            rows = zip(*(each.fill_null("").to_pylist() for each in chunk.columns), strict=True)
            found += zip(chunk.places(), map(list, rows), strict=True)
            problems |= {place for place, _ in chunk.problems}
    except RefusedError:
        # Our reader refuses stray quotes and carriage returns; Python guesses their meaning.
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
