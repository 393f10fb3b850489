import tableauserverclient as tsc

from tableau_sandbox.testing import Sandbox
from tableau_sandbox_tests.samples import call, code_of


def test_metadata(shared_sandbox: Sandbox, shared_server: tsc.Server):
    # Prevents: a client takes an answer about data sources that is made up for a true one.
    query = "query workbooks($luid: String!) { workbooks(filter: {luid: $luid}) { luid } }"
    other = shared_server.metadata.query("{ publishedDatasources { luid } }")
    assert "data" not in other
    assert "workbooks only" in other["errors"][0]["message"]
    # It has no version in its path, and needs a session all the same.
    path = "../metadata/graphql"
    assert code_of(call(shared_sandbox, "POST", path, json={"query": query})) == "401000"
    for body in ("[]", "{", '{"query": 1}'):
        refused = call(shared_sandbox, "POST", path, server=shared_server, data=body)
        assert code_of(refused) == "400000"
