from pathlib import Path
from uuid import uuid4

import pytest
import requests
import tableauserverclient as tsc

from tableau_sandbox.testing import Sandbox
from tableau_sandbox_tests.samples import TIMEOUT, call, code_of, publish


@pytest.mark.parametrize(
    ("path", "code"),
    [
        *(("api/2.4/serverInfo", ""), ("api/2.0/serverinfo", ""), ("api/3.27/SERVERINFO", "")),
        # A client whose user ends the address of the server with a slash.
        *(("/api/2.4/serverInfo", ""), ("//api/3.27/serverinfo", "")),
        *(("api/3.28/serverInfo", "404003"), ("api/1.9/serverInfo", "404003")),
        *(("api/x/serverInfo", "404003"), ("api/3.27/no", "404003"), ("api/3.27", "404003")),
        *(("api/3.27/metadata/graphql", "404003"), ("api/serverInfo", "404003")),
    ],
)
def test_versions_in_the_path(shared_sandbox: Sandbox, path: str, code: str):
    """Prevents: a client finds no server, or is served a version that does not exist."""
    response = requests.get(f"{shared_sandbox.url}/{path}", timeout=TIMEOUT)
    assert ("<restApiVersion>3.27</restApiVersion>" in response.text) == (not code)
    assert not code or code_of(response) == code


def test_json_is_no_xml(shared_sandbox: Sandbox):
    """Prevents: a client that sends JSON gets an error of the sandbox, or is let in."""
    body = {"credentials": {"name": "admin", "password": "admin", "site": {"contentUrl": ""}}}
    assert code_of(call(shared_sandbox, "POST", "auth/signin", json=body)) == "400000"


def test_five_thousand_terms(sandbox: Sandbox, server: tsc.Server, one_row: Path):
    """Prevents: a condition that the grammar allows does not fit into a request."""
    item = publish(server, one_row)
    term = {"op": "eq", "target-col": "ä" * 255, "const": {"type": "string", "v": "x" * 500}}
    condition = {"op": "or", "args": [term] * 5_000}
    action = {"action": "delete", "target-table": "Extract", "condition": condition}
    path = f"sites/{{site}}/datasources/{item.id}/data"
    headers = {"RequestID": str(uuid4())}
    body = {"actions": [action]}
    answer = call(sandbox, "PATCH", path, server=server, headers=headers, json=body)
    assert answer.status_code == 202, answer.text
