"""Simulate a slow line to a server, which all clients share."""

import socketserver
import time
from collections.abc import Generator
from contextlib import contextmanager
from queue import Queue
from socket import SHUT_WR, create_connection, socket
from threading import Lock, Thread
from urllib.parse import urlsplit

_PIECE = 1 << 14
# The buffers of a socket keep a real line busy for about this long.
_QUEUE_SECONDS = 0.02


class _Line:
    """The line that all connections share. It transmits one piece at a time."""

    def __init__(self, bytes_per_second: int) -> None:
        self._seconds_per_byte = 1 / bytes_per_second
        self._lock, self._free_at = Lock(), 0.0

    def send(self, size: int) -> float:
        """Wait until the line's queue has taken the bytes; return the time when they have left."""
        with self._lock:
            self._free_at = max(self._free_at, time.monotonic()) + size * self._seconds_per_byte
            left_at = self._free_at
        # Without a queue, the line would idle whenever this thread sleeps a little too long.
        time.sleep(max(0.0, left_at - _QUEUE_SECONDS - time.monotonic()))
        return left_at


@contextmanager
def uplink(url: str, *, bytes_per_second: int, delay: float = 0) -> Generator[str]:
    """Yield a local address; data sent to this address reaches the server through the slow line.

    Args:
        bytes_per_second: what the line transmits, for all clients together.
        delay: the seconds that each piece travels after it has left the line. Answers arrive
            without delay, so this is also the delay of a round trip.
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
    """Forward each piece at the time of its arrival. An empty piece ends the transfer."""
    try:
        while (arrival := under_way.get())[1]:
            time.sleep(max(0.0, arrival[0] - time.monotonic()))
            target.sendall(arrival[1])
        target.shutdown(SHUT_WR)
    except OSError:
        # One side has closed its connection, so there is nothing left to forward.
        pass


def _pass_on(origin: socket, target: socket) -> None:
    try:
        while piece := origin.recv(_PIECE):
            target.sendall(piece)
        target.shutdown(SHUT_WR)
    except OSError:
        pass
