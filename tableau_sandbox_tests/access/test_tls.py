import socket
import ssl
from collections.abc import Callable
from pathlib import Path

import pytest
import requests
import tableauserverclient as tsc

from tableau_sandbox.testing import Sandbox
from tableau_sandbox_tests.samples import TIMEOUT, publish


def signed_in_over_tls(url: str, certificate: Path) -> tsc.Server:
    options = {"verify": str(certificate)}
    server = tsc.Server(url, use_server_version=True, http_options=options)
    server.auth.sign_in(tsc.TableauAuth(Sandbox.user, Sandbox.password))
    return server


def test_clients_that_trust_the_certificate(start_sandbox: Callable[..., Sandbox], one_row: Path):
    # Prevents: clients that insist on https cannot be tried, or lose their trust at a restart.
    sandbox = start_sandbox(tls=True)
    server = signed_in_over_tls(sandbox.url, sandbox.certificate)
    assert str(publish(server, one_row).webpage_url).startswith(f"{sandbox.url}/")
    trusted = sandbox.certificate.read_bytes()
    sandbox.restart()
    assert sandbox.certificate.read_bytes() == trusted
    assert len(server.datasources.get()[0]) == 1
    with pytest.raises(requests.exceptions.SSLError):
        requests.get(sandbox.url, timeout=TIMEOUT)


def test_strict_clients_and_other_names(start_sandbox: Callable[..., Sandbox]):
    # Prevents: the certificate is good for one address, or for clients that check little.
    sandbox = start_sandbox(tls=True)
    context = ssl.create_default_context(cafile=sandbox.certificate)
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    port = int(sandbox.url.rpartition(":")[2])
    for host in ("127.0.0.1", "localhost"):
        with context.wrap_socket(socket.create_connection((host, port)), server_hostname=host):
            pass
    assert sandbox.certificate.with_name("server.pem").stat().st_mode & 0o077 == 0
