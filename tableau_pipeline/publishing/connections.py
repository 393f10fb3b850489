"""Why no connection to a server comes about: certificates, and the proxy in between."""

import os
import re
import ssl
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

import requests
from urllib3.exceptions import NameResolutionError, ProxySchemeUnknown

from tableau_pipeline.errors import SettingError

OWN_BUNDLE = "TABLEAU_CA_BUNDLE"
# Without a bundle of its own, requests trusts what the first of these names.
_BUNDLES = ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
# OpenSSL, x509_vfy.h. The last two are for a host and for an IP address.
_EXPIRED, _NOT_YET, _OF_OTHERS = 10, 9, (62, 64)
_UNTRUSTED = (18, 19, 20, 21)
_CLOCK = "or set the clock of this machine, if it is wrong"
# What OpenSSL says of an answer that is not TLS at all; newer releases say the second.
_NO_TLS = frozenset({"WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "HTTP_REQUEST"})
_OLD_TLS = frozenset({"UNSUPPORTED_PROTOCOL", "TLSV1_ALERT_PROTOCOL_VERSION"})
_VARIABLES: Mapping[str, str] = MappingProxyType({"http": "HTTP_PROXY", "https": "HTTPS_PROXY"})
_LACKS_SOCKS = "Missing dependencies for SOCKS"


def check_bundle(bundle: Path | None, url: str) -> None:
    """Check the certificates that are to be trusted.

    Args:
        bundle: a file, or a folder as OpenSSL has it; None for what the environment names.
        url: of the server.

    Raises:
        RefusedError: it holds none that can be read.
    """
    name, path = OWN_BUNDLE, bundle
    # What others use the environment's for is no matter of a server without TLS.
    if path is None and url.startswith("https"):
        name = next((each for each in _BUNDLES if os.environ.get(each)), "")
        path = Path(os.environ[name]) if name else None
    if path is None or path.is_dir():
        return
    try:
        content = path.read_bytes()
    except OSError as error:
        raise SettingError(
            f"{name} is {str(path)!r}, which cannot be read: {error.strerror}. Name the PEM file "
            "with the certificates to trust.",
        ) from error
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(path)
    except ssl.SSLError as error:
        raise SettingError(f"{name} is {str(path)!r}, {_wrong_with(content, path)}") from error


def _wrong_with(content: bytes, path: Path) -> str:
    if not content.strip():
        return "which is empty. Name the PEM file with the certificates to trust."
    if content.startswith(b"\x30"):
        to = path.with_suffix(".pem")
        return (
            "which is no PEM file, but DER. Convert it: openssl x509 -inform der -in "
            f"{path} -out {to}"
        )
    return "which has no certificate that can be read. It has to be a PEM file with certificates."


def connection_problem(error: Exception, url: str) -> str | None:
    """Return why there is no connection, and what to do; None if this is about something else.

    Args:
        url: of the server.
    """
    causes = [*_causes(error)]
    proxy = _proxy_of(url)
    if proxy and (reason := _wrong_with_proxy(causes)):
        return f"no connection to {url} by the proxy {proxy}: {reason}"
    for cause in causes:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return f"the certificate of {url} {_wrong_with_certificate(cause)}"
        if isinstance(cause, ssl.SSLError):
            return _wrong_with_tls(cause, url)
    if proxy and isinstance(error, requests.exceptions.ConnectionError):
        return (
            f"no connection to {url} by the proxy {proxy}, or it broke off. If it is reached "
            "without one, add its host to NO_PROXY."
        )
    return None


def _wrong_with_certificate(error: ssl.SSLCertVerificationError) -> str:
    code = error.verify_code
    if code == _EXPIRED:
        return f"has expired. Have it renewed, {_CLOCK}."
    if code == _NOT_YET:
        return f"is not valid yet. Wait until it is, {_CLOCK}."
    if code in _OF_OTHERS:
        return (
            "is for another host. Correct TABLEAU_SERVER_URL to a host that it names, or have the "
            "server get one for this host."
        )
    if code in _UNTRUSTED:
        return (
            f"is not trusted. Point {OWN_BUNDLE} at the certificate of the authority that signed "
            "it."
        )
    return f"is not valid: {error.verify_message}. Have it replaced."


def _wrong_with_tls(error: ssl.SSLError, url: str) -> str:
    if error.reason in _NO_TLS:
        return (
            f"{url} does not encrypt. If that is meant, TABLEAU_SERVER_URL begins with http://; "
            "or its port is another."
        )
    if error.reason in _OLD_TLS:
        return f"{url} offers no TLS of version 1.2 or later. Have the server updated."
    return f"no encrypted connection to {url}: {error.reason or error}."


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and what it holds, the outermost first: urllib3 and requests wrap them."""
    seen: list[BaseException] = []
    waiting = [error]
    while waiting:
        one = waiting.pop(0)
        if any(one is each for each in seen):
            continue
        seen.append(one)
        yield one
        inner = (*one.args, getattr(one, "reason", None), one.__cause__, one.__context__)
        waiting += [each for each in inner if isinstance(each, BaseException)]


def _proxy_of(url: str) -> str | None:
    """Return the proxy for a URL without its password, and what names it; None if there is none."""
    found = requests.utils.select_proxy(url, requests.utils.get_environ_proxies(url))
    if not found:
        return None
    names = (_VARIABLES[url.partition(":")[0]], "ALL_PROXY")
    spelled = [each for name in names for each in (name.lower(), name)]
    named = next((each for each in spelled if os.environ.get(each)), "the system's settings")
    without_user = re.sub(r"^([^/]*//)?[^/@]*@", r"\1", found)
    return f"{without_user} ({named})"


def _wrong_with_proxy(causes: list[BaseException]) -> str | None:
    text = " ".join(map(str, causes))
    if any(isinstance(each, ProxySchemeUnknown) for each in causes):
        return "its URL has to begin with http:// or https://."
    if _LACKS_SOCKS in text:
        return 'SOCKS takes a package: pip install "requests[socks]".'
    if not any(isinstance(each, requests.exceptions.ProxyError) for each in causes):
        return None
    if re.search(r"\b407 ", text):
        return (
            "it asks for a user and password (407). Put them into its URL: "
            "http://user:password@host:port."
        )
    if refused := re.search(r"Tunnel connection failed: (\d+)", text):
        return f"it refuses ({refused[1]}). Have it allow that host, or add it to NO_PROXY."
    if any(isinstance(each, NameResolutionError) for each in causes):
        return "its name is not known. Correct it, or unset the variable."
    if "only use HTTP and not HTTPS" in text:
        return "it is reached by http, so its URL has to begin with http://."
    return "it does not answer. Correct it, unset it, or add the server's host to NO_PROXY."
