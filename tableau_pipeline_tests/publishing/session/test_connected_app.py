import jwt

from tableau_pipeline.publishing.session import ConnectedApp

SECRET = "a-secret-of-at-least-thirty-two-bytes"
APP = ConnectedApp("ann", "client-id", "secret-id", SECRET)


def test_token_may_do_what_a_refresh_does_and_no_more():
    """Prevents: a refresh is forbidden half-way, or a stolen token may do anything."""
    token = APP.for_site("sales").credentials["jwt"]
    scopes = jwt.decode(token, SECRET, algorithms=["HS256"], audience="tableau")["scp"]
    assert {
        "tableau:content:read",
        "tableau:datasources:create",
        "tableau:file_uploads:create",
        "tableau:jobs:*",
        "tableau:projects:create",
    } <= set(scopes)
    forbidden = ("tableau:*", "users", "permissions", "datasources:*", "projects:*", "delete")
    assert not [each for each in scopes if any(part in each for part in forbidden)]
