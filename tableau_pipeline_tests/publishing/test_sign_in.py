"""Sign-ins, and addresses that lead to no Tableau Server."""

import logging
import socket
import ssl
import traceback
from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

import pytest

from tableau_pipeline.errors import RefreshError, RefusedError
from tableau_pipeline.publishing.errors import BadAnswerError
from tableau_pipeline.publishing.http import Wire
from tableau_pipeline.publishing.session import (
    ConnectedApp,
    Credentials,
    Password,
    PersonalAccessToken,
)
from tableau_pipeline.resources import resources_from_env
from tableau_pipeline_tests.publishing import hostile
from tableau_pipeline_tests.publishing.conftest import SignIn
from tableau_pipeline_tests.publishing.test_hostile_answers import IMPATIENT
from tableau_sandbox.faults import Delay, Refuse
from tableau_sandbox.testing import Sandbox, running_sandbox

SECRET = "hush-hush-5c21"
LONG = SECRET + "-long-enough-for-a-key-of-256-bits"
WRONG: list[tuple[Credentials, str, str]] = [
    (Password("admin", SECRET), 'as "admin" with a password', "TABLEAU_PASSWORD"),
    (Password("nobody", SECRET), 'as "nobody" with a password', "TABLEAU_USERNAME"),
    (PersonalAccessToken("pipeline", SECRET), 'with the token "pipeline"', "15 days without use"),
    (
        ConnectedApp("admin", "client", "secret-id", LONG),
        'as "admin" by the connected app client',
        "TABLEAU_CONNECTED_APP_",
    ),
]


# A delay of 0 seconds, which only counts the sign-outs.
SIGN_OUT = Delay(method="POST", path="auth/signout", seconds=0, times=None)


@pytest.mark.parametrize(
    "credentials",
    [
        Password(Sandbox.user, Sandbox.password),
        PersonalAccessToken(Sandbox.token_name, Sandbox.token_secret),
    ],
    ids=["password", "token"],
)
@pytest.mark.parametrize("site", ["", "second"])
def test_sign_in(sandbox: Sandbox, sign_in: SignIn, credentials: Credentials, site: str):
    """Prevents: a kind of credentials does not work, or works only on the default site."""
    with sign_in(credentials, site=site) as tableau:
        assert (tableau.url, tableau.site) == (sandbox.url, site)
        assert tableau.user_id
        assert tableau.project("Default", create=False)


def test_slash_at_the_end_of_the_address(sandbox: Sandbox, sign_in: SignIn):
    """Prevents: a slash at the end makes an address pass for the address of another server."""
    with sign_in(url=f"{sandbox.url}/") as tableau:
        assert tableau.url == sandbox.url


def test_sites_have_projects_of_their_own(sign_in: SignIn):
    """Prevents: a data source lands on the wrong site."""
    with sign_in() as first, sign_in(site="second") as second:
        assert first.project("Default", create=False) != second.project("Default", create=False)


@pytest.mark.parametrize(("credentials", "who", "remedy"), WRONG)
def test_wrong_secret(
    sandbox: Sandbox,
    sign_in: SignIn,
    credentials: Credentials,
    who: str,
    remedy: str,
    caplog: pytest.LogCaptureFixture,
):
    """Prevents: a refused sign-in names no remedy, or shows the secret in Dagster's logs."""
    caplog.set_level(logging.DEBUG)
    with pytest.raises(RefusedError) as caught, sign_in(credentials):
        pass
    message = str(caught.value)
    for part in (f'Signing in to site "" of {sandbox.url} {who} failed: 401001', remedy):
        assert part in message
    assert SECRET not in message + repr(caught.value) + repr(credentials) + caplog.text


def test_unknown_site(sandbox: Sandbox, sign_in: SignIn):
    """Prevents: the error about a misspelt site mentions only the credentials."""
    with pytest.raises(RefusedError) as caught, sign_in(site="sekond"):
        pass
    asked = (
        'Does the site "sekond" exist, with this user on it? TABLEAU_SITE is its name in the URL'
    )
    assert asked in str(caught.value)
    assert f'site "sekond" of {sandbox.url} as "{sandbox.user}"' in str(caught.value)


@pytest.mark.parametrize("error", [None, ValueError, KeyboardInterrupt])
def test_session_ends_with_the_block(
    sandbox: Sandbox, sign_in: SignIn, error: type[BaseException] | None
):
    """Prevents: a session outlives its block, or the sign-out hides the error of the block."""
    expected = pytest.raises(error, match="mine") if error else nullcontext()
    with sandbox.armed(SIGN_OUT) as ended, expected, sign_in():
        assert ended.fired == 0
        if error:
            raise error("mine")
    assert ended.fired == 1


