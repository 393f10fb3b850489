"""The pipeline reads a `.tds` out of a package while the package is still arriving."""

import io
import struct
import zipfile
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tableau_pipeline.publishing.package_stream import read_tds

TDS = b"<datasource>" + b"<column name='[delay]' />" * 300 + b"</datasource>"
ROWS = bytes(range(256)) * 1000


class Pipe(io.RawIOBase):
    """A file without seeking, for which `zipfile` writes the sizes after the members."""

    def __init__(self) -> None:
        self.written = b""

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self.written += bytes(data)
        return len(data)


def package(names: list[str], *, method: int, is_piped: bool, large: bool = False) -> bytes:
    """A package of members. A `.tds` has the document, and every other member has rows."""
    file: Any = Pipe() if is_piped else io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as opened:
        for name in names:
            with opened.open(name, "w", force_zip64=large) as member:
                member.write(TDS if name.endswith(".tds") else ROWS)
    return file.written if is_piped else file.getvalue()


def pieces(content: bytes, size: int) -> Iterator[bytes]:
    for at in range(0, len(content), size):
        yield content[at : at + size]


@pytest.mark.slow
@given(
    before=st.integers(0, 3),
    size=st.integers(1, 5000),
    is_piped=st.booleans(),
    large=st.booleans(),
    method=st.sampled_from([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED]),
)
def test_wherever_it_stands(before: int, size: int, *, is_piped: bool, large: bool, method: int):
    # Prevents: every refresh fails because a server packs its files in another way.
    names = [f"Data/Extracts/{number}.hyper" for number in range(before)]
    content = package([*names, "Sales.TDS".lower()], method=method, is_piped=is_piped, large=large)
    if is_piped and method == zipfile.ZIP_STORED:
        with pytest.raises(ValueError, match="does not say where its members end"):
            read_tds(pieces(content, size), limit=len(TDS))
        return
    assert read_tds(pieces(content, size), limit=len(TDS)) == TDS


def test_nothing_is_read_after_it():
    # Prevents: a refresh downloads all rows of a data source to read its small .tds.
    content = package(["a.tds", "b.hyper"], method=zipfile.ZIP_DEFLATED, is_piped=False)
    arriving = pieces(content, 64)
    assert read_tds(arriving, limit=len(TDS)) == TDS
    assert sum(map(len, arriving)) > len(content) / 2


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_one_that_is_too_large(method: int):
    # Prevents: a small package unpacks to a .tds that fills the memory.
    content = package(["a.tds"], method=method, is_piped=False)
    with pytest.raises(ValueError, match="more than 100 bytes"):
        read_tds(pieces(content, 64), limit=100)
    with pytest.raises(ValueError, match="more than 100 bytes"):
        read_tds(pieces(TDS, 64), limit=100)


@given(data=st.data(), method=st.sampled_from([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED]))
def test_damage(data: st.DataObject, method: int):
    # Prevents: a broken download ends in an error of a library, or the read never ends.
    content = bytearray(package(["b.hyper", "a.tds"], method=method, is_piped=False)[:60000])
    for _ in range(data.draw(st.integers(1, 5))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    with suppress(ValueError):
        read_tds(pieces(bytes(content), 997), limit=10**6)


def test_other_compression():
    # Prevents: bytes with another compression, or with encryption, pass for XML.
    content = package(["a.tds"], method=zipfile.ZIP_BZIP2, is_piped=False)
    with pytest.raises(ValueError, match="in a way that Tableau does not use"):
        read_tds(pieces(content, 64), limit=10**6)
    header = bytearray(package(["a.tds"], method=zipfile.ZIP_DEFLATED, is_piped=False))
    struct.pack_into("<H", header, 6, 1)
    with pytest.raises(ValueError, match="encrypted"):
        read_tds(pieces(bytes(header), 64), limit=10**6)
