"""Refuse what browsers send under a name that is not the sandbox's own.

A web page may let its own name point to 127.0.0.1 after it was loaded (DNS rebinding). To the
browser, the sandbox is then a part of that page's site, and the page may read its answers, or sign
in with the documented password. Only the header Host shows that the name is another one.
"""

import re
from collections.abc import Iterable
from ipaddress import IPv6Address, ip_address

from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

_LOOPBACK_NAMES = ("localhost", "127.0.0.1", "::1")
_REFUSAL = (
    "The sandbox is addressed by a name that is not its own. If you gave it that name, start it"
    " with --allowed-host NAME.\n"
)
# Browsers send one of them with each request, and clients of the API none.
_SENT_BY_BROWSERS = (b"origin", b"sec-fetch-site")
# A name or an address, IPv6 in brackets, and perhaps a port.
_HOST = re.compile(r"(?:\[([^\]]+)\]|([^:\[\]]+))(?::[0-9]*)?")


class HostGuard:
    """Passes requests on whose Host is the sandbox: loopback, the address reached, or allowed.

    Ports are not compared: a forwarded port is another one, and a page cannot choose its address.

    Args:
        app: the application to guard.
        allowed: further names of the sandbox.
        only_browsers: pass on what no browser sent, whatever its Host.
    """

    def __init__(self, app: ASGIApp, allowed: Iterable[str] = (), *, only_browsers: bool = False):
        self._app = app
        self._only_browsers = only_browsers
        self._names = {_canonical(name) for name in (*_LOOPBACK_NAMES, *allowed)}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or answer 403."""
        unguarded = self._only_browsers and not _is_of_browser(scope)
        passes = unguarded or self._is_own(scope)
        await (self._app if passes else PlainTextResponse(_REFUSAL, 403))(scope, receive, send)

    def _is_own(self, scope: Scope) -> bool:
        hosts = [value for name, value in scope["headers"] if name == b"host"]
        if len(hosts) != 1:
            return False
        name = host_name(hosts[0].decode("latin-1"))
        reached = scope.get("server")
        return name in self._names or (reached is not None and name == _canonical(reached[0]))


def _is_of_browser(scope: Scope) -> bool:
    return any(name in _SENT_BY_BROWSERS for name, _ in scope["headers"])


def host_name(header: str) -> str | None:
    """Return the name or the address in a header Host, in one spelling; None if it has none."""
    parsed = _HOST.fullmatch(header)
    return _canonical(parsed[1] or parsed[2]) if parsed else None


def _canonical(name: str) -> str:
    try:
        address = ip_address(name)
    except ValueError:
        return name.lower()
    if isinstance(address, IPv6Address) and address.ipv4_mapped:
        return str(address.ipv4_mapped)
    return str(address)
