"""Start and stop a sandbox, in its own process or inside another process."""

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
# Clients that wait for a job pause up to half a minute between two requests. Keep their connections
# open for longer than this.
_KEEP_ALIVE_SECONDS = 60
_FOLDER, _TRUSTED = "tls", "certificate.pem"
# The file of the server's key and certificate. Clients trust the authority that signed the
# certificate.
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
        """End all connections: idle connections at once, all others after their answer."""
        for connection in list(self.server_state.connections):
            cycle = getattr(connection, "cycle", None)
            transport = getattr(connection, "transport", None)
            if transport is not None and (cycle is None or cycle.response_complete):
                # A plain close would wait until idle TLS clients close their side.
                transport.abort()
        await super().shutdown(sockets)

    @contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Install no signal handlers: the owner handles signals."""
        yield

    def hang_up(self, peer: Peer) -> None:
        """Break the connections to a peer without an answer."""
        for connection in list(self.server_state.connections):
            # Only HTTP connections know their peer, and the sandbox serves only HTTP connections.
            if getattr(connection, "client", None) == peer:
                connection.transport.abort()

    def stop(self) -> None:
        """Ask the server to stop; any thread may call this."""
        self.should_exit = True


def bind(host: str, port: int) -> socket.socket:
    """Return a listening socket; port 0 chooses a free port.

    Raises:
        OSError: the port is in use, or the host is not an address of this machine.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    # Use the port even if the connections of a sandbox that has just stopped have not closed yet.
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        # Clients that connect before the server is ready wait; they are not refused.
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
    """Yield the server of a sandbox that already executes jobs; the caller runs the server.

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
                # A request for a WebSocket gets the answer of a normal request.
                ws="none",
                # Identify peers by their connections, not by headers.
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
    """Return the path of the certificate that the clients of a sandbox must trust."""
    return data_dir / _FOLDER / _TRUSTED


def ensure_certificate(data_dir: Path) -> Path:
    """Return the path of the file with the sandbox's key and certificate; create it if necessary.

    The certificate is for 127.0.0.1, ::1 and localhost. Restarts keep the certificate, so that
    clients need to trust its authority only once.
    """
    folder = data_dir / _FOLDER
    if not (folder / _SERVER).exists():
        # Make both files in a temporary folder: a killed process must not leave only one file in
        # the final folder.
        made = data_dir / f"{_FOLDER}.new"
        shutil.rmtree(made, ignore_errors=True)
        made.mkdir(mode=0o700)
        _make(made)
        shutil.rmtree(folder, ignore_errors=True)
        made.rename(folder)
    return folder / _SERVER


def _make(folder: Path) -> None:
    # Import the module here, because only HTTPS needs it.
    import trustme

    authority = trustme.CA(organization_name="Tableau sandbox")
    server = authority.issue_cert("localhost", "127.0.0.1", "::1")
    (folder / _SERVER).touch(mode=0o600)
    server.private_key_and_cert_chain_pem.write_to_path(folder / _SERVER)
    (folder / _TRUSTED).write_bytes(authority.cert_pem.bytes())
