import pytest
import requests
import tableauserverclient as tsc

from tableau_sandbox.testing import Sandbox
from tableau_sandbox_tests.samples import TIMEOUT, call, code_of


def test_client_negotiates_the_version(server: tsc.Server):
    # Prevents: clients stay on 2.4 and lack the methods of newer versions.
    assert server.version == "3.27"
    info = server.server_info.get()
    assert info is not None
    assert info.product_version == "2025.3.0"


@pytest.mark.parametrize("path", ["2.4/serverInfo", "2.0/serverinfo", "3.27/SERVERINFO"])
def test_every_served_version_tells_about_the_server(shared_sandbox: Sandbox, path: str):
    # Prevents: a client that asks in its own version, or in lower case, finds no server.
    response = requests.get(f"{shared_sandbox.url}/api/{path}", timeout=TIMEOUT)
    assert response.status_code == 200
    assert response.text.startswith('<?xml version="1.0" encoding="UTF-8"?>')
    assert "<restApiVersion>3.27</restApiVersion>" in response.text


@pytest.mark.parametrize("path", ["3.28/serverInfo", "1.9/serverInfo", "x/serverInfo", "3.27/no"])
def test_unknown_paths_and_versions_lead_nowhere(shared_sandbox: Sandbox, path: str):
    # Prevents: a client is served a version or a resource that does not exist.
    response = requests.get(f"{shared_sandbox.url}/api/{path}", timeout=TIMEOUT)
    assert code_of(response) == "404003"
    assert f"Unknown resource '/{path}' specified in URI." in response.text


def test_json_only_for_those_who_ask(shared_sandbox: Sandbox):
    # Prevents: JSON clients get XML, or answers whose values are no strings.
    asked = call(shared_sandbox, "GET", "serverInfo", headers={"Accept": "application/json"}).json()
    assert asked["serverInfo"] == {
        "productVersion": {"value": "2025.3.0", "build": "20253.25.1021.0000"},
        "restApiVersion": "3.27",
    }
    refused = call(shared_sandbox, "GET", "sites", headers={"Accept": "application/json"})
    assert refused.status_code == 401
    assert refused.json() == {
        "error": {
            "code": "401000",
            "summary": "Unauthorized Access",
            "detail": "No authentication credentials were provided.",
        }
    }
