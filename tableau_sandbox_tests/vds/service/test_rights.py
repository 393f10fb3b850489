import re
from pathlib import Path

import pytest
import tableauserverclient as tsc

from tableau_sandbox.testing import Sandbox
from tableau_sandbox_tests.access.test_connected_app import token
from tableau_sandbox_tests.access.test_permissions import allow
from tableau_sandbox_tests.conftest import ALICE, VIEWER
from tableau_sandbox_tests.samples import publish, signed_in
from tableau_sandbox_tests.vds.service.asking import ask, query, refused
from tableau_sandbox_tests.vds.service.test_quirks import ENDPOINTS, TABLE

SCOPE = "tableau:viz_data_service:read"


def body_of(luid: str, endpoint: str = "") -> dict:
    query = {"query": {"fields": [TABLE]}} if endpoint == "query-datasource" else {}
    return {"datasource": {"datasourceLuid": luid}, **query}


@pytest.mark.parametrize("endpoint", ENDPOINTS)
def test_sessions_and_methods(vds: Sandbox, admin: tsc.Server, single: str, endpoint: str):
    """Prevents: an endpoint answers without a session, or to another verb."""
    body = body_of(single, endpoint)
    assert refused(ask(vds, None, endpoint, body)) == "401001"
    assert refused(ask(vds, admin, endpoint, body, method="PUT")) == "405000"
    ended = signed_in(vds)
    headers = {"X-Tableau-Auth": ended.auth_token}
    assert ask(vds, None, endpoint, body, headers=headers).status_code == 200
    ended.auth.sign_out()
    assert refused(ask(vds, None, endpoint, body, headers=headers)) == "401002"


@pytest.mark.parametrize("endpoint", ENDPOINTS)
def test_scope_of_connected_apps(vds: Sandbox, single: str, endpoint: str):
    """Prevents: an app works here without the scope, and is refused in production."""
    body = body_of(single, endpoint)
    for scope, works in ((SCOPE, True), ("tableau:content:read", False)):
        server = signed_in(vds, tsc.JWTAuth(token(scp=[scope])))
        answer = ask(vds, server, endpoint, body)
        assert (answer.status_code == 200) is works, answer.text
        assert works or refused(answer) == "401002"


@pytest.mark.parametrize("endpoint", ENDPOINTS)
def test_unknown_and_foreign_sources(vds: Sandbox, admin: tsc.Server, single: str, endpoint: str):
    """Prevents: a data source is found from another site, or one that is gone is called broken."""
    second = signed_in(vds, tsc.TableauAuth("admin", "admin", "second"))
    for server, luid in ((second, single), (admin, "no-such-luid")):
        answer = ask(vds, server, endpoint, body_of(luid, endpoint))
        assert (refused(answer), answer.json()["message"]) == ("404937", "Datasource not found.")


def test_form_of_refusals(vds: Sandbox, admin: tsc.Server):
    """Prevents: a client cannot read the time of a refusal, which has nanoseconds."""
    answer = ask(vds, admin, "read-views", {})
    assert refused(answer) == "404950"
    error = answer.json()
    assert error["message"] == "No endpoint POST /vizql-data-service/v1/read-views."
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}Z", error["datetime"])


def test_capability(vds: Sandbox, admin: tsc.Server, one_row: Path):
    """Prevents: whoever sees a data source may query it here, and is refused in production."""
    item = publish(admin, one_row, name="Guarded")
    alice = signed_in(vds, tsc.TableauAuth(ALICE.name, ALICE.password))
    asked = query(vds, alice, item.id, TABLE)
    assert refused(asked) == "403800"
    body = body_of(item.id)
    assert refused(ask(vds, alice, "get-datasource-model", body)) == "403800"
    answer = ask(vds, alice, "user-has-query-permissions", body).json()
    assert answer == {
        "hasQueryPermission": False,
        "datasourceType": "PUBLISHED",
        "resources": [
            {
                "resourceType": "Datasource",
                "luid": item.id,
                "capabilities": [
                    {"name": "Read", "mode": "Allow"},
                    {"name": "Connect", "mode": "Allow"},
                    {"name": "VizqlDataApiAccess", "mode": "Deny"},
                ],
            }
        ],
    }
    with vds.quirks(vds_access="everybody"):
        assert query(vds, alice, item.id, TABLE).status_code == 200
    herself = tsc.UserItem.as_reference(alice.user_id or "")
    allow(admin, item, herself, {"VizqlDataApiAccess": "Allow"})
    assert query(vds, alice, item.id, TABLE).json() == {"data": [{"n": 1}]}
    allow(admin, item, herself, {"Read": "Deny"})
    assert refused(query(vds, alice, item.id, TABLE)) == "404937"


def test_owners_and_viewers(vds: Sandbox, one_row: Path):
    """Prevents: the owner of a data source needs a rule to query it."""
    alice = signed_in(vds, tsc.TableauAuth(ALICE.name, ALICE.password))
    item = publish(alice, one_row, name="Hers")
    assert query(vds, alice, item.id, TABLE).json() == {"data": [{"n": 1}]}
    vera = signed_in(vds, tsc.TableauAuth(VIEWER.name, VIEWER.password))
    assert refused(query(vds, vera, item.id, TABLE)) == "403800"


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ([], "400803"),
        ([{"fieldCaption": "nothing"}], "400803"),
        ([{"fieldCaption": "n", "calculation": "COUNT([nothing])"}], "400800"),
        ([{"fieldCaption": "n", "calculation": "SUM(1)"}], "400800"),
        ([{"fieldCaption": "id"}, {"fieldCaption": "name"}, {"fieldCaption": "amount"}], "501000"),
        ([{"fieldCaption": "id", "colour": "red"}], "400802"),
    ],
)
def test_refused_queries(vds: Sandbox, admin: tsc.Server, shop: str, fields: list[dict], code: str):
    """Prevents: a query is answered that a server refuses, or whose joins nobody knows."""
    assert refused(query(vds, admin, shop, *fields)) == code


def test_what_is_no_request(vds: Sandbox, admin: tsc.Server):
    """Prevents: what is no JSON fails the service."""
    for data in (b"", b"{", b"[]", b"\xff", b'{"datasource":1}', b" " * (1 << 20 | 1)):
        answer = ask(vds, admin, "read-metadata", data=data)
        assert refused(answer) in ("400000", "400802")
