"""CSV and JSON: values arrive as written, or their row is bad; no encoding is guessed."""

import bz2
import gzip
import re
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tableau_pipeline.errors import RefusedError
from tableau_pipeline.ingest import read_files
from tableau_pipeline.ingest.csv_files import _Grammar
from tableau_pipeline.ingest.options import ReadOptions
from tableau_pipeline_tests.ingest.reading import read, read_all, written

pytestmark = pytest.mark.usefixtures("spark")
GERMAN = {"sep": ";", "decimal": ",", "thousands": ".", "dateFormat": "dd.MM.yyyy"}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "x.csv"


def test_empty_and_null(file: Path):
    """Prevents: an empty text becomes NULL, or NULL becomes an empty text or zero."""
    written(file, 'id,v,n\n1,,\n2,"",""\n"",x,5\n4,"a""","" \n'.replace('"" \n', '""\n'))
    assert read(file) == [(1, None, None), (2, "", None), (None, "x", 5), (4, 'a"', None)]
    written(file, "id,v\n1,NA\nNA,\n")
    assert read(file, reader={"nullValue": "NA"}) == [(1, None), (None, None)]


def test_comments_in_a_single_column(file: Path):
    """Prevents: comments count as bad rows, or a blank line counts as a good row."""
    written(file, 'v\n# a\n1\n"2\n#3"\n# b\n\n4\n')
    table, bad = read_all(file, reader={"comment": "#"})
    assert table.to_pylist() == [{"v": "1"}, {"v": "2\n#3"}, {"v": "4"}]
    assert bad.total == 1
    assert "line 7: a blank line" in bad.message()


@pytest.mark.parametrize(
    ("type_", "text", "value"),
    [
        ("tinyint", "-128", -128),
        ("double", "-Infinity", float("-inf")),
        ("float", "16777216", 16777216.0),
        ("float", "0.5", 0.5),
        ("boolean", "TRUE", True),
        ("timestamp", "2024-02-29", datetime(2024, 2, 29, tzinfo=UTC)),
        ("varchar(3)", "abc", "abc"),
        ("string", " 007 ", " 007 "),
    ],
)
def test_what_fits(file: Path, type_: str, text: str, value: object):
    """Prevents: a value that fits its type arrives as another value."""
    assert read(written(file, f"v\n{text}\n"), columns=f"v {type_}") == [(value,)]


@pytest.mark.parametrize(
    ("type_", "text"),
    [
        *(("int", text) for text in ("3.0", "1e3", "2147483648", "1_000", " 1", "٣", "0x1", "-")),
        *(("decimal(9,2)", text) for text in ("3;5", "1.234", "12345678.9", "NaN", ".", "1 000")),
        *(("double", text) for text in ("1e400", "1e-400", "1d", "0x1p3", "1.234.567")),
        *(("double", text) for text in ("9007199254740993", "-900719925474099.27")),
        *(("double", text) for text in ("0.1234567890123456789", "1.23456e-320")),
        *(("float", text) for text in ("1e39", "1e-60", "16777217", "3.14159265")),
        *(("boolean", text) for text in ("yes", "1", "T")),
        *(("date", text) for text in ("2023-02-29", "29.02.2024", "2024-1-1", "2024-01-01 10:00")),
        *(("timestamp", text) for text in ("2024-01-01 25:00", "2024-01-01 10:00:00.1234567")),
        ("timestamp_ntz", "2024-01-01 10:00+01:00"),
        ("varchar(2)", "abc"),
    ],
)
def test_what_does_not_fit(file: Path, type_: str, text: str):
    """Prevents: a number, a date or a text that does not fit becomes another value."""
    written(file, f"id,v\n1,\n2,{text}\n")
    with pytest.raises(RefusedError) as refused:
        read(file, columns=f"id int, v {type_}")
    assert f'x.csv, line 3: column "v": "{text}" is not a valid {type_}' in str(refused.value)


def test_a_number_with_too_many_digits(file: Path):
    """Prevents: the remedy in a refusal publishes 1.005 as 1005."""
    written(file, "v\n1.005\n")
    with pytest.raises(RefusedError, match=r'"1\.005" is not a valid decimal\(10,2\)') as refused:
        read(file, columns="v decimal(10,2)")
    assert 'thousands: "."' not in str(refused.value)


