"""JSON is read as it is written, or the line is bad."""

from datetime import date
from decimal import Decimal
from pathlib import Path

import pytest

from tableau_pipeline.errors import RefusedError
from tableau_pipeline_tests.ingest.reading import read, read_all

pytestmark = pytest.mark.usefixtures("spark")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "x.json"


def test_lines_arrays_and_documents(file: Path):
    """Prevents: a form of JSON that is read in part."""
    for text in ('{"a": 1}\n\n{"a": null}\n', '\n [{"a": 1},\n{"a": null}]', '[{"a":\n1}, {}]\n'):
        file.write_text(text, "utf-8")
        assert read(file) == [(1,), (None,)]


def test_values(file: Path):
    """Prevents: digits that get lost on the way through a float."""
    file.write_text(
        '{"d": 0.1234567890123456789012345678901234567, "n": 1.10, "day": "2024-02-29", '
        '"o": {"x": [1.10, null]}, "t": "ü"}',
        "utf-8",
    )
    columns = "d decimal(38,37), n string, day date, o string, t string"
    assert read(file, columns=columns) == [
        (Decimal("0.1234567890123456789012345678901234567"), "1.10", date(2024, 2, 29),
         '{"x":[1.10,null]}', "ü")
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("values", "found"),
    [
        (("1", "2"), (1, 2)),
        (("1", "2.5"), (1.0, 2.5)),
        (("1", "true"), ("1", "true")),
        (("123456789012345678901234", "1.50"), ("123456789012345678901234", "1.50")),
        (('"007"', '"7"'), ("007", "7")),
        (('{"b": 1}', "null"), ('{"b":1}', None)),
        (('{"b": 1.0}', '"x"'), ('{"b":1.0}', "x")),
    ],
)
def test_types_that_are_found_out(file: Path, values: tuple[str, ...], found: tuple):
    """Prevents: one type for what has several, at the price of a value."""
    file.write_text("".join(f'{{"v": {value}}}\n' for value in values), "utf-8")
    assert read(file) == [(value,) for value in found]


@pytest.mark.parametrize(
    ("type_", "value"),
    [
        ("bigint", "2.5"), ("bigint", '"2"'), ("bigint", "true"), ("bigint", str(2**63)),
        ("decimal(9,2)", "1.234"), ("double", "1e400"), ("double", "9007199254740993"),
        ("boolean", "1"), ("boolean", '"true"'), ("date", "20240101"), ("date", '"01.02.2024"'),
        ("date", '""'), ("string", '"\\ud800"'), ("string", '["\\ud800"]'),
    ],
)  # fmt: skip
def test_what_does_not_fit(file: Path, type_: str, value: str):
    """Prevents: a value that becomes another one."""
    file.write_text(f'{{"v": null}}\n{{"v": {value}}}\n', "utf-8")
    table, bad = read_all(file, columns=f"v {type_}")
    assert (len(table), bad.total) == (1, 1)
    assert 'x.json, line 2: column "v": ' in bad.examples[0]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"a": 1}\n{"a": \n', 'line 2: invalid JSON near "{"a":"'),
        ('{"a": 1, "a": 2}\n', 'line 1: "a" is repeated in one object'),
        ('{"a": 1}\n5\n', "line 2: 5 is not an object"),
        ('[{"a": 1},\n{"a": 2}', "object 2: invalid JSON near"),
        ('[{"a": 1}] {"a": 2}', "the array has no end, or goes on after it"),
        ('[{"a": 1}, 5]', "object 2: 5 is not an object"),
        ('[{"a": 1},\n{"a" 2}]', "object 2: invalid JSON"),
        ('{"a": 1}\n', "The columns are b, and the objects have a: spell"),
        (
            '{"a": 1}\n{"A": 2}\n',
            'the objects have A, a: spell "A" alike in columns and in all objects',
        ),
    ],
)
def test_what_is_broken(file: Path, text: str, message: str):
    """Prevents: objects that vanish because a sign is missing."""
    file.write_text(text, "utf-8")
    with pytest.raises(RefusedError) as refused:
        read(file, columns="b int" if "are b" in message else "a bigint")
    assert message in str(refused.value)


def test_a_name_that_is_empty(file: Path):
    """Prevents: an error from deep inside Spark that names neither the file nor the column."""
    file.write_text('{"id": 1, "": 2}\n', "utf-8")
    with pytest.raises(RefusedError, match=r"x\.json: the name of column 1 is empty: name it"):
        read(file)


def test_an_object_over_several_lines(file: Path):
    """Prevents: a refusal that says only that there are no columns."""
    file.write_text('{\n"a": 1\n}', "utf-8")
    with pytest.raises(RefusedError, match="there are no columns") as refused:
        read(file)
    assert 'x.json, line 1: invalid JSON near "{"' in str(refused.value)
    assert "objects may span lines only in an array" in str(refused.value)
