"""The command `tableau-sandbox` in a process of its own."""

import re
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

COMMAND = [sys.executable, "-m", "tableau_sandbox"]


@contextmanager
def started_sandbox(
    data_dir: Path, *arguments: str
) -> Generator[tuple[subprocess.Popen[str], str], None, None]:
    """A sandbox in a process of its own, and its address; the process is killed in the end."""
    command = [*COMMAND, "--quiet", "--port", "0", "--data-dir", str(data_dir), *arguments]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process, read_url(process)
        finally:
            process.kill()


def read_url(process: subprocess.Popen[str]) -> str:
    """The address in the first line that it prints."""
    assert process.stdout is not None
    found = re.search(r"https?://\S+", process.stdout.readline())
    assert found, "the sandbox said no address"
    return found.group()
