"""A time limit for a request as a whole; those of a socket begin again with every byte."""

import socket
from contextlib import suppress
from contextvars import ContextVar
from threading import Timer
from typing import Any

import requests
from requests.adapters import HTTPAdapter
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool


class TooSlowError(requests.Timeout):
    """A request was not over in time."""


class Deadline:
    """Ends the connection of a request that is not over in time, whatever it is waiting for.

    Each attempt has the whole time, as does each part of it that opens a connection.

    Attributes:
        passed: whether the connection was ended.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.passed = False
        self._timer: Timer | None = None
        self._socket: Any = None

    def begin(self, connection: HTTPConnection) -> None:
        """Begin an attempt on a connection."""
        self.end()
        self.passed = False
        self._timer = Timer(self.seconds, self._pass, [connection])
        self._timer.daemon = True
        self._timer.start()

    def keep(self, opened: Any) -> None:
        """Keep a socket that the answer comes from: its connection may let go of it before."""
        self._socket = opened

    def end(self) -> None:
        """The attempt is over."""
        if self._timer:
            self._timer.cancel()

    def check(self, error: BaseException | None = None) -> None:
        """Check that the connection was not ended.

        Raises:
            TooSlowError: it was.
        """
        if self.passed:
            raise TooSlowError(f"it was not done within {self.seconds:g} s") from error

    def _pass(self, connection: HTTPConnection) -> None:
        self.passed = True
        for opened in (self._socket, connection.sock):
            # In TLS within TLS, the socket is inside. Its own shutdown() would wait for the other.
            inner: Any = getattr(opened, "socket", opened)
            with suppress(OSError, TypeError):
                socket.socket.shutdown(inner, socket.SHUT_RDWR)


# The deadline of the request that this thread sends.
_CURRENT: ContextVar[Deadline] = ContextVar("deadline")


class _Timed(HTTPConnection):
    def connect(self) -> None:
        _CURRENT.get().begin(self)
        super().connect()

    def request(self, *args: Any, **settings: Any) -> None:
        _CURRENT.get().begin(self)
        super().request(*args, **settings)

    def getresponse(self) -> Any:
        _CURRENT.get().keep(self.sock)
        response = super().getresponse()
        # Before another attempt, urllib3 would read an answer to its end, which may never come.
        response.drain_conn = response.close
        return response


class _TimedTLS(_Timed, HTTPSConnection):
    pass


class TimedPool(HTTPConnectionPool):
    """Connections whose requests have a deadline."""

    ConnectionCls: Any = _Timed


class _TLSPool(HTTPSConnectionPool):
    ConnectionCls: Any = _TimedTLS


_POOLS: Any = {"http": TimedPool, "https": _TLSPool}


class TimedAdapter(HTTPAdapter):
    """Sends each request with a deadline, which the caller ends after the body."""

    def init_poolmanager(self, *args: Any, **settings: Any) -> None:
        """Use connections that can be ended."""
        super().init_poolmanager(*args, **settings)
        self.poolmanager.pool_classes_by_scheme = _POOLS

    def proxy_manager_for(self, proxy: str, **settings: Any) -> Any:
        """Use such connections to a proxy, too."""
        manager = super().proxy_manager_for(proxy, **settings)
        # SOCKS has connections of its own.
        if proxy.lower().startswith("http"):
            manager.pool_classes_by_scheme = _POOLS
        return manager

    def send_until(
        self, deadline: Deadline, request: requests.PreparedRequest, *args: Any, **settings: Any
    ) -> requests.Response:
        """Send a request.

        Raises:
            TooSlowError: the deadline passed before an answer began.
        """
        token = _CURRENT.set(deadline)
        try:
            return super().send(request, *args, **settings)
        except BaseException as error:
            deadline.end()
            deadline.check(error)
            raise
        finally:
            _CURRENT.reset(token)
