import logging
import os
import re
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tableau_pipeline.errors import RefusedError
from tableau_pipeline.objects.local import scratch, temporary_folder
from tableau_pipeline.publishing.session import only_session
from tableau_pipeline.resources import data_dir, work_dir
from tableau_pipeline.resources.data_folder import local_copies

LOG = logging.getLogger(__name__)
REMEDY = "Remove it, or set TMPDIR to a folder of your own."


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of this user, which does not exist yet."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("PIPELINE_DATA_DIR", "s3://lake/data")
    return tmp_path / f"tableau_pipeline-{os.getuid()}"


def reserve_a_token() -> None:
    with only_session("https://tableau.example.com", token="token", timeout=0, log=LOG):
        pass


def copy_an_object() -> None:
    local_copies(1).path("s3://lake/data/a", Path.touch)


@pytest.fixture(
    params=[scratch, data_dir, lambda: work_dir(keep=False), copy_an_object, reserve_a_token],
    ids=["scratch", "data", "work", "copies", "token"],
)
def use(request: pytest.FixtureRequest) -> Callable[[], object]:
    """Each of those that want a private folder."""
    local_copies.cache_clear()
    return request.param


def refused(use: Callable[[], object], reason: str) -> None:
    with pytest.raises(RefusedError, match=reason) as caught:
        use()
    assert str(caught.value).endswith(REMEDY)
    assert "\n" not in str(caught.value)


def test_a_link_is_not_followed(use: Callable[[], object], folder: Path, tmp_path: Path):
    """Prevents: what another folder holds is taken for left by a killed run, and removed."""
    victim = tmp_path / "victim" / "work" / "project"
    victim.mkdir(parents=True)
    (victim / "lock").touch()
    (victim / "thesis.txt").write_text("years")
    before = sorted((tmp_path / "victim").rglob("*"))
    folder.symlink_to(tmp_path / "victim")
    refused(use, f"^{re.escape(str(folder))} is not a folder")
    assert sorted((tmp_path / "victim").rglob("*")) == before


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o705, 0o1777])
def test_a_folder_open_to_other_users(use: Callable[[], object], folder: Path, mode: int):
    """Prevents: another user reads the rows, or replaces a lock or a file that is published."""
    folder.mkdir()
    folder.chmod(mode)
    refused(use, re.escape(stat.filemode(stat.S_IFDIR | mode)))


def test_a_dangling_link(use: Callable[[], object], folder: Path, tmp_path: Path):
    """Prevents: FileExistsError, which names no remedy."""
    folder.symlink_to(tmp_path / "missing")
    refused(use, "is not a folder that you alone can open \\(l")
    assert not (tmp_path / "missing").exists()


def test_a_file_of_its_name(use: Callable[[], object], folder: Path):
    """Prevents: FileExistsError, which names no remedy."""
    folder.touch()
    refused(use, "is not a folder that you alone can open \\(-")


def test_the_folder_of_another_user(
    use: Callable[[], object], folder: Path, monkeypatch: pytest.MonkeyPatch
):
    """Prevents: another user who makes the folder first decides which of our refreshes run."""
    folder.mkdir(mode=0o700)
    uid = os.getuid() + 1
    folder.rename(folder.with_name(f"tableau_pipeline-{uid}"))
    monkeypatch.setattr(os, "getuid", lambda: uid)
    refused(use, f"user {uid - 1}")


def test_it_is_private_whatever_the_umask(folder: Path):
    """Prevents: a folder that we made, and then refuse ourselves."""
    for umask in (0o000, 0o022, 0o077):
        previous = os.umask(umask)
        try:
            assert temporary_folder() == temporary_folder() == folder
        finally:
            os.umask(previous)
        assert folder.stat().st_mode & 0o777 == 0o700
        folder.rmdir()
