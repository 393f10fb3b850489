"""Run a sandbox, a local imitation of Tableau Server, as a child that ends with this process."""

import os
import re
import subprocess
import sys
from collections.abc import Generator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from tableau_pipeline.resources import data_dir

_STOP_SECONDS = 10
_PORT = "8765"


def local_sandbox() -> AbstractContextManager[dict[str, str]]:
    """Return a context manager that runs the sandbox of `make demo` and `make dev`.

    Both commands use the same data folder and the same port, which the variable SANDBOX_PORT may
    set. So links from Dagster to the sandbox stay valid.

    Raises:
        RuntimeError: the sandbox did not start; the message names the remedy.
    """
    port = os.environ.get("SANDBOX_PORT") or _PORT
    if not port.isdecimal():
        raise RuntimeError(f"SANDBOX_PORT is {port!r}: set it to a port, such as {_PORT}")
    return sandbox_process(data_dir() / "sandbox", port=int(port))


@contextmanager
def sandbox_process(
    data_dir: Path, *, port: int, options: Sequence[str] = ()
) -> Generator[dict[str, str]]:
    """Run `tableau-sandbox`; yield the environment variables that the pipeline needs to use it.

    Args:
        port: the port of the sandbox; 0 for any free port.
        options: further options of the command.

    Raises:
        RuntimeError: no sandbox started. The message has the first line of output and the remedy.
    """
    program = str(Path(sys.executable).with_name("tableau-sandbox"))
    # Use --quiet: only one line is read, so more output would fill the pipe and block the sandbox.
    command = [program, "--die-with-parent", "--quiet", *options]
    process = subprocess.Popen(
        [*command, "--port", str(port), "--data-dir", str(data_dir)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        # Drop the settings of the user's own sandbox, so that the new sandbox has the default
        # token.
        env={n: v for n, v in os.environ.items() if not n.startswith("TABLEAU_SANDBOX_")},
        # Ctrl-C in a terminal must reach only this process, which stops the sandbox after the
        # processes that use it.
        start_new_session=True,
    )
    try:
        banner = process.stdout.readline() if process.stdout else ""
        url = re.search(r"http://\S+", banner)
        if url is None:
            raise RuntimeError(
                f"The sandbox did not start: {banner.strip() or 'it printed nothing'}. If `make "
                "demo` or `make dev` already runs, stop it, or choose another port for both with "
                "SANDBOX_PORT=8766"
            )
        # Without TABLEAU_SANDBOX_ variables, every sandbox has this token.
        yield {
            "TABLEAU_SERVER_URL": url[0],
            "TABLEAU_SITE": "",
            "TABLEAU_TOKEN_NAME": "pipeline",
            "TABLEAU_TOKEN_VALUE": "pipeline-secret",
        }
    finally:
        process.terminate()
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
