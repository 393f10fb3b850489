import os
import signal
import threading
import time

from tableau_sandbox.http.server import SandboxServer

_PARENT_POLL_SECONDS = 0.5


def stop_on_signals(server: SandboxServer) -> None:
    """Stop a server when this process is asked to end."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: server.stop())


def stop_without_parent(server: SandboxServer) -> None:
    """Stop a server when the parent of this process is gone."""
    parent = os.getppid()

    def watch() -> None:
        # A process whose parent has ended is adopted by another one.
        while os.getppid() == parent:
            time.sleep(_PARENT_POLL_SECONDS)
        server.stop()

    threading.Thread(target=watch, name="sandbox-parent-watch", daemon=True).start()
