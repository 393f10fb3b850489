"""Run `make dev`: start the web UI, the daemon and a sandbox, and stop them together.

The sandbox is a local imitation of Tableau Server.
"""

import os
import signal
import subprocess
import sys
from pathlib import Path
from socket import SO_REUSEADDR, SOL_SOCKET, socket

from tableau_pipeline.demo.sandbox_process import local_sandbox

_ROOT = Path(__file__).parents[2]


def main() -> int:
    """Run until Ctrl-C or SIGTERM; the variables `PORT` and `SANDBOX_PORT` set other ports."""
    # Set the handlers before any process is started. A background job ignores SIGINT, and its child
    # processes would inherit that setting.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    port = os.environ.get("PORT") or "3000"
    try:
        # Check the port here, because Dagster reports a port in use only after half a minute.
        with socket() as probe:
            # Like web servers, treat a port as free while its last connections are still closing.
            probe.setsockopt(SOL_SOCKET, SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", int(port)))
    except (OSError, ValueError, OverflowError) as error:
        sys.stderr.write(
            f"The web UI cannot use port {port} ({error}): choose another with PORT=3001 make dev\n"
        )
        return 1
    command = [str(Path(sys.executable).with_name("dg")), "dev", "-w", "workspace.yaml"]
    try:
        with local_sandbox() as environment:
            sys.stdout.write(
                f"Tableau sandbox: {environment['TABLEAU_SERVER_URL']} (admin / admin)\n"
                f"Dagster:         http://127.0.0.1:{port}\n"
            )
            sys.stdout.flush()
            process = subprocess.Popen(
                [*command, "--host", "127.0.0.1", "--port", port],
                cwd=_ROOT,
                env={**os.environ, **environment},
                # Start a new session, so that Ctrl-C reaches only this process. `dg dev` stops its
                # own children when it gets the SIGINT below.
                start_new_session=True,
            )
            try:
                return process.wait()
            finally:
                process.send_signal(signal.SIGINT)
                process.wait()
    except RuntimeError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    except KeyboardInterrupt:
        return 0


if __name__ == "__main__":
    sys.exit(main())