@pytest.mark.parametrize("type_", ["bigint", "double"])
def test_a_number_that_is_too_large(file: Path, type_: str):
    """Prevents: users try options of the reader where only another type helps."""
    written(file, "v\n9223372036854775809\n")
    with pytest.raises(RefusedError, match=rf"not a valid {type_}; decimal\(38,0\) would hold it"):
        read(file, columns=f"v {type_}")
    assert read(file, columns="v decimal(38,0)") == [(Decimal(2**63 + 1),)]


@pytest.mark.parametrize(
    ("texts", "values"),
    [
        (("1", "-2"), (1, -2)),
        (("1", str(2**40)), (1, 2**40)),
        (("1", "2.5", "1e-05"), (1.0, 2.5, 0.00001)),
        (("007", "12"), ("007", "12")),
        (("+49", "1"), ("+49", "1")),
        (("12E4", "7"), ("12E4", "7")),
        (("12345678901234567890", "1"), ("12345678901234567890", "1")),
        (("0.12345678901234567890",), ("0.12345678901234567890",)),
        (("3,5", "1"), ("3,5", "1")),
        (("true", "False"), (True, False)),
        (("2024-01-01", "2024-02-29"), (date(2024, 1, 1), date(2024, 2, 29))),
        (("01.02.2024",), ("01.02.2024",)),
        (("0.30000000000000004", "0.10000000000000001"), (0.1 + 0.2, 0.1)),
        (("nan", "1"), ("nan", "1")),
        (("-0",), (-0.0,)),
    ],
)
def test_types_that_are_found_out(file: Path, texts: tuple[str, ...], values: tuple):
    """Prevents: codes lose their leading zeros, or numbers lose digits."""
    written(file, "n,v\n" + "".join(f'{n},"{text}"\n' for n, text in enumerate(texts)))
    found = read(file)
    assert [row[1] for row in found] == list(values)
    assert [type(row[1]) for row in found] == [type(value) for value in values]


def test_a_locale(file: Path):
    """Prevents: a file with numbers and dates of another country cannot be read."""
    written(file, "id;betrag;tag\r\n1;1.234,50;31.12.2023\r\n2;-,5;01.02.2024\r\n")
    columns = "id int, betrag decimal(9,2), tag date"
    expected = [
        (1, Decimal("1234.50"), date(2023, 12, 31)),
        (2, Decimal("-0.50"), date(2024, 2, 1)),
    ]
    assert read(file, columns=columns, reader=GERMAN) == expected
    written(file, "id;betrag;tag\r\n1;0.123;31.12.2023\r\n2;12.34;31.12.2023\r\n")
    _, bad = read_all(file, columns=columns, reader=GERMAN)
    assert bad.total == 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('id,v\n1,"a\n2,b\n', "line 2: a quote opens a value, and no quote closes it"),
        ('id,v\n1,"a"b\n', "line 2: a quote ends a value, but neither"),
        ("id;v\n1;2\n", "set reader: {sep: ';'}"),
        ("id,v,ID\n1,2,3\n", "differ only in case"),
        ("", "x.csv is empty"),
        ("id,v\n\r,\n", "line 2: some lines end in a carriage return alone"),
        ("v\n1\n\n2\n", "line 3: a blank line, which may be NULL or no row"),
        ("id,v\n1,2,3\n", 'line 2: 3 values for 2 columns, "1,2,3"'),
        ("id,v\n1\n", "line 2: 1 value for 2 columns"),
    ],
)
def test_what_cannot_be_told(file: Path, text: str, message: str):
    """Prevents: rows vanish or merge where a file is ambiguous."""
    with pytest.raises(RefusedError) as refused:
        read(written(file, text))
    assert message in str(refused.value)


def test_lines_are_counted_as_an_editor_does(file: Path):
    """Prevents: a message names the wrong line."""
    written(file, '# about\nid,v\n\n1,"a\nb\nc"\nx,y\n')
    with pytest.raises(RefusedError, match=r"line 7: column .id.: .x. is not a valid int"):
        read(file, columns="id int, v string", reader={"comment": "#"})


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ("a int", "has 2 columns (id, v), but columns has a: declare all"),
        ("id int, v array<int>", 'column "v": text cannot hold array<int>: declare it as string'),
        ("id int, v", "cannot be parsed"),
        ("id int, ID int", "differ only in case"),
    ],
)
def test_columns_that_are_no_columns_of_it(file: Path, columns: str, message: str):
    """Prevents: a column gets the values of another column, or users see an error of Spark."""
    with pytest.raises(RefusedError) as refused:
        read(written(file, "id,v\n1,2\n"), columns=columns)
    assert message in str(refused.value)


