"""Explain failed connections to a server: problems of certificates, of TLS and of a proxy."""

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
# If OWN_BUNDLE is not set, the library requests trusts the certificates in the file or folder that
# the first set variable of these names.
_BUNDLES = ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
# Error codes of OpenSSL (x509_vfy.h). _OTHER_HOST has two codes: for a host name, and for an IP
# address.
_EXPIRED, _NOT_YET, _OTHER_HOST = 10, 9, (62, 64)
_UNTRUSTED = (18, 19, 20, 21)
_CLOCK = "or set the clock of this machine, if it is wrong"
# OpenSSL's reasons for an answer without TLS. Newer releases give RECORD_LAYER_FAILURE.
_NO_TLS = frozenset({"WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "HTTP_REQUEST"})
_OLD_TLS = frozenset({"UNSUPPORTED_PROTOCOL", "TLSV1_ALERT_PROTOCOL_VERSION"})
_VARIABLES: Mapping[str, str] = MappingProxyType({"http": "HTTP_PROXY", "https": "HTTPS_PROXY"})
_LACKS_SOCKS = "Missing dependencies for SOCKS"


def check_bundle(bundle: Path | None, url: str) -> None:
    """Check that the certificates to trust can be read.

    Args:
        bundle: a file, or a folder in OpenSSL's form; None for the bundle that the environment
            names.
        url: the URL of the server.

    Raises:
        RefusedError: the bundle contains no readable certificate.
    """
    name, path = OWN_BUNDLE, bundle
    # Ignore the environment's bundle if this server has no TLS: other programs may need the bundle.
    if path is None and url.startswith("https"):
        name = next((variable for variable in _BUNDLES if os.environ.get(variable)), "")
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
        pem = path.with_suffix(".pem")
        return (
            "which is no PEM file, but DER. Convert it: openssl x509 -inform der -in "
            f"{path} -out {pem}"
        )
    return "which has no certificate that can be read. It has to be a PEM file with certificates."


def connection_problem(error: Exception, url: str) -> str | None:
    """Explain a problem of a certificate, of TLS or of a proxy; None if the error has other causes.

    Args:
        url: the URL of the server.
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
            f"no connection to {url} by the proxy {proxy}, or it broke off. If the server "
            "is reached without a proxy, add its host to NO_PROXY."
        )
    return None


def _wrong_with_certificate(error: ssl.SSLCertVerificationError) -> str:
    code = error.verify_code
    if code == _EXPIRED:
        return f"has expired. Have it renewed, {_CLOCK}."
    if code == _NOT_YET:
        return f"is not valid yet. Wait until it is, {_CLOCK}."
    if code in _OTHER_HOST:
        return (
            "is for another host. Correct TABLEAU_SERVER_URL to a host in the certificate, or have "
            "the server get a certificate for this host."
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
            f"{url} does not encrypt. If that is intended, begin TABLEAU_SERVER_URL with http://; "
            "otherwise, name the port that encrypts."
        )
    if error.reason in _OLD_TLS:
        return f"{url} offers no TLS of version 1.2 or later. Have the server updated."
    return f"no encrypted connection to {url}: {error.reason or error}."


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an error, and then the errors that urllib3 and requests have wrapped in this error."""
    seen: list[BaseException] = []
    waiting = [error]
    while waiting:
        cause = waiting.pop(0)
        if any(cause is other for other in seen):
            continue
        seen.append(cause)
        yield cause
        inner = (*cause.args, getattr(cause, "reason", None), cause.__cause__, cause.__context__)
        waiting += [other for other in inner if isinstance(other, BaseException)]


def _proxy_of(url: str) -> str | None:
    """Return the proxy for a URL, and the setting that names the proxy; hide user and password.

    Return None if requests to the URL go without a proxy.
    """
    proxy = requests.utils.select_proxy(url, requests.utils.get_environ_proxies(url))
    if not proxy:
        return None
    names = (_VARIABLES[url.partition(":")[0]], "ALL_PROXY")
    spellings = [spelling for name in names for spelling in (name.lower(), name)]
    source = next(
        (spelling for spelling in spellings if os.environ.get(spelling)), "the system's settings"
    )
    without_user = re.sub(r"^([^/]*//)?[^/@]*@", r"\1", proxy)
    return f"{without_user} ({source})"


def _wrong_with_proxy(causes: list[BaseException]) -> str | None:
    text = " ".join(map(str, causes))
    if any(isinstance(cause, ProxySchemeUnknown) for cause in causes):
        return "its URL has to begin with http:// or https://."
    if _LACKS_SOCKS in text:
        return 'SOCKS needs a package: pip install "requests[socks]".'
    if not any(isinstance(cause, requests.exceptions.ProxyError) for cause in causes):
        return None
    if re.search(r"\b407 ", text):
        return (
            "it asks for a user and password (407). Put them into its URL: "
            "http://user:password@host:port."
        )
    if match := re.search(r"Tunnel connection failed: (\d+)", text):
        return f"it refuses ({match[1]}). Have it allow that host, or add it to NO_PROXY."
    if any(isinstance(cause, NameResolutionError) for cause in causes):
        return "its name is not known. Correct it, or unset the variable."
    if "only use HTTP and not HTTPS" in text:
        return "it is reached by http, so its URL has to begin with http://."
    return "it does not answer. Correct it, unset it, or add the server's host to NO_PROXY."
