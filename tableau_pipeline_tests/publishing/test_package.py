import zipfile
from io import BytesIO
from pathlib import Path

import pytest

from tableau_pipeline.errors import RefreshError
from tableau_pipeline.publishing.rest import unpack

SIZE = 10**6


def package(path: Path, *, way: int = zipfile.ZIP_DEFLATED, name: str = "a.hyper") -> Path:
    """A package with a million zeros."""
    with zipfile.ZipFile(path, "w", way) as opened:
        opened.writestr(name, bytes(SIZE))
    return path


def changed(path: Path, before: bytes, after: bytes) -> Path:
    """The same package with other bytes in both of its directories."""
    content = path.read_bytes()
    assert content.count(before) >= 2
    path.write_bytes(content.replace(before, after))
    return path


def unpacked(path: Path, *, limit: int = SIZE) -> int:
    into = BytesIO()
    unpack(path, ".hyper", into, limit=limit)
    return len(into.getvalue())


@pytest.mark.parametrize("name", ["a.hyper", "Data/Extracts/A.HYPER", "../../a.hyper", "a" * 9999])
def test_the_only_file_of_its_kind(tmp_path: Path, name: str):
    """Prevents: a name in a package decides where its file is written."""
    name = f"{name.removesuffix('.hyper')}.hyper"
    assert unpacked(package(tmp_path / "a.tdsx", name=name)) == SIZE
    assert [file.name for file in tmp_path.iterdir()] == ["a.tdsx"]


def test_file_that_unpacks_to_more(tmp_path: Path):
    """Prevents: a kilobyte that unpacks to a gigabyte fills the disk."""
    with pytest.raises(RefreshError, match=r"unpacks to 1\.00 MB, more than 0\.50 MB"):
        unpacked(package(tmp_path / "a.tdsx"), limit=SIZE // 2)


def test_file_that_lies_about_its_size(tmp_path: Path):
    """Prevents: the size that a package claims is checked, and more is unpacked."""
    lying = changed(
        package(tmp_path / "a.tdsx"), SIZE.to_bytes(4, "little"), (1000).to_bytes(4, "little")
    )
    into = BytesIO()
    with pytest.raises(ValueError, match="damaged: Bad CRC-32"):
        unpack(lying, ".hyper", into, limit=SIZE)
    assert len(into.getvalue()) <= 1000


@pytest.mark.parametrize("way", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_other_compression(tmp_path: Path, way: int):
    """Prevents: a piece of a file that unpacks to gigabytes in memory."""
    with pytest.raises(ValueError, match="compressed in another way"):
        unpacked(package(tmp_path / "a.tdsx", way=way))


@pytest.mark.parametrize("flags", [b"\x01\x00", b"\x20\x00"])
def test_unusual_features(tmp_path: Path, flags: bytes):
    """Prevents: a password, or a patch, ends in an error of a library."""
    path = package(tmp_path / "a.tdsx")
    content = path.read_bytes()
    # The flags stand after the signature and the version, or the two versions.
    for signature, at in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        start = content.index(signature) + at
        content = content[:start] + flags + content[start + 2 :]
    path.write_bytes(content)
    with pytest.raises(ValueError, match="the package is damaged"):
        unpacked(path)


@pytest.mark.parametrize("length", [0, 30, 500, -30])
def test_package_that_breaks_off(tmp_path: Path, length: int):
    """Prevents: half a package ends in an error of a library."""
    path = package(tmp_path / "a.tdsx")
    path.write_bytes(path.read_bytes()[:length])
    with pytest.raises(ValueError, match="the package is damaged"):
        unpacked(path)


def test_several_files(tmp_path: Path):
    """Prevents: one of several extracts is compared with all rows."""
    path = package(tmp_path / "a.tdsx")
    with zipfile.ZipFile(path, "a") as opened:
        opened.writestr("b.hyper", b"")
    with pytest.raises(ValueError, match=r"holds 2 \.hyper files, not one"):
        unpacked(path)
