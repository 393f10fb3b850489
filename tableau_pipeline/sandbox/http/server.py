"""The life of a running sandbox, in a process of its own or inside another one."""

import socket
from collections.abc import Callable, Generator
from contextlib import contextmanager

import uvicorn

from tableau_pipeline.sandbox.control.control import Control, Peer
from tableau_pipeline.sandbox.http.app import build_app
from tableau_pipeline.sandbox.http.certificate import ensure_certificate
from tableau_pipeline.sandbox.http.date_header import DateHeader
from tableau_pipeline.sandbox.jobs.registry import KINDS
from tableau_pipeline.sandbox.jobs.worker import Worker
from tableau_pipeline.sandbox.options import Options
from tableau_pipeline.sandbox.services import Services, open_services

_SHUTDOWN_SECONDS = 5
# Clients that wait for a job pause up to half a minute between two questions.
_KEEP_ALIVE_SECONDS = 60


class SandboxServer(uvicorn.Server):
    """A web server that says when it is ready, and leaves signals to its owner.

    Attributes:
        services: what it serves from.
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
        """End all connections: at once where nothing is going on, otherwise after the answer."""
        for connection in list(self.server_state.connections):
            cycle = getattr(connection, "cycle", None)
            transport = getattr(connection, "transport", None)
            if transport is not None and (cycle is None or cycle.response_complete):
                # A mere close would wait for clients over TLS that are idle to say goodbye too.
                transport.abort()
        await super().shutdown(sockets)

    @contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Leave the signals alone: its owner decides what they mean."""
        yield

    def hang_up(self, peer: Peer) -> None:
        """Break the connections to a peer, without a word."""
        for connection in list(self.server_state.connections):
            # Only the kinds that speak HTTP know their peer; the sandbox serves no others.
            if getattr(connection, "client", None) == peer:
                connection.transport.abort()

    def stop(self) -> None:
        """Ask it to finish; callable from any thread."""
        self.should_exit = True


def bind(host: str, port: int) -> socket.socket:
    """A socket to serve on; port 0 takes a free one.

    Raises:
        OSError: the port is taken, or the host is not this one.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        # Clients that come early wait instead of being refused.
        listener.listen(128)
    except OSError:
        listener.close()
        raise
    return listener


def url_of(listener: socket.socket, *, tls: bool) -> str:
    """The address of a sandbox that serves on this socket."""
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
    """A sandbox with its worker running, ready to be `run` on a socket.

    Raises:
        DataDirectoryInUseError: another sandbox works in the data directory.
    """
    control = control or Control()
    with open_services(options, control) as services:
        worker = Worker(services, KINDS)
        worker.start()
        try:
            certificate = ensure_certificate(options.data_dir) if options.tls else None
            config = uvicorn.Config(
                # It knows the machine's clock only.
                DateHeader(build_app(services), services.clock),
                date_header=False,
                log_level="warning",
                access_log=False,
                lifespan="off",
                # A request to become a WebSocket is answered as if it had not asked.
                ws="none",
                # Peers are known by the connections that they have, whatever they say.
                proxy_headers=False,
                timeout_graceful_shutdown=_SHUTDOWN_SECONDS,
                timeout_keep_alive=_KEEP_ALIVE_SECONDS,
                ssl_certfile=certificate.path if certificate else None,
                ssl_keyfile=certificate.key_path if certificate else None,
            )
            server = SandboxServer(config, services, on_ready)
            control.hang_up = server.hang_up
            yield server
        finally:
            worker.stop()
