"""Errors about object stores that cannot be reached because of a certificate, TLS or a proxy."""

import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import trustme
from obstore.store import S3Store

from tableau_pipeline.errors import RefusedError
from tableau_pipeline.objects.errors import translate_errors
from tableau_pipeline_tests.publishing import hostile

DAY = timedelta(days=1)
CASES = {
    "has expired": ("127.0.0.1", -2 * DAY, -DAY),
    "is not valid yet": ("127.0.0.1", DAY, 2 * DAY),
    "is for another host": ("store.example", -DAY, DAY),
    "is not trusted": ("127.0.0.1", -DAY, DAY),
}


def failure(url: str) -> str:
    """The message of a read that fails."""
    store = S3Store(
        "bucket",
        endpoint=url,
        region="here",
        access_key_id="id",
        secret_access_key="hush",
        client_options={"allow_http": True},
        retry_config={"max_retries": 0, "retry_timeout": timedelta(seconds=5)},
    )
    with (
        pytest.raises(RefusedError) as caught,
        translate_errors("Reading", "s3://bucket/a", kind=RefusedError),
    ):
        store.get("a")
    return str(caught.value)


@pytest.mark.parametrize("problem", CASES)
def test_certificates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, problem: str):
    """Prevents: an error names the wrong fault of a certificate, so its remedy does not help."""
    authority, other, now = trustme.CA(), trustme.CA(), datetime.now(UTC)
    trusted = tmp_path / "trusted.pem"
    (other if "trusted" in problem else authority).cert_pem.write_to_path(trusted)
    monkeypatch.setenv("SSL_CERT_FILE", str(trusted))
    host, since, until = CASES[problem]
    issued = authority.issue_cert(host, not_before=now + since, not_after=now + until)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    issued.configure_cert(context)
    with hostile.front_of("", tls=context) as server:
        said = failure(server.url)
    assert f"the certificate of the store {problem}" in said


def test_store_without_tls():
    """Prevents: the error about a wrong URL scheme reads as if the network were down."""
    with hostile.front_of("") as server:
        assert "the store does not encrypt" in failure(server.url.replace("http", "https"))


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_proxy(monkeypatch: pytest.MonkeyPatch, scheme: str):
    """Prevents: an error blames the store although a proxy asks for a password."""

    def asks(call: hostile.Call) -> None:
        call.whole(407, b"", Proxy_Authenticate="Basic")

    with hostile.front_of("") as proxy, proxy.answering(".*", ".*", asks):
        for name in ("HTTP_PROXY", "HTTPS_PROXY"):
            monkeypatch.setenv(name, proxy.url)
        said = failure(f"{scheme}://store.example")
    assert "the proxy asks for a user and password" in said
    assert "HTTPS_PROXY" in said
