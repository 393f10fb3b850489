import jwt

from tableau_pipeline.publishing.session.credentials import ConnectedApp

SECRET = "a-secret-of-at-least-thirty-two-bytes"
APP = ConnectedApp("ann", "client-id", "secret-id", SECRET)


def test_token_may_do_what_a_refresh_does_and_no_more():
    """Prevents: a refresh is forbidden half-way, or a stolen token may do anything."""
    token = APP.for_site("sales").credentials["jwt"]
    scopes = jwt.decode(token, SECRET, algorithms=["HS256"], audience="tableau")["scp"]
    assert {
        "tableau:content:read",
        "tableau:datasources:*",
        "tableau:file_uploads:create",
        "tableau:jobs:read",
        "tableau:projects:*",
    } <= set(scopes)
    assert "tableau:*" not in scopes
    assert not any("users" in scope or "permissions" in scope for scope in scopes)
