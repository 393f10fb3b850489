"""Start and stop a sandbox, in its own process or inside another one."""

import shutil
import socket
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

import uvicorn

from tableau_sandbox.control import Control, Peer
from tableau_sandbox.http.app import build_app
from tableau_sandbox.http.middlewares import DateHeader
from tableau_sandbox.jobs.worker import Worker
from tableau_sandbox.options import Options
from tableau_sandbox.services import Services, open_services

_SHUTDOWN_SECONDS = 5
# Seconds. Clients that wait for a job pause up to half a minute between two requests.
_KEEP_ALIVE_SECONDS = 60
_FOLDER, _TRUSTED = "tls", "certificate.pem"
# The key and the certificate of the server; clients trust the authority that signed it.
_SERVER = "server.pem"


class SandboxServer(uvicorn.Server):
    """A web server that reports when it is ready, and leaves signals to its owner.

    Attributes:
        services: the services of the sandbox.
    """

    def __init__(self, config: uvicorn.Config, services: Services, on_ready: Callable[[], None]):
        super().__init__(config)
        self.services = services
        self._on_ready = on_ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to listen."""
        await super().startup(sockets)
        self._on_ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End all connections: idle ones at once, others after their answer."""
        for connection in list(self.server_state.connections):
            cycle = getattr(connection, "cycle", None)
            transport = getattr(connection, "transport", None)
            if transport is not None and (cycle is None or cycle.response_complete):
                # A plain close would wait until idle TLS clients close too.
                transport.abort()
        await super().shutdown(sockets)

    @contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Install no signal handlers: the owner handles signals."""
        yield

    def hang_up(self, peer: Peer) -> None:
        """Break the connections to a peer without an answer."""
        for connection in list(self.server_state.connections):
            # Only HTTP connections know their peer, and the sandbox serves no others.
            if getattr(connection, "client", None) == peer:
                connection.transport.abort()

    def stop(self) -> None:
        """Ask it to stop; callable from any thread."""
        self.should_exit = True


def bind(host: str, port: int) -> socket.socket:
    """Return a listening socket; port 0 chooses a free one.

    Raises:
        OSError: the port is in use, or the host is not this machine.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    # The connections of a sandbox that has just stopped may still be closing.
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        # Clients that connect early wait instead of being refused.
        listener.listen(128)
    except OSError:
        listener.close()
        raise
    return listener


def url_of(listener: socket.socket, *, tls: bool) -> str:
    """Return the URL of a sandbox that serves on this socket."""
    host, port = listener.getsockname()[:2]
    scheme = "https" if tls else "http"
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


@contextmanager
def sandbox_server(
    options: Options,
    *,
    control: Control | None = None,
    on_ready: Callable[[], None] = lambda: None,
) -> Generator[SandboxServer]:
    """Open a sandbox with its worker running, ready to be `run` on a socket.

    Raises:
        DataDirectoryInUseError: another sandbox uses the data directory.
    """
    control = control or Control()
    with open_services(options, control) as services:
        worker = Worker(services)
        worker.start()
        try:
            config = uvicorn.Config(
                # uvicorn would date answers by the machine's clock.
                DateHeader(build_app(services), services.clock),
                date_header=False,
                log_level="warning",
                access_log=False,
                lifespan="off",
                # A request to upgrade to a WebSocket is answered as a normal request.
                ws="none",
                # Peers are identified by their connections, not by headers.
                proxy_headers=False,
                timeout_graceful_shutdown=_SHUTDOWN_SECONDS,
                timeout_keep_alive=_KEEP_ALIVE_SECONDS,
                ssl_certfile=ensure_certificate(options.data_dir) if options.tls else None,
            )
            server = SandboxServer(config, services, on_ready)
            control.hang_up = server.hang_up
            yield server
        finally:
            worker.stop()


def certificate_path(data_dir: Path) -> Path:
    """Return the path of the certificate that clients of a sandbox have to trust."""
    return data_dir / _FOLDER / _TRUSTED


def ensure_certificate(data_dir: Path) -> Path:
    """Return the key and the certificate of a sandbox for 127.0.0.1 and localhost, in one file.

    They stay across restarts, so that clients need to trust them only once.
    """
    folder = data_dir / _FOLDER
    if not (folder / _SERVER).exists():
        # Make both files in another folder: a killed process must not leave one of them here.
        made = data_dir / f"{_FOLDER}.new"
        shutil.rmtree(made, ignore_errors=True)
        made.mkdir(mode=0o700)
        _make(made)
        shutil.rmtree(folder, ignore_errors=True)
        made.rename(folder)
    return folder / _SERVER


def _make(folder: Path) -> None:
    # Import this only here, because only HTTPS needs it.
    import trustme

    authority = trustme.CA(organization_name="Tableau sandbox")
    server = authority.issue_cert("localhost", "127.0.0.1", "::1")
    (folder / _SERVER).touch(mode=0o600)
    server.private_key_and_cert_chain_pem.write_to_path(folder / _SERVER)
    (folder / _TRUSTED).write_bytes(authority.cert_pem.bytes())
