"""Faults of certificates and of proxies: each fault has a message of its own."""

import ssl
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from functools import partial
from html import escape
from pathlib import Path
from urllib.parse import quote

import pytest
import trustme

from tableau_pipeline.errors import RefreshError, RefusedError
from tableau_pipeline.publishing.http import Wire
from tableau_pipeline.publishing.session import Password
from tableau_pipeline_tests.publishing import hostile
from tableau_pipeline_tests.publishing.conftest import SignIn

HOST, DAY = "127.0.0.1", timedelta(days=1)


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


def failure(sign_in: SignIn, url: str, bundle: Path | None = None) -> str:
    """The message of a sign-in that fails at a URL."""
    session = sign_in(Password("ann", "hush"), url=url, ca_bundle=bundle)
    with pytest.raises(RefreshError) as caught, session:
        pass
    return str(caught.value)


def presenting(
    authority: trustme.CA, *, host: str = HOST, since: timedelta = -DAY, until: timedelta = DAY
) -> ssl.SSLContext:
    """The TLS context of a server that presents a certificate of the authority."""
    now = datetime.now(UTC)
    issued = authority.issue_cert(host, not_before=now + since, not_after=now + until)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    issued.configure_cert(context)
    return context


CERTIFICATES = {
    "has expired. Have it renewed, or set the clock": {"since": -2 * DAY, "until": -DAY},
    "is not valid yet. Wait until it is, or set the clock": {"since": DAY, "until": 2 * DAY},
    "is for another host. Correct TABLEAU_SERVER_URL": {"host": "tableau.example"},
}


@pytest.mark.parametrize("problem", CERTIFICATES)
def test_certificate_that_is_not_valid(
    sign_in: SignIn,
    authority: trustme.CA,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    problem: str,
):
    """Prevents: an error names the wrong fault of a certificate, so its remedy does not help."""
    trusted = tmp_path / "trusted.pem"
    authority.cert_pem.write_to_path(trusted)
    settings: Mapping[str, object] = CERTIFICATES[problem]
    with hostile.front_of("", tls=presenting(authority, **settings)) as server:  # ty: ignore
        said = failure(sign_in, server.url, trusted)
    assert f"the certificate of {server.url} {problem}" in said
    assert "trying again" not in str(caplog.messages)


def test_certificate_of_an_unknown_authority(
    sign_in: SignIn, authority: trustme.CA, tmp_path: Path
):
    """Prevents: a certificate of an unknown authority is trusted, or refused without a remedy."""
    other = tmp_path / "other.pem"
    trustme.CA().cert_pem.write_to_path(other)
    with hostile.front_of("", tls=presenting(authority)) as server:
        for bundle in (None, other):
            said = failure(sign_in, server.url, bundle)
            assert "is not trusted. Point TABLEAU_CA_BUNDLE" in said


def test_server_without_tls(sign_in: SignIn):
    """Prevents: an error blames a certificate although the server does not encrypt at all."""
    with hostile.front_of("") as server:
        url = server.url.replace("http", "https")
        said = failure(sign_in, url)
    assert (
        f"{url} does not encrypt. If that is intended, begin TABLEAU_SERVER_URL with http:/" in said
    )
    assert "certificate" not in said


BUNDLES = {
    "cannot be read: No such file": None,
    "which is empty": b"\n",
    "which has no certificate": b"-----BEGIN PRIVATE KEY-----\n",
    "but DER. Convert it: openssl x509 -inform der": b"",
}


@pytest.mark.parametrize("variable", ["TABLEAU_CA_BUNDLE", "REQUESTS_CA_BUNDLE"])
@pytest.mark.parametrize("problem", BUNDLES)
def test_certificates_that_cannot_be_read(
    sign_in: SignIn,
    authority: trustme.CA,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    problem: str,
    variable: str,
):
    """Prevents: an error blames the server for an unreadable file of this host."""
    content, bundle = BUNDLES[problem], tmp_path / "trusted.crt"
    if content is not None:
        pem = authority.cert_pem.bytes().decode()
        bundle.write_bytes(content or ssl.PEM_cert_to_DER_cert(pem))
    own = variable.startswith("TABLEAU")
    if not own:
        monkeypatch.setenv(variable, str(bundle))
    session = sign_in(
        Password("ann", "hush"), url="https://127.0.0.1:1", ca_bundle=bundle if own else None
    )
    with pytest.raises(RefusedError) as caught, session:
        pass
    assert str(caught.value).startswith(f"{variable} is {str(bundle)!r}, ")
    assert problem in str(caught.value)