@pytest.mark.parametrize(
    ("reader", "message"),
    [
        ({"maxColumns": "3"}, "the options are sep, quote"),
        ({"sep": "||"}, 'sep: "||" is not a single allowed character'),
        ({"header": "maybe"}, "neither true nor false"),
        ({"decimal": ",", "thousands": ","}, "decimal and thousands are both"),
        ({"dateFormat": "dd.QQ.yyyy"}, 'has "QQ": the letters are'),
        ({"dateFormat": "dd.MM."}, "it needs a year"),
        ({"dateFormat": "[dd.]MM.yyyy"}, 'has "[": the letters are'),
    ],
)
def test_options_that_are_none(file: Path, reader: dict[str, str], message: str):
    """Prevents: the reader ignores a wrong option without a message."""
    with pytest.raises(RefusedError) as refused:
        read(written(file, "id,v\n1,2\n"), reader=reader)
    assert message in str(refused.value)


def test_other_habits(file: Path):
    """Prevents: an option for files with other quotes, escapes or blanks does not work."""
    escaped = {"sep": "|", "header": "false", "escape": "\\"}
    assert read(written(file, '1|"a\\"b\\\\c"\n'), reader=escaped) == [(1, 'a"b\\c')]
    with pytest.raises(RefusedError, match="is before a character that needs no escape"):
        read(written(file, 'v,w\n"C:\\new",1\n'), reader={"escape": "\\"})
    assert read(written(file, 'v,w\n"a,1\n'), reader={"quote": ""}) == [('"a', 1)]
    trimmed = {"ignoreLeadingWhiteSpace": "true", "ignoreTrailingWhiteSpace": "true"}
    assert read(written(file, 'v, w\n 1 , "" \n'.replace('"" ', '""')), reader=trimmed) == [(1, "")]
    assert read(written(file, "v\tw\n1\t2\n").rename(file.with_suffix(".tsv"))) == [(1, 2)]


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("first", ["sep=;", '"sep=;"', "SEP=;", "\ufeffsep=;"])
def test_the_separator_that_a_file_tells_excel(file: Path, first: str, end: str):
    """Prevents: the real header is published as a row, and the column is called "sep="."""
    written(file, end.join([first, "id;name", "1;a", "2;b,c", ""]))
    table, _ = read_all(file)
    assert table.column_names == ["id", "name"]
    assert read(file) == [(1, "a"), (2, "b,c")]
    # As in Excel, the separator in the file overrides the separator in the options.
    assert read(file, reader={"sep": ","}) == read(file)
    assert read(file, reader={"header": "false"}, columns="a string, b string")[0] == ("id", "name")
    written(file, end.join([first, "id;n", "x;y", ""]))
    with pytest.raises(RefusedError, match="line 3: column"):
        read(file, columns="id bigint, n string")


def test_a_column_of_that_name(file: Path):
    """Prevents: a column that is called "sep=" or "sep" is taken for a separator."""
    assert read_all(written(file, "sep\n1\n"))[0].column_names == ["sep"]
    assert read_all(written(file, "sep=a,b\n1,2\n"))[0].column_names == ["sep=a", "b"]


def test_the_wrong_separator_between_quotes(file: Path):
    """Prevents: a user with another separator gets the advice to look for stray quotes."""
    written(file, '"a";"b"\n"1";"2"\n')
    with pytest.raises(RefusedError) as caught:
        read(file)
    assert str(caught.value).startswith(
        "x.csv, line 1: ';' follows a value in quotes, and the separator is ',': set reader: "
        "{sep: ';'}."
    )


@pytest.mark.parametrize(
    ("text", "reader"),
    [('"a\\;b",c\n', {"escape": "\\"}), ('"a"x,b\n', {}), ('"a\nb";c\n', {"header": "false"})],
)
def test_other_quotes_out_of_place(file: Path, text: str, reader: dict[str, str]):
    """Prevents: a stray quote leads to the advice to set another separator."""
    with pytest.raises(RefusedError) as caught:
        read(written(file, text), reader=reader)
    assert "set reader: {sep" not in str(caught.value)


