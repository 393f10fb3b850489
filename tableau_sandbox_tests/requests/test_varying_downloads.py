import zipfile
from pathlib import Path
from xml.etree import ElementTree

import pytest
import tableauserverclient as tsc

from tableau_sandbox.content.tds import mark_tds
from tableau_sandbox.testing import Sandbox
from tableau_sandbox_tests.conftest import NewServer
from tableau_sandbox_tests.samples import (
    call,
    publish,
    rows_on_server,
    tds_of,
    write_package,
)
from tableau_sandbox_tests.updates.test_update_data import CLEAR, update


def downloaded(sandbox: Sandbox, server: tsc.Server, luid: str, *, whole: bool = True) -> bytes:
    path = f"sites/{{site}}/datasources/{luid}/content?includeExtract={whole}"
    answer = call(sandbox, "GET", path, server=server)
    assert answer.status_code == 200, answer.text
    return answer.content


def members(package: bytes, path: Path) -> dict[str, bytes]:
    path.write_bytes(package)
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def without_marks(root: ElementTree.Element) -> str:
    for location in root.findall("repository-location"):
        root.remove(location)
    return ElementTree.canonicalize(ElementTree.tostring(root), strip_text=True)


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


def test_packages_may_vary(new_server: NewServer, tmp_path: Path, one_row: Path):
    # Prevents: a pipeline takes a data source for changed since its package has other bytes.
    sandbox, server = new_server(zips_vary=True)
    item = publish(server, one_row)
    packages = [downloaded(sandbox, server, item.id) for _ in range(8)]
    assert len(set(packages)) == 8
    contents = [members(package, tmp_path / "package") for package in packages]
    assert all(content == contents[0] for content in contents)
    assert len({tuple(content) for content in contents}) <= 2
    assert rows_on_server(server, item.id) == [[1, "one"]]


def test_bare_download_may_be_a_package(new_server: NewServer, tmp_path: Path, one_row: Path):
    # Prevents: a pipeline reads XML where servers send a zip file.
    sandbox, server = new_server()
    item = publish(server, one_row)
    tds = tds_of(server, item.id, tmp_path)
    sandbox.set_quirks(download_without_extract="tdsx")
    path = server.datasources.download(item.id, str(tmp_path / "bare"), include_extract=False)
    assert path.endswith("bare.tdsx")
    assert members(Path(path).read_bytes(), tmp_path / "copy") == {"Flights.tds": tds.encode()}


def test_each_change_may_leave_a_mark(new_server: NewServer, tmp_path: Path, one_row: Path):
    # Prevents: a pipeline takes what servers write into each .tds for somebody's work.
    sandbox, server = new_server(tds_varies=True)
    item = publish(server, one_row)
    seen = []

    def look() -> str:
        seen.append(tds_of(server, item.id, tmp_path))
        return seen[-1]

    assert look() == look()
    publish(server, one_row, mode="Replace")
    assert look() != seen[-2]
    update(server, item, CLEAR)
    sandbox.wait_until_idle()
    assert look() != seen[-2]
    whole = members(downloaded(sandbox, server, item.id), tmp_path / "package")
    assert whole["Flights.tds"].decode() == seen[-1]
    server.datasources.download_revision(item.id, "1", str(tmp_path / "1"), include_extract=False)
    assert (tmp_path / "1.tds").read_text("utf-8") == seen[0]
    roots = [ElementTree.fromstring(text) for text in seen]
    assert all(len(root.findall("repository-location")) == 1 for root in roots)
    builds = [root.attrib.pop("source-build") for root in roots]
    assert len(set(builds)) == 3
    assert len({without_marks(root) for root in roots}) == 1
    sandbox.set_quirks(tds_varies=False)
    plain = ElementTree.fromstring(look())
    assert without_marks(plain) == without_marks(roots[0])


def test_marks_in_a_tds_of_others(new_server: NewServer, tmp_path: Path, one_row: Path):
    # Prevents: a package that was downloaded, published again and marked once more is no XML.
    _, server = new_server(tds_varies=True)
    tds = (
        "<?xml version='1.0' encoding='utf-8' ?>\n<!-- build 20253.25 -->\n"
        "<datasource note='a > b' source-build=\"1 > 0\" xmlns:user='urn:user'>"
        "<repository-location derived-from='x>y' id='Old' revision='1.0' />"
        "<connection class='hyper'/><column user:auto='true' name='[a]'/></datasource>"
    )
    package = write_package(tmp_path / "p.tdsx", {"p.tds": tds, "Data/p.hyper": one_row})
    item = publish(server, package, name="Größe")
    served = tds_of(server, item.id, tmp_path)
    root = ElementTree.fromstring(served)
    assert root.attrib.pop("source-build").startswith("0.0.")
    assert root.attrib == {"note": "a > b"}
    assert [child.tag for child in root] == ["repository-location", "connection", "column"]
    assert root[0].get("id") == item.content_url == "Größe"
    assert "<!-- build 20253.25 -->" in served
    assert "user:auto='true'" in served
    unknown = tds.encode("utf-16")
    assert mark_tds(unknown, content_url="x", revision=1, mark=1) == unknown
