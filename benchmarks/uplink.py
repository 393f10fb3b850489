"""A slow line to a server: it passes on only so many bytes a second from all clients together."""

import socketserver
import time
from collections.abc import Generator
from contextlib import contextmanager
from queue import Queue
from socket import SHUT_WR, create_connection, socket
from threading import Lock, Thread
from urllib.parse import urlsplit

_PIECE = 1 << 14
# As long as the buffers of a socket keep such a line busy.
_QUEUE_SECONDS = 0.02


class _Line:
    """The line that all connections share: one piece is on it at a time."""

    def __init__(self, bytes_per_second: int) -> None:
        self._seconds_per_byte = 1 / bytes_per_second
        self._lock, self._free_at = Lock(), 0.0

    def send(self, size: int) -> float:
        """Wait until so many bytes are in the line's queue; return when they will have left it."""
        with self._lock:
            self._free_at = max(self._free_at, time.monotonic()) + size * self._seconds_per_byte
            left_at = self._free_at
        # Without a queue, the line would idle whenever this thread sleeps a little too long.
        time.sleep(max(0.0, left_at - _QUEUE_SECONDS - time.monotonic()))
        return left_at


@contextmanager
def uplink(url: str, *, bytes_per_second: int, delay: float = 0) -> Generator[str]:
    """Yield an address of this machine from which such a line leads to the server.

    Args:
        delay: the seconds that each piece is on its way, once it has left. Answers come at once, so
            this is the delay of a round trip.
    """
    server, line = urlsplit(url), _Line(bytes_per_second)

    class Connection(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            with create_connection((server.hostname, server.port)) as beyond:
                under_way: Queue[tuple[float, bytes]] = Queue()
                answers = Thread(target=_pass_on, args=(beyond, self.request), daemon=True)
                arrivals = Thread(target=_arrive, args=(under_way, beyond), daemon=True)
                for thread in (answers, arrivals):
                    thread.start()
                try:
                    while piece := self.request.recv(_PIECE):
                        under_way.put((line.send(len(piece)) + delay, piece))
                finally:
                    under_way.put((0.0, b""))
                for thread in (arrivals, answers):
                    thread.join()

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Connection) as proxy:
        proxy.daemon_threads, proxy.block_on_close = True, False
        Thread(target=proxy.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{proxy.server_address[1]}"
        finally:
            proxy.shutdown()


def _arrive(under_way: Queue[tuple[float, bytes]], target: socket) -> None:
    """Hand on each piece when it has arrived, up to an empty one."""
    try:
        while (arrival := under_way.get())[1]:
            time.sleep(max(0.0, arrival[0] - time.monotonic()))
            target.sendall(arrival[1])
        target.shutdown(SHUT_WR)
    except OSError:
        # One side has closed its connection. The end of the other connection shows that.
        pass


def _pass_on(origin: socket, target: socket) -> None:
    try:
        while piece := origin.recv(_PIECE):
            target.sendall(piece)
        target.shutdown(SHUT_WR)
    except OSError:
        pass