def test_certificates_that_nothing_needs(sign_in: SignIn, monkeypatch: pytest.MonkeyPatch):
    """Prevents: a variable of other programs makes a server without TLS unreachable."""
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", "/nowhere.pem")
    with sign_in() as site:
        assert site.find_project("Default")


CLOSED = "http://127.0.0.1:1"
PROXIES = {
    "http://ann:hush@{asks}": "it asks for a user and password (407)",
    CLOSED: "it does not answer",
    "http://proxy.invalid:3128": "its name is not known",
    "htp://127.0.0.1:3128": "its URL has to begin with http:// or https://",
    "https://{asks}": "it is reached by http",
    "http://{refuses}": "it refuses (403)",
}


@pytest.mark.parametrize("scheme", ["http", "https"])
@pytest.mark.parametrize("proxy", PROXIES)
def test_proxy(sign_in: SignIn, monkeypatch: pytest.MonkeyPatch, scheme: str, proxy: str):
    """Prevents: an error blames the server for a proxy's fault, or shows the proxy's password."""

    def asks(call: hostile.Call) -> None:
        call.whole(407, b"<html/>", Proxy_Authenticate="Basic")

    def refuses(call: hostile.Call) -> None:
        call.whole(403, b"<html/>")

    with (
        hostile.front_of("") as first,
        hostile.front_of("") as second,
        first.answering(".*", ".*", asks),
        second.answering(".*", ".*", refuses),
    ):
        named = proxy.format(asks=first.url[7:], refuses=second.url[7:])
        monkeypatch.setenv(f"{scheme}_proxy", named)
        said = failure(sign_in, f"{scheme}://tableau.example")
    assert "hush" not in said
    if scheme == "http" and "refuses" in proxy:
        # With http, this refusal looks like an answer of the server.
        assert "no proxy in between" in said
        return
    shown = named.replace("ann:hush@", "")
    by = f"no connection to {scheme}://tableau.example by the proxy {shown} ({scheme}_proxy): "
    assert by + PROXIES[proxy] in said


def test_socks(sign_in: SignIn, monkeypatch: pytest.MonkeyPatch):
    """Prevents: the error about a SOCKS proxy does not name the missing Python package."""
    monkeypatch.setenv("ALL_PROXY", "socks5://127.0.0.1:1080")
    for url in ("https://tableau.example", "HTTPS://tableau.example"):
        assert 'pip install "requests[socks]"' in failure(sign_in, url)


@pytest.mark.parametrize("quoted", [str, escape, partial(quote, safe="")])
def test_a_secret_in_another_form(quoted: Callable[[str], str]):
    """Prevents: a log shows a secret because a proxy's page quotes it in another encoding."""
    wire = Wire("https://tableau.example.com")
    wire.learn("a&b/c")
    assert wire.hide(f"no {quoted('a&b/c')} here") == "no *** here"


def test_a_secret_that_begins_with_another():
    """Prevents: a log shows the end of a secret because its beginning is a secret, too."""
    wire = Wire("https://tableau.example.com")
    for secret in ("abc", "abcdef", "ab"):
        wire.learn(secret)
    assert wire.hide("abcdef") == "***"


@pytest.mark.parametrize(
    ("body", "shown"),
    [
        (b"", "nothing"),
        (b"<html>\n\tSign\x00in </html>", "'<html> Sign in </html>'"),
        (b"x" * 161, repr("x" * 160 + "...")),
        (b'{"token": "abc"}', """'{"token": ...}'"""),
    ],
)
def test_what_came_instead_of_an_answer(body: bytes, shown: str):
    """Prevents: an error shows nothing of a foreign page, or the whole page."""
    assert Wire("https://tableau.example.com").excerpt(body) == shown