@pytest.mark.parametrize(("sign", "reader"), [("'", {"quote": "'"}), ("§", {})])
def test_a_separator_that_cannot_be_one(file: Path, sign: str, reader: dict[str, str]):
    """Prevents: an impossible separator causes an error of Arrow, or splits values at quotes."""
    with pytest.raises(RefusedError, match=r"line 1: .* cannot be a separator"):
        read(written(file, f"sep={sign}\na\n1\n"), reader=reader)


def test_a_file_without_a_header(file: Path):
    """Prevents: a first row of repeated values is refused, and no message names `header`."""
    written(file, "1,a,a\n2,b,c\n")
    with pytest.raises(RefusedError, match=r'set reader: \{header: "false"\}'):
        read(file)
    assert read(file, reader={"header": "false"}) == [(1, "a", "a"), (2, "b", "c")]


def test_a_pandas_index(file: Path):
    """Prevents: a file cannot be read because one of its columns has no name."""
    table, _ = read_all(written(file, ",v\n0,a\n"))
    assert table.column_names == ["_c0", "v"]


def test_rows_are_told_in_part_and_counted_in_full(file: Path):
    """Prevents: a message has a million lines, or counts only five bad rows."""
    written(file, "v\n" + "x\n" * 30_000 + "1\n")
    table, bad = read_all(file, columns="v int")
    assert (len(table), bad.total, len(bad.examples)) == (1, 30_000, 5)


def test_all_bad_columns_of_a_row(file: Path):
    """Prevents: users correct a file column by column, with a run for each column."""
    written(file, "a,b,c,d,e\nx,1,2,y,z\nx,1,y,x,y\nx,y,z,x,y\n")
    _, bad = read_all(file, columns="a int, b int, c int, d int, e date")
    assert bad.examples == [
        'x.csv, line 2: column "a": "x" is not a valid int, column "d": "y" is not a valid int, '
        'column "e": "z" is not a valid date',
        'x.csv, line 3: column "a": "x" is not a valid int, column "c": "y" is not a valid int, '
        'column "d": "x" is not a valid int, and 1 more column',
        'x.csv, line 4: column "a": "x" is not a valid int, column "b": "y" is not a valid int, '
        'column "c": "z" is not a valid int, and 2 more columns',
    ]


def test_as_a_model_reads_it(spark: SparkSession, file: Path):
    """Prevents: `read_files` works in the job `publish_file`, but not in a model."""
    written(file, "id,amount\n1,2.50\n2,x\n")
    columns = "id bigint COMMENT 'of the sale', amount decimal(10,2)"
    with pytest.raises(
        RefusedError,
        match=r"1 row does not fit .* \"x\" is not a valid decimal.* Set an option of reader",
    ):
        read_files(spark, file, columns=columns)
    frame = read_files(spark, str(file), columns=columns, bad_rows="drop")
    assert [tuple(row) for row in frame.collect()] == [(1, Decimal("2.50"))]
    assert frame.schema["id"].metadata == {"comment": "of the sale"}


def test_bytes(file: Path):
    """Prevents: the reader guesses an encoding, and shows wrong letters."""
    text, rows = "id,v\n1,Grün\n", [(1, "Grün")]
    for encoding in ("utf-8", "utf-8-sig", "utf-16", "utf-32"):
        assert read(written(file, text, encoding)) == rows
        assert read(file, reader={"encoding": encoding}) == rows
    for encoding in ("windows-1252", "UTF-16LE", "ISO-8859-15"):
        with pytest.raises(RefusedError, match=r"x\.csv.*is not UTF-8.*encoding: "):
            read(written(file, text, encoding))
        assert read(file, reader={"encoding": encoding}) == rows
    written(file, text)
    for name in ("no-such", "base64"):
        with pytest.raises(RefusedError, match=rf"encoding: .{name}. is not known"):
            read(file, reader={"encoding": name})


