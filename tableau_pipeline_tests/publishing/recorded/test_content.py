"""Downloads under the names and types that servers give them."""

import zipfile
from io import BytesIO
from pathlib import Path

import pytest

from tableau_pipeline.errors import RefreshError
from tableau_pipeline.publishing import packages
from tableau_pipeline_tests.publishing.recorded.support import ITEM, LUID, Server, raw

CONTENT = f"{ITEM}/content"
TDS = b'<?xml version="1.0" encoding="utf-8"?><datasource version="18.1"/>'
# 252 bytes. With its suffix, the name exceeds the 255 bytes that file systems allow.
LONG = "売上" * 42
# Bytes that decoding as text would damage.
DATA = bytes(range(256)) * 5000


def package() -> bytes:
    into = BytesIO()
    with zipfile.ZipFile(into, "w") as opened:
        opened.writestr("Sales.tds", TDS)
        opened.writestr("Data/Extracts/Sales.hyper", DATA)
    return into.getvalue()


NAMES = {
    # TSC, test_datasource.py.
    "a name": 'name="tableau_datasource"; filename="Sample datasource.tdsx"',
    # Migration SDK, IHttpResponseMessageExtensions: as servers on Linux write it.
    "a name in UTF-8": "filename*=UTF-8''R%C3%A4ume.tdsx",
    "a long name": f"filename*=UTF-8''{LONG}.tdsx".encode().decode("latin-1"),
    "a long name in quotes": f'attachment; filename="{LONG}.tdsx"'.encode().decode("latin-1"),
    "no name": 'name="tableau_datasource"',
    "an empty name": 'attachment; filename=""',
    "a name elsewhere": 'attachment; filename="../../elsewhere.tdsx"',
}


@pytest.mark.parametrize("name", NAMES)
def test_name_of_a_download(server: Server, tmp_path: Path, name: str):
    """Prevents: a file's name makes the download fail, or puts the file into another folder."""
    answer = raw(
        package(), Content_Disposition=NAMES[name], Content_Type="application/octet-stream"
    )
    with server.saying("GET", CONTENT, answer):
        file = server.site.download(LUID, tmp_path, limit=10**7)
    assert [*tmp_path.iterdir()] == [file]
    assert file.suffix == ".tdsx"
    with zipfile.ZipFile(file) as opened:
        assert opened.read("Data/Extracts/Sales.hyper") == DATA


@pytest.mark.parametrize(
    "kind",
    [
        "application/octet-stream",
        "application/octet-stream;charset=UTF-8",
        "application/xml;charset=utf-8",
        "text/plain;charset=klingon",
    ],
)
def test_type_of_a_download(server: Server, tmp_path: Path, kind: str):
    """Prevents: a download with a text type is read into memory as a whole, or is damaged."""
    # Pack only once: each package states the time at which it was packed.
    content = package()
    answer = raw(content, Content_Disposition='filename="a.tdsx"', Content_Type=kind)
    with server.saying("GET", CONTENT, answer):
        file = server.site.download(LUID, tmp_path, limit=10**7)
        with packages.open_content(server.site.tsc, LUID, limit=10**7) as opened:
            assert not opened._content_consumed
    assert file.read_bytes() == content


def test_content_without_a_package(server: Server, tmp_path: Path):
    """Prevents: the copy of a plain .tds document gets the suffix of a package."""
    answer = raw(TDS, Content_Disposition='filename="a.tds"', Content_Type="application/xml")
    with server.saying("GET", CONTENT, answer) as asked:
        file = server.site.download(LUID, tmp_path, limit=10**7)
    assert (file.suffix, file.read_bytes()) == (".tds", TDS)
    assert "includeExtract" not in asked[0]


def test_content_in_part(server: Server):
    """Prevents: a caller who needs the beginning of a download waits for all of it."""
    answer = raw(package(), Content_Disposition='filename="a.tdsx"')
    with (
        server.saying("GET", CONTENT, answer) as asked,
        packages.open_content(server.site.tsc, LUID, limit=10**7, extract=False) as opened,
    ):
        assert next(opened.iter_content(4)) == b"PK\x03\x04"
    assert asked[0].endswith("/content?includeExtract=False")


def test_content_that_is_too_large(server: Server, tmp_path: Path):
    """Prevents: a download fills the disk."""
    answer = raw(package(), Content_Disposition='filename="a.tdsx"')
    with (
        server.saying("GET", CONTENT, answer),
        pytest.raises(RefreshError, match=r"larger than 1\.00 MB"),
    ):
        server.site.download(LUID, tmp_path, limit=10**6)
