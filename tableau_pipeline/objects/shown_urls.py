"""URLs from the environment, shown without what may be a secret."""

import re

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*(?=:/)")
_BEFORE_HOST = re.compile(r"^([A-Za-z][A-Za-z0-9+.-]*:)?/*")


def scheme_and_host(url: str) -> str:
    """Return the scheme and the host of a URL, even of one that is not valid: "https://host"."""
    scheme = _SCHEME.match(url)
    # A secret may hold any sign, "/" too, so what comes before the last "@" is never shown.
    rest = url.rpartition("@")[2] if "@" in url else _BEFORE_HOST.sub("", url)
    return f"{scheme[0].lower() + '://' if scheme else ''}{re.split('[/?#;:]', rest)[0]}"
