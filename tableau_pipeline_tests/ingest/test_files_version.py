import os
import shutil
from pathlib import Path

import pytest

from tableau_pipeline.errors import RefusedError
from tableau_pipeline.ingest import files_version


@pytest.fixture
def exports(tmp_path: Path) -> Path:
    for name in ("1.csv", "2.csv"):
        (tmp_path / name).write_text("id\n1\n", "utf-8")
        os.utime(tmp_path / name, (1_700_000_000, 1_700_000_000))
    return tmp_path


def test_it_stays_as_long_as_the_files_do(exports: Path) -> None:
    """Prevents a model that runs each time, because its files were read or looked at."""
    before = files_version(f"{exports}/*.csv")
    (exports / "1.csv").read_text("utf-8")
    (exports / "other.txt").touch()
    (exports / ".hidden.csv").touch()
    assert files_version(f"{exports}/*.csv") == before
    assert before.startswith("2 files, ")


def test_it_changes_with_the_files(exports: Path) -> None:
    """Prevents rows that came in, and that no model reads."""
    one, two = exports / "1.csv", exports / "2.csv"
    seen = [files_version(str(exports))]
    os.utime(one, (1_700_000_000, 1_700_000_001))
    seen.append(files_version(str(exports)))
    one.write_text("id\n10\n", "utf-8")
    os.utime(one, (1_700_000_000, 1_700_000_001))
    seen.append(files_version(str(exports)))
    two.rename(exports / "3.csv")
    seen.append(files_version(str(exports)))
    shutil.copy2(one, exports / "4.csv")
    seen.append(files_version(str(exports)))
    (exports / "4.csv").unlink()
    (exports / "3.csv").unlink()
    seen.append(files_version(str(exports)))
    assert len(set(seen)) == 6


def test_no_file_is_no_version(exports: Path) -> None:
    """Prevents a folder that is not mounted, and that passes for one without news."""
    with pytest.raises(RefusedError, match="matches no file"):
        files_version(f"{exports}/*.json")