@pytest.mark.parametrize(
    ("written_as", "declared", "shown"),
    [
        ("utf-8-sig", "cp1252", "utf-8, so it is not cp1252: remove encoding"),
        ("utf-16", "cp1252", "utf-16, so it is not cp1252: remove encoding"),
        ("utf-16-le", "UTF-16BE", "utf-16, so it is not utf-16-be: remove encoding"),
        ("utf-32", "ISO-8859-1", "utf-32, so it is not iso8859-1: remove encoding"),
    ],
)
def test_a_byte_order_mark_of_another_encoding(
    file: Path, written_as: str, declared: str, shown: str
):
    """Prevents: an outdated option leads to columns of zero bytes and wrong letters."""
    mark = "" if written_as in ("utf-8-sig", "utf-16", "utf-32") else "\ufeff"
    written(file, f"{mark}id,v\n1,Grün\n", written_as)
    with pytest.raises(RefusedError, match=f"begins with the byte order mark of {shown}"):
        read(file, reader={"encoding": declared})


def test_the_line_of_a_wrong_byte(file: Path):
    """Prevents: users must search a million lines for a wrong byte."""
    file.write_bytes(b"id,v\n" + b"1,abc\n" * 50_000 + b"2,\xe9\n")
    with pytest.raises(RefusedError, match="line 50002: the byte 0xE9 is not UTF-8"):
        read(file)


def test_packed(tmp_path: Path):
    """Prevents: a packed file is read as text, or only a part of a packed file is read."""
    path = tmp_path / "x.csv.gz"
    path.write_bytes(gzip.compress(b"id,v\n1,a\n"))
    assert read(path) == [(1, "a")]
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(RefusedError, match="damaged"):
        read(path)


@pytest.mark.parametrize("reader", [{}, {"encoding": "windows-1252"}])
def test_packed_under_another_name(file: Path, reader: dict[str, str]):
    """Prevents: a packed file without its suffix is refused as "seems to be UTF-16LE"."""
    file.write_bytes(gzip.compress(b"id,v\n1,a\n"))
    with pytest.raises(RefusedError, match=r"^x\.csv is packed with gzip: .* \.gz"):
        read(file, reader=reader)


@pytest.mark.parametrize(("ending", "pack"), [(".gz", gzip.compress), (".bz2", bz2.compress)])
@pytest.mark.parametrize("position", [0, 20])
def test_packed_and_damaged(tmp_path: Path, ending: str, pack: Callable, position: int):
    """Prevents: a damaged file leads to a traceback of a library."""
    data = bytearray(pack(b"id,v\n" + b"1,abc\n" * 1000))
    data[position] ^= 0xFF
    path = tmp_path / f"x.csv{ending}"
    path.write_bytes(bytes(data))
    with pytest.raises(RefusedError, match=rf"x\.csv\{ending} is damaged: "):
        read(path)


@pytest.fixture
def document(tmp_path: Path) -> Path:
    return tmp_path / "x.json"


def test_lines_arrays_and_documents(document: Path):
    """Prevents: only a part of a JSON file is read."""
    for text in ('{"a": 1}\n\n{"a": null}\n', '\n [{"a": 1},\n{"a": null}]', '[{"a":\n1}, {}]\n'):
        document.write_text(text, "utf-8")
        assert read(document) == [(1,), (None,)]


