"""Ports for servers that cannot choose their own."""

import secrets
from socket import socket

# Below the range that systems take for the other end of connections (Linux from 32768, macOS
# from 49152): a server that starts for ten seconds would find such a port taken by a connection.
_FIRST, _LAST = 10_000, 32_000


def free_port() -> int:
    """A port of 127.0.0.1 that nothing uses now."""
    while True:
        # By chance, and not the next one: tests in several processes choose at once.
        port = _FIRST + secrets.randbelow(_LAST - _FIRST)
        with socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        return port
