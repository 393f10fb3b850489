"""What a session must not let out: the secrets that it has sent itself."""

import html
import re
from urllib.parse import quote

import requests

_SIGN_IN = re.compile(r'(?:password|personalAccessTokenSecret|jwt)="([^"]+)"')
# Values in something that came instead of an answer: the session of a proxy, or a new token.
_VALUE = re.compile(r"""([=:]\s*)("[^"]*"?|'[^']*'?)""")
_LONGEST, _EXCERPT = 1500, 160


class Secrets:
    """The secrets that a session has sent, which a server may quote in its answers."""

    def __init__(self) -> None:
        self._known: set[str] = set()

    def learn(self, request: requests.PreparedRequest) -> None:
        """Remember the secrets in a request."""
        found = [str(request.headers.get("X-Tableau-Auth", ""))]
        if (request.path_url or "").endswith("/auth/signin"):
            body = request.body or b""
            text = body.decode("utf-8", "replace") if isinstance(body, bytes) else str(body)
            found += map(html.unescape, _SIGN_IN.findall(text))
        for secret in filter(None, found):
            self._known |= {secret, html.escape(secret), quote(secret, safe="")}

    def hide(self, text: str) -> str:
        """Return a text without the secrets."""
        for secret in sorted(self._known, key=len, reverse=True):
            text = text.replace(secret, "***")
        return text

    def message(self, text: str) -> str:
        """Return a message of the server without the secrets, and not longer than messages are."""
        hidden = self.hide(text)
        return hidden if len(hidden) <= _LONGEST else f"{hidden[:_LONGEST]}..."

    def excerpt(self, body: bytes) -> str:
        """Return the beginning of something that came instead of an answer."""
        if not body:
            return "nothing"
        # A secret may stand across the end, so more is searched than shown.
        text = self.hide(body[: 2**16].decode("utf-8", "replace"))
        shown = " ".join("".join(c if c.isprintable() else " " for c in text).split())
        shown = _VALUE.sub(r"\1...", shown)
        return repr(shown if len(shown) <= _EXCERPT else f"{shown[:_EXCERPT]}...")