def test_values(document: Path):
    """Prevents: numbers lose digits on the way through a float."""
    document.write_text(
        '{"d": 0.1234567890123456789012345678901234567, "n": 1.10, "day": "2024-02-29", '
        '"o": {"x": [1.10, null]}, "t": "ü"}',
        "utf-8",
    )
    columns = "d decimal(38,37), n string, day date, o string, t string"
    assert read(document, columns=columns) == [
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
def test_types_of_json(document: Path, values: tuple[str, ...], found: tuple):
    """Prevents: values of several types get one type, which changes a value."""
    document.write_text("".join(f'{{"v": {value}}}\n' for value in values), "utf-8")
    assert read(document) == [(value,) for value in found]


@pytest.mark.parametrize("levels", [500, 5000])
@pytest.mark.parametrize("form", ['{{"v": {}}}\n', '[{{"v": {}}}]'], ids=["line", "array"])
def test_what_is_nested_too_deeply(document: Path, form: str, levels: int):
    """Prevents: deep nesting raises a RecursionError, which names neither file nor line."""
    document.write_text(form.format("[" * levels + "]" * levels), "utf-8")
    with pytest.raises(RefusedError, match=r"x.json, (line|object) 1: .*nested more than 200") as e:
        read(document, columns="v string")
    assert "may span lines" not in str(e.value)
    document.write_text(form.format("[" * 190 + "]" * 190), "utf-8")
    assert read(document) == [("[" * 190 + "]" * 190,)]


def test_lines_by_their_other_name(tmp_path: Path):
    """Prevents: a file with the usual suffix .ndjson can be read only by an option."""
    assert read(written(tmp_path / "x.ndjson", '{"a": 1}\n')) == [(1,)]


@pytest.mark.parametrize(
    ("type_", "value"),
    [
        ("bigint", "2.5"), ("bigint", '"2"'), ("bigint", "true"), ("bigint", str(2**63)),
        ("decimal(9,2)", "1.234"), ("double", "1e400"), ("double", "9007199254740993"),
        ("boolean", "1"), ("boolean", '"true"'), ("date", "20240101"), ("date", '"01.02.2024"'),
        ("date", '""'), ("string", '"\\ud800"'), ("string", '["\\ud800"]'),
    ],
)  # fmt: skip
def test_what_json_does_not_fit(document: Path, type_: str, value: str):
    """Prevents: a JSON value that does not fit its type becomes another value."""
    document.write_text(f'{{"v": null}}\n{{"v": {value}}}\n', "utf-8")
    table, bad = read_all(document, columns=f"v {type_}")
    assert (len(table), bad.total) == (1, 1)
    assert 'x.json, line 2: column "v": ' in bad.examples[0]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"a": 1}\n{"a": \n', 'line 2: invalid JSON near "{"a":"'),
        ('{"a": 1, "a": 2}\n', 'line 1: "a" is repeated in one object'),
        ('{"a": 1}\n5\n', "line 2: 5 is not an object"),
        ('[{"a": 1},\n{"a": 2}', "object 2: invalid JSON near"),
        ('[{"a": 1}] {"a": 2}', "the array has no end, or text follows its end"),
        ('[{"a": 1}, 5]', "object 2: 5 is not an object"),
        ('[{"a": 1},\n{"a" 2}]', "object 2: invalid JSON"),
        ('{"\\ud800": 1}\n', r'column "\ud800": 1 has half of a character'),
        ('{"a": 1}\n', "The columns are b, and the objects have a: spell"),
        (
            '{"a": 1}\n{"A": 2}\n',
            'the objects have A, a: spell "A" alike in columns and in all objects',
        ),
    ],
)
def test_what_is_broken(document: Path, text: str, message: str):
    """Prevents: objects vanish because a character is missing."""
    document.write_text(text, "utf-8")
    with pytest.raises(RefusedError) as refused:
        read(document, columns="b int" if "are b" in message else "a bigint")
    assert message in str(refused.value)


def test_a_name_that_is_empty(document: Path):
    """Prevents: an empty name causes a Spark error that names neither document nor column."""
    document.write_text('{"id": 1, "": 2}\n', "utf-8")
    with pytest.raises(RefusedError, match=r"x\.json: the name of column 1 is empty: name it"):
        read(document)


def test_an_object_over_several_lines(document: Path):
    """Prevents: the refusal of an object on several lines says only that there are no columns."""
    document.write_text('{\n"a": 1\n}', "utf-8")
    with pytest.raises(RefusedError, match="there are no columns") as refused:
        read(document)
    assert 'x.json, line 1: invalid JSON near "{"' in str(refused.value)
    assert "objects may span lines only in an array" in str(refused.value)


@pytest.mark.parametrize("end", ["\r", "\n"])
def test_a_repeated_group_is_atomic(end: str):
    """Prevents: on Debian 12, whose Python fails at `(?:...)*+`, the reader loops for ever."""
    options = ReadOptions(escape="\\", comment="#", ignore_leading_white_space=True)
    grammar = _Grammar(options, end)
    for pattern in (grammar.records, grammar.body, grammar.open, grammar.opened, grammar.left_out):
        assert pattern
        # Mask escaped characters and sets, because their parentheses open and close no group.
        text = re.sub(r"\\.|\[(?:\\.|[^\]\\])*\]", "x", pattern.pattern)
        while group := re.search(r"\((\?.)?([^()]*)\)(.{0,2})", text):
            assert group[3] not in ("*+", "++", "?+") or group[1] == "?>", text
            text = f"{text[: group.start()]}{text[group.end(2) + 1 :]}"
