"""The archive of classes from which Spark starts."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

_IN_OTHER_INSTALLATION = "import runpy, sys; sys.prefix = sys.argv[1]; "
_MAKE = "runpy.run_module('tableau_pipeline.snapshots.make_class_archive', run_name='__main__')"
_START = (
    "from tableau_pipeline.snapshots.spark import spark_session; "
    "assert spark_session().range(3).count() == 3"
)


def _python(code: str, prefix: Path, options: str = "") -> str:
    done = subprocess.run(
        [sys.executable, "-c", _IN_OTHER_INSTALLATION + code, str(prefix)],
        env={**os.environ, "SPARK_SUBMIT_OPTS": options},
        capture_output=True,
        text=True,
        check=True,
        timeout=240,
    )
    return done.stdout + done.stderr


@pytest.mark.slow
def test_spark_takes_its_classes_from_the_archive(tmp_path: Path) -> None:
    """Prevents an archive that Java ignores without a word, and one that stops Spark."""
    prefix = tmp_path / "a folder with spaces"
    assert "Java makes no archive" not in _python(_MAKE, prefix)
    [archive] = (prefix / "share" / "tableau_pipeline").iterdir()
    log = tmp_path / "classes.log"
    _python(_START, prefix, f"-Xlog:class+load:file={log}")
    spark = [line for line in log.read_text().splitlines() if "org.apache.spark" in line]
    # Java makes the classes of lambdas anew.
    loaded = [line for line in spark if "Lambda" not in line]
    archived = [line for line in loaded if "shared objects file (top)" in line]
    assert len(archived) > 0.9 * len(loaded) > 0

    archive.unlink()
    archive.write_bytes(b"of another Java")
    assert "cds" not in _python(_START, prefix)
