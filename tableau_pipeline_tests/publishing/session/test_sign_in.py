import logging
from pathlib import Path

import pytest

from tableau_pipeline.errors import RefreshError, RefusedError
from tableau_pipeline.publishing.session import (
    ConnectedApp,
    Credentials,
    Password,
    PersonalAccessToken,
    signed_in,
)
from tableau_pipeline_tests.publishing.conftest import LOG, SignIn
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


# It counts what signs out, without troubling it.
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
    """Prevents: a kind of credentials does not work, or a site other than the default one."""
    with sign_in(credentials, site=site) as tableau:
        assert (tableau.url, tableau.site) == (sandbox.url, site)
        assert tableau.user_id
        assert tableau.project("Default", create=False)


def test_slash_at_the_end_of_the_address(sandbox: Sandbox, sign_in: SignIn):
    """Prevents: a state that was recorded with a slash is taken for that of another server."""
    with sign_in(url=f"{sandbox.url}/") as tableau:
        assert tableau.url == sandbox.url


def test_sites_have_projects_of_their_own(sign_in: SignIn):
    """Prevents: a data source lands on another site than the one that was configured."""
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
    """Prevents: a misspelt site looks like wrong credentials only."""
    with pytest.raises(RefusedError) as caught, sign_in(site="sekond"):
        pass
    asked = (
        'Does the site "sekond" exist, with this user on it? TABLEAU_SITE is its name in the URL'
    )
    assert asked in str(caught.value)
    assert f'site "sekond" of {sandbox.url} as "{sandbox.user}"' in str(caught.value)


def test_session_ends_with_the_block(sandbox: Sandbox, sign_in: SignIn):
    """Prevents: every refresh leaves a session behind."""
    with sandbox.armed(SIGN_OUT) as ended:
        with sign_in():
            assert ended.fired == 0
        assert ended.fired == 1


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_session_ends_after_an_error(sandbox: Sandbox, sign_in: SignIn, error: type[BaseException]):
    """Prevents: a failed refresh keeps its session, or its own error is hidden."""
    with sandbox.armed(SIGN_OUT) as ended, pytest.raises(error, match="mine"), sign_in():
        raise error("mine")
    assert ended.fired == 1


def test_session_that_is_gone_already_is_no_error(sign_in: SignIn):
    """Prevents: a refresh that went well fails at its last step, signing out."""
    with sign_in() as tableau:
        token = tableau.tsc.auth_token
        tableau.tsc.auth.sign_out()
        tableau.tsc._set_auth("site", "user", token, "")


def test_server_that_does_not_tell_its_version(sandbox: Sandbox, sign_in: SignIn):
    # Prevents: a server that is busy for a moment passes for one of ten years ago.
    failing = Refuse(method="GET", path="serverInfo", status=500)
    with sandbox.armed(failing), pytest.raises(RefreshError, match="500") as caught, sign_in():
        pass
    assert not isinstance(caught.value, RefusedError)


@pytest.mark.parametrize("trusted", [True, False])
def test_certificate(tmp_path: Path, trusted: bool, caplog: pytest.LogCaptureFixture):
    # Prevents: the settings of the HTTP session lose those of TLS, or ask another server again.
    with running_sandbox(tmp_path, tls=True) as sandbox:
        session = signed_in(
            sandbox.url,
            site="",
            credentials=Password(sandbox.user, sandbox.password),
            ca_bundle=sandbox.certificate if trusted else None,
            log=LOG,
        )
        if trusted:
            with session as tableau:
                assert tableau.project("Default", create=False)
        else:
            with pytest.raises(RefreshError, match="TABLEAU_CA_BUNDLE"), session:
                pass
    assert "trying again" not in str(caplog.messages)
