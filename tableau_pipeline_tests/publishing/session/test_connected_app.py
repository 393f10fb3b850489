from datetime import UTC, datetime

import jwt
import pytest

from tableau_pipeline.publishing.session.credentials import ConnectedApp

SECRET = "a-secret-of-at-least-thirty-two-bytes"
APP = ConnectedApp("ann", "client-id", "secret-id", SECRET)


def claims() -> dict:
    token = APP.for_site("sales").credentials["jwt"]
    return jwt.decode(token, SECRET, algorithms=["HS256"], audience="tableau", issuer="client-id")


def test_token_says_who_for_whom_and_by_which_secret():
    """Prevents: Tableau refuses the token with no more than "10081"."""
    auth = APP.for_site("sales")
    assert auth.site_id == "sales"
    header = jwt.get_unverified_header(auth.credentials["jwt"])
    assert header == {
        "alg": "HS256",
        "typ": "JWT",
        "kid": "secret-id",
        "iss": "client-id",
    }
    assert claims()["sub"] == "ann"


def test_token_is_short_lived_and_used_once():
    """Prevents: Tableau refuses a token that lives longer than 10 minutes or was seen before."""
    first, second = claims(), claims()
    assert 0 < first["exp"] - datetime.now(UTC).timestamp() <= 10 * 60
    assert first["jti"] != second["jti"]


def test_token_may_do_what_a_refresh_does_and_no_more():
    """Prevents: a refresh is forbidden half-way, or a stolen token may do anything."""
    scopes = claims()["scp"]
    assert {
        "tableau:content:read",
        "tableau:datasources:create",
        "tableau:file_uploads:create",
        "tableau:jobs:*",
        "tableau:projects:create",
    } <= set(scopes)
    forbidden = ("tableau:*", "users", "permissions", "datasources:*", "projects:*", "delete")
    assert not [each for each in scopes if any(part in each for part in forbidden)]


def test_another_secret_does_not_verify():
    """Prevents: the token is signed with something else than the secret."""
    token = APP.for_site("").credentials["jwt"]
    with pytest.raises(jwt.InvalidSignatureError):
        jwt.decode(token, SECRET[::-1], algorithms=["HS256"], audience="tableau")