def test_session_that_is_gone_already_is_no_error(sign_in: SignIn):
    """Prevents: a successful refresh fails at its sign-out because its session has ended."""
    with sign_in() as tableau:
        token = tableau.tsc.auth_token
        tableau.tsc.auth.sign_out()
        tableau.tsc._set_auth("site", "user", token, "")


def test_server_that_does_not_tell_its_version(sandbox: Sandbox, sign_in: SignIn):
    # Prevents: a server that fails to tell its version passes for a server of ten years ago.
    failing = Refuse(method="GET", path="serverInfo", status=500)
    with sandbox.armed(failing), pytest.raises(RefreshError, match="500") as caught, sign_in():
        pass
    assert not isinstance(caught.value, RefusedError)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://ann:hush@tableau.example", "https://tableau.example"),
        ("https://hush@tableau.example:8443/x", "https://tableau.example"),
        ("HTTPS://ann:hu/hush@tableau.example", "https://tableau.example"),
        ("ann:hush@tableau.example", "tableau.example"),
        ("tableau.example", "tableau.example"),
        ("https:/tableau.example", "https://tableau.example"),
        ("https:/ann:hush@tableau.example", "https://tableau.example"),
        ("https://tableau.example/?token=hush", "https://tableau.example"),
        ("https://tableau.example#hush", "https://tableau.example"),
        ("ftp://tableau.example/hush", "ftp://tableau.example"),
        ("https://[tableau.example/hush", "https://[tableau.example"),
    ],
)
def test_address_that_holds_more(monkeypatch: pytest.MonkeyPatch, url: str, shown: str):
    """Prevents: credentials in TABLEAU_SERVER_URL appear in messages, logs and databases."""
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
    wire = Wire(own)
    if may:
        wire.check(to)
    else:
        with pytest.raises(BadAnswerError, match="must not get the secrets"):
            wire.check(to)


def test_server_that_upgrades_to_https(sign_in: SignIn, tmp_path: Path):
    """Prevents: a server that redirects http to https on its own host cannot be reached."""
    with running_sandbox(tmp_path, tls=True) as behind, hostile.front_of("") as front:
        upgrade = hostile.redirect(301, behind.url)
        with (
            front.answering(".*", ".*", upgrade),
            sign_in(
                Password(behind.user, behind.password), url=front.url, ca_bundle=behind.certificate
            ) as site,
        ):
            assert site.find_project("Default")


@pytest.mark.few_variants(1)
@pytest.mark.parametrize("answer", [hostile.slow, hostile.slow_headers], ids=lambda it: it.__name__)
def test_slow_answer_by_tls(sign_in: SignIn, tmp_path: Path, answer: hostile.Answer):
    """Prevents: a deadline does not end a slow answer on an encrypted connection."""
    with running_sandbox(tmp_path, tls=True) as sandbox:
        trusted = sandbox.certificate
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(trusted.with_name("server.pem"))
    with hostile.front_of("", tls=tls) as front, front.answering(".*", ".*", answer):
        session = sign_in(url=front.url, ca_bundle=trusted, times=IMPATIENT)
        with pytest.raises(RefreshError, match="took longer than 1 s"), session:
            pass


@contextmanager
def web_server(status: int, body: bytes, content_type: str) -> Generator[str]:
    """Run a web server that gives the same answer to every request."""

    def answer(call: hostile.Call) -> None:
        call.whole(status, body, Content_Type=content_type)

    with hostile.front_of("") as front, front.answering(".*", ".*", answer):
        yield front.url


@contextmanager
def nobody() -> Generator[str]:
    """An address at which nothing listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{taken.getsockname()[1]}"


@pytest.mark.parametrize(
    "server",
    [
        nobody(),
        nullcontext("http://tableau.invalid"),
        web_server(200, b"<html><body>Welcome", "text/html"),
        web_server(200, b'{"ok": true}', "application/json"),
        web_server(404, b"404 page not found", "text/plain"),
        web_server(401, b"<html><body>Proxy sign-in</body></html>", "text/html"),
        web_server(405, b"", "text/plain"),
    ],
    ids=["none", "no host", "page", "JSON", "404", "401", "405"],
)
def test_address_of_no_tableau(sign_in: SignIn, server: AbstractContextManager[str]):
    """Prevents: a wrong address ends in the traceback of a library."""
    with server as url, pytest.raises(RefreshError) as caught, sign_in(url=url):
        pass
    assert not isinstance(caught.value, RefusedError)
    for part in ("Signing in", url, "TABLEAU_SERVER_URL"):
        assert part in str(caught.value)


def test_proxy_that_lets_nothing_large_through(sign_in: SignIn):
    # Prevents: a proxy's limit on the size of requests passes for a wrong address.
    body = b"<html><title>413 Request Entity Too Large</title></html>"
    expected = pytest.raises(RefusedError, match="TSC_CHUNK_SIZE_MB")
    with web_server(413, body, "text/html") as url, expected, sign_in(url=url):
        pass
