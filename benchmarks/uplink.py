"""A network that takes only so many bytes a second on their way to a server."""

import socketserver
import time
from collections.abc import Generator
from contextlib import contextmanager
from socket import SHUT_WR, create_connection, socket
from threading import Thread
from urllib.parse import urlsplit

_PIECE = 1 << 14


@contextmanager
def uplink(url: str, *, bytes_per_second: int) -> Generator[str]:
    """Yield an address of this machine from which such a network leads to the server."""
    server = urlsplit(url)

    class Connection(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            with create_connection((server.hostname, server.port)) as beyond:
                answers = Thread(target=_pass_on, args=(beyond, self.request), daemon=True)
                answers.start()
                _pass_on(self.request, beyond, seconds_per_byte=1 / bytes_per_second)
                answers.join()

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Connection) as proxy:
        proxy.daemon_threads, proxy.block_on_close = True, False
        Thread(target=proxy.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{proxy.server_address[1]}"
        finally:
            proxy.shutdown()


def _pass_on(origin: socket, target: socket, *, seconds_per_byte: float = 0) -> None:
    try:
        while piece := origin.recv(_PIECE):
            time.sleep(len(piece) * seconds_per_byte)
            target.sendall(piece)
        target.shutdown(SHUT_WR)
    except OSError:
        # One of them has hung up, and the other one is told so at the end of the connection.
        pass
