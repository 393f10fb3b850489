import zipfile
from pathlib import Path

import pytest
import tableauserverclient as tsc

from tableau_sandbox.testing import Sandbox
from tableau_sandbox_tests.conftest import NewServer
from tableau_sandbox_tests.samples import (
    call,
    publish,
    tds_of,
)


def downloaded(sandbox: Sandbox, server: tsc.Server, luid: str, *, whole: bool = True) -> bytes:
    path = f"sites/{{site}}/datasources/{luid}/content?includeExtract={whole}"
    answer = call(sandbox, "GET", path, server=server)
    assert answer.status_code == 200, answer.text
    return answer.content


def members(package: bytes, path: Path) -> dict[str, bytes]:
    path.write_bytes(package)
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def test_downloads_are_alike_by_default(
    sandbox: Sandbox, server: tsc.Server, one_row: Path, monkeypatch: pytest.MonkeyPatch
):
    # Prevents: a test that compares downloads passes or fails by the time of day.
    item = publish(server, one_row)
    first = downloaded(sandbox, server, item.id)
    # Zip files count in steps of two seconds.
    real = zipfile.time.localtime
    monkeypatch.setattr(zipfile.time, "localtime", lambda now: real(now + 60))
    assert downloaded(sandbox, server, item.id) == first


def test_bare_download_may_be_a_package(new_server: NewServer, tmp_path: Path, one_row: Path):
    # Prevents: a pipeline reads XML where servers send a zip file.
    sandbox, server = new_server()
    item = publish(server, one_row)
    tds = tds_of(server, item.id, tmp_path)
    sandbox.set_quirks(download_without_extract="tdsx")
    path = server.datasources.download(item.id, str(tmp_path / "bare"), include_extract=False)
    assert path.endswith("bare.tdsx")
    assert members(Path(path).read_bytes(), tmp_path / "copy") == {"Flights.tds": tds.encode()}
