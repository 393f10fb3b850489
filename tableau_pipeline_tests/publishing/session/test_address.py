import ssl
import traceback
from pathlib import Path

import pytest

from tableau_pipeline.errors import RefreshError, RefusedError
from tableau_pipeline.publishing.http import Address, OtherOriginError
from tableau_pipeline.publishing.session import Password
from tableau_pipeline.resources import resources_from_env
from tableau_pipeline_tests.publishing import hostile
from tableau_pipeline_tests.publishing.conftest import SignIn
from tableau_pipeline_tests.publishing.test_hostile_answers import IMPATIENT
from tableau_sandbox.testing import running_sandbox


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://ann:hush@tableau.example", "https://tableau.example"),
        ("https://hush@tableau.example:8443/x", "https://tableau.example"),
        ("HTTPS://ann:hu/hush@tableau.example", "https://tableau.example"),
        ("ann:hush@tableau.example", "tableau.example"),
        ("https:/ann:hush@tableau.example", "https://tableau.example"),
        ("https://tableau.example/?token=hush", "https://tableau.example"),
        ("https://tableau.example#hush", "https://tableau.example"),
        ("ftp://tableau.example/hush", "ftp://tableau.example"),
        ("https://[tableau.example/hush", "https://[tableau.example"),
    ],
)
def test_address_that_holds_more(monkeypatch: pytest.MonkeyPatch, url: str, shown: str):
    """Prevents: credentials in TABLEAU_SERVER_URL stand in messages, logs and databases."""
    monkeypatch.setenv("TABLEAU_SERVER_URL", url)
    monkeypatch.setenv("TABLEAU_TOKEN_NAME", "pipeline")
    monkeypatch.setenv("TABLEAU_TOKEN_VALUE", "value")
    tableau = resources_from_env()["tableau"].process_config_and_initialize()
    with pytest.raises(RefusedError) as caught, tableau.session():
        pass
    assert f"TABLEAU_SERVER_URL ({shown})" in str(caught.value)
    shown_lines = traceback.format_exception_only(caught.value)
    assert "hush" not in "".join(shown_lines) + repr(caught.value.__cause__)


@pytest.mark.parametrize(
    ("own", "to", "may"),
    [
        ("http://tableau", "http://tableau/api", True),
        ("http://tableau", "http://TABLEAU:80/api", True),
        ("tableau", "http://tableau/api", True),
        ("http://tableau", "https://tableau/api", True),
        ("http://tableau:8000", "https://tableau:8443/api", True),
        ("https://tableau:443", "https://tableau/api", True),
        ("https://tableau", "http://tableau/api", False),
        ("http://tableau", "http://tableau:8080/api", False),
        ("https://tableau", "https://tableau:8443/api", False),
        ("https://tableau", "https://tableau.evil/api", False),
        ("https://tableau", "https://evil/tableau", False),
        ("https://tableau", "https://tableau@evil/api", False),
        ("https://tableau", "https://evil\\@tableau/api", False),
    ],
)
def test_where_requests_may_go(own: str, to: str, may: bool):
    """Prevents: a redirect takes the secrets of a session to another server."""
    address = Address.of(own)
    if may:
        address.check(to)
    else:
        with pytest.raises(OtherOriginError, match="must not get the secrets"):
            address.check(to)


def test_server_that_upgrades_to_https(sign_in: SignIn, tmp_path: Path):
    """Prevents: a server that sends http on to https on the same host cannot be reached."""
    with running_sandbox(tmp_path, tls=True) as behind, hostile.front_of("") as front:
        upgrade = hostile.redirect(301, behind.url)
        with (
            front.answering(".*", ".*", upgrade),
            sign_in(
                Password(behind.user, behind.password),
                url=front.url,
                ca_bundle=behind.certificate,
            ) as site,
        ):
            assert site.find_project("Default")


@pytest.mark.parametrize("answer", [hostile.slow, hostile.slow_headers], ids=lambda it: it.__name__)
def test_slow_answer_by_tls(sign_in: SignIn, tmp_path: Path, answer: hostile.Answer):
    """Prevents: what a deadline ends on a plain connection goes on for ever on an encrypted one."""
    with running_sandbox(tmp_path, tls=True) as sandbox:
        trusted = sandbox.certificate
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(trusted.with_name("server.pem"))
    with hostile.front_of("", tls=tls) as front, front.answering(".*", ".*", answer):
        session = sign_in(url=front.url, ca_bundle=trusted, times=IMPATIENT)
        with pytest.raises(RefreshError, match="was not done within 1 s"), session:
            pass
