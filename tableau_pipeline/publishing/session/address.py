"""The address of the server, and the only one that requests may go to."""

from dataclasses import dataclass

import requests
from urllib3.exceptions import LocationParseError
from urllib3.util import Url, parse_url

from tableau_pipeline.errors import RefusedError
from tableau_pipeline.objects.shown_urls import scheme_and_host

_PORTS = {"http": 80, "https": 443}


class OtherOriginError(requests.RequestException):
    """An answer sends the request on to another server, which would get its secrets."""


@dataclass(frozen=True, slots=True)
class Address:
    """The URL of a server, without a slash at its end, and without anything secret."""

    url: str

    @classmethod
    def of(cls, url: str) -> "Address":
        """Return the address at a URL.

        Raises:
            RefusedError: the URL holds credentials, or is none.
        """
        shown = f"TABLEAU_SERVER_URL ({scheme_and_host(url)})"
        # It stands in messages, records and the web UI.
        if set("@?#") & set(url):
            raise RefusedError(
                f'{shown} holds "@", "?" or "#", and may hold credentials: set it to the address '
                "alone, such as https://tableau.example.com, and sign in by the variables of a "
                "token, a user or a connected app."
            )
        try:
            known = parse_url(url).scheme in (None, *_PORTS)
        except LocationParseError:
            known = False
        if not known:
            raise RefusedError(
                f"{shown} is not an address of the web: set it to one such as "
                "https://tableau.example.com."
            )
        # Checkpoints name the server by this text, and a slash would make it another server.
        return cls(url.rstrip("/"))

    def check(self, url: str | None) -> None:
        """Check that a request goes to this server; from http, it may go on to https.

        Raises:
            OtherOriginError: it goes to another one.
        """
        own, to = parse_url(self.url), parse_url(url or "")
        # The Tableau Server Client takes an address without a scheme for one of http.
        scheme = own.scheme or "http"
        is_secure = scheme == "http" and to.scheme == "https"
        same = to.scheme == scheme and _port(to, to.scheme) == _port(own, scheme)
        if to.host != own.host or not (same or is_secure):
            port = f":{to.port}" if to.port else ""
            raise OtherOriginError(
                f"it sends requests on to {to.scheme}://{to.host}{port}, which must not get the "
                "secrets in them. Set TABLEAU_SERVER_URL to the address where Tableau itself "
                "answers"
            )


def _port(url: Url, scheme: str | None) -> int | None:
    return url.port or _PORTS.get(scheme or "")
