"""`make dev`: the web UI, the daemon and a sandbox together, ended together."""

import os
import signal
import subprocess
import sys
from pathlib import Path

from tableau_pipeline.demo.sandbox_process import sandbox_process
from tableau_pipeline.resources import data_dir

_ROOT = Path(__file__).parents[2]


def main() -> int:
    """Run until Ctrl-C or SIGTERM; `PORT` and `SANDBOX_PORT` choose other ports."""
    # Before anything is started: a child of a background job would inherit its deafness to SIGINT.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    port = os.environ.get("PORT", "3000")
    sandbox = sandbox_process(
        data_dir() / "sandbox", port=int(os.environ.get("SANDBOX_PORT", "8765"))
    )
    try:
        with sandbox as environment:
            sys.stdout.write(
                f"Tableau sandbox: {environment['TABLEAU_SERVER_URL']} (admin / admin)\n"
                f"Dagster:         http://127.0.0.1:{port}\n"
            )
            sys.stdout.flush()
            return _dagster(port, environment)
    except RuntimeError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    except KeyboardInterrupt:
        return 0


def _dagster(port: str, environment: dict[str, str]) -> int:
    command = [str(Path(sys.executable).with_name("dg")), "dev", "-w", "workspace.yaml"]
    process = subprocess.Popen(
        [*command, "--host", "127.0.0.1", "--port", port],
        cwd=_ROOT,
        env={**os.environ, **environment},
        # Its children listen for SIGINT themselves: it alone shall be told, once.
        start_new_session=True,
    )
    try:
        return process.wait()
    finally:
        process.send_signal(signal.SIGINT)
        process.wait()


if __name__ == "__main__":
    sys.exit(main())
