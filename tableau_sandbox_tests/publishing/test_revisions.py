from pathlib import Path
from zipfile import ZipFile

import pytest
import tableauserverclient as tsc

from tableau_sandbox_tests.conftest import NewServer
from tableau_sandbox_tests.samples import (
    publish,
    rows_of,
    rows_on_server,
    tds_of,
)


def rows_of_revision(server: tsc.Server, luid: str, number: str, folder: Path) -> list[list]:
    package = server.datasources.download_revision(luid, number, str(folder / number))
    with ZipFile(package) as archive:
        (member,) = [name for name in archive.namelist() if name.endswith(".hyper")]
        return rows_of(Path(archive.extract(member, folder / f"revision {number}")))


def test_each_publish_is_a_revision(
    server: tsc.Server, tmp_path: Path, one_row: Path, two_rows: Path
):
    # Prevents: nobody can go back to what was published before.
    item = publish(server, one_row)
    first_tds = tds_of(server, item.id, tmp_path)
    publish(server, two_rows, mode="Overwrite")
    item = publish(server, one_row, mode="Append")
    server.datasources.populate_revisions(item)
    listed = [(found.revision_number, found.current) for found in item.revisions]
    assert listed == [("1", False), ("2", False), ("3", True)]
    assert {(found.user_name, found.deleted) for found in item.revisions} == {("admin", False)}
    assert item.revisions[-1].created_at == item.updated_at
    assert rows_of_revision(server, item.id, "1", tmp_path) == [[1, "one"]]
    assert rows_of_revision(server, item.id, "2", tmp_path) == [[1, "one"], [2, "two"]]
    assert len(rows_on_server(server, item.id)) == 3
    bare = server.datasources.download_revision(
        item.id, "1", str(tmp_path / "bare"), include_extract=False
    )
    assert Path(bare).read_text("utf-8") == first_tds
    # The present content is not an earlier revision, and has an address of its own.
    for unknown in ("3", "4", "0", "x"):
        with pytest.raises(tsc.ServerResponseError, match="404024"):
            server.datasources.download_revision(item.id, unknown, str(tmp_path / "no"))


def test_a_bounded_number_is_kept(new_server: NewServer, tmp_path: Path, one_row: Path):
    # Prevents: old publishes fill the disk, or the present one is thrown away with them.
    _, server = new_server(kept_revisions=2)
    for _ in range(4):
        item = publish(server, one_row, mode="Overwrite")
    server.datasources.populate_revisions(item)
    assert [found.revision_number for found in item.revisions] == ["3", "4"]
    assert len(list((tmp_path / "sandbox" / "content").iterdir())) == 2
    server.datasources.delete(item.id)
    assert list((tmp_path / "sandbox" / "content").iterdir()) == []
