"""Bytes become text by a stated encoding, or the file is refused; packed files are unpacked."""

import bz2
import gzip
from collections.abc import Callable
from pathlib import Path

import pytest

from tableau_pipeline.errors import RefusedError
from tableau_pipeline_tests.ingest.reading import read, written


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "x.csv"


def test_bytes(file: Path):
    """Prevents: letters that are guessed."""
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
    """Prevents: columns of zero bytes and wrong letters, because a declaration was out of date."""
    mark = "" if written_as in ("utf-8-sig", "utf-16", "utf-32") else "\ufeff"
    written(file, f"{mark}id,v\n1,Grün\n", written_as)
    with pytest.raises(RefusedError, match=f"begins with the byte order mark of {shown}"):
        read(file, reader={"encoding": declared})


def test_the_line_of_a_wrong_byte(file: Path):
    """Prevents: a search through a million lines."""
    file.write_bytes(b"id,v\n" + b"1,abc\n" * 50_000 + b"2,\xe9\n")
    with pytest.raises(RefusedError, match="line 50002: the byte 0xE9 is not UTF-8"):
        read(file)


def test_packed(tmp_path: Path):
    """Prevents: a packed file that is read as text, or half of one."""
    path = tmp_path / "x.csv.gz"
    path.write_bytes(gzip.compress(b"id,v\n1,a\n"))
    assert read(path) == [(1, "a")]
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(RefusedError, match="damaged"):
        read(path)


@pytest.mark.parametrize("reader", [{}, {"encoding": "windows-1252"}])
def test_packed_under_another_name(file: Path, reader: dict[str, str]):
    """Prevents: "seems to be UTF-16LE" of a file that only lacks its suffix."""
    file.write_bytes(gzip.compress(b"id,v\n1,a\n"))
    with pytest.raises(RefusedError, match=r"^x\.csv is packed with gzip: .* \.gz"):
        read(file, reader=reader)


@pytest.mark.parametrize(("ending", "pack"), [(".gz", gzip.compress), (".bz2", bz2.compress)])
@pytest.mark.parametrize("position", [0, 20])
def test_packed_and_damaged(tmp_path: Path, ending: str, pack: Callable, position: int):
    """Prevents: a traceback of a library where the file is at fault."""
    data = bytearray(pack(b"id,v\n" + b"1,abc\n" * 1000))
    data[position] ^= 0xFF
    path = tmp_path / f"x.csv{ending}"
    path.write_bytes(bytes(data))
    with pytest.raises(RefusedError, match=rf"x\.csv\{ending} is damaged: "):
        read(path)
