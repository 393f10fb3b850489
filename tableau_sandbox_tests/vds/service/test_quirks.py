import pytest
import tableauserverclient as tsc

from tableau_sandbox.testing import Sandbox
from tableau_sandbox.vds.schema import Schema
from tableau_sandbox_tests.vds.service.asking import ask, count_of, query, refused

TABLE = {"fieldCaption": "n", "calculation": "COUNT([Extract])"}
ENDPOINTS = {
    "read-metadata": "20251",
    "query-datasource": "20251",
    "get-datasource-model": "20253",
    "list-supported-functions": "20261",
    "user-has-query-permissions": "20262",
}
OPTIONS = {
    "debug": "20251",
    "disaggregate": "20251",
    "bypassMetadataCache": "20253",
    "interpretFieldCaptionsAsFieldNames": "20253",
    "returnServerSentEvents": "20261",
    "withNewSession": "20262",
}


def test_server_without_the_service(vds: Sandbox, admin: tsc.Server, single: str):
    """Prevents: a client takes the page of a server without the service for an answer of it."""
    with vds.quirks(vds=False):
        for endpoint in ("simple-request", *ENDPOINTS):
            answer = ask(vds, admin, endpoint, {"datasource": {"datasourceLuid": single}})
            assert answer.status_code == 404
            assert not answer.headers["Content-Type"].startswith("application/json")


@pytest.mark.parametrize("schema", Schema)
def test_endpoints_of_each_version(vds: Sandbox, admin: tsc.Server, single: str, schema: Schema):
    """Prevents: a client uses an endpoint that servers of its time do not have."""
    with vds.quirks(vds_schema=schema):
        for endpoint, since in ENDPOINTS.items():
            body = {"datasource": {"datasourceLuid": single}}
            if endpoint == "query-datasource":
                body["query"] = {"fields": [{"fieldCaption": "id"}]}
            answer = ask(vds, admin, endpoint, body)
            if schema >= since:
                assert answer.status_code == 200, answer.text
            else:
                assert refused(answer) == "404950"
                message = f"No endpoint POST /vizql-data-service/v1/{endpoint}."
                assert answer.json()["message"] == message
                # Whoever has no session hears the same.
                assert refused(ask(vds, None, endpoint, body)) == "404950"


@pytest.mark.parametrize("schema", Schema)
def test_options_of_each_version(vds: Sandbox, admin: tsc.Server, single: str, schema: Schema):
    """Prevents: a client sends an option that older servers refuse, and never learns of it."""
    with vds.quirks(vds_schema=schema):
        for option, since in OPTIONS.items():
            answer = query(vds, admin, single, {"fieldCaption": "id"}, options={option: False})
            assert (answer.status_code == 200) is (schema >= since), option
            assert answer.status_code == 200 or refused(answer) == "400802"
        counted = query(vds, admin, single, TABLE)
        assert (counted.status_code == 200) is (schema >= Schema.V20261)
        assert counted.status_code == 200 or refused(counted) == "400800"


def test_model_of_an_older_version(vds: Sandbox, admin: tsc.Server, shop: str, single: str):
    """Prevents: a client relies on keys that came later."""
    body = {"datasource": {"datasourceLuid": shop}}
    with vds.quirks(vds_schema="20253"):
        (one,) = ask(vds, admin, "get-datasource-model", body).json()["logicalTableRelationships"]
        assert set(one) == {"fromLogicalTable", "toLogicalTable"}
    with vds.quirks(vds_schema="20251"):
        first, *_ = ask(vds, admin, "read-metadata", body).json()["data"]
        assert set(first) == {"fieldName", "fieldCaption", "dataType", "logicalTableId"}


def test_answers_to_empty_aggregates(vds: Sandbox, admin: tsc.Server, empty: str, single: str):
    """Prevents: a client knows one form of zero only."""
    with vds.quirks(vds_empty="zero"):
        assert count_of(vds, admin, empty, "COUNT([Extract])") == 0
        assert count_of(vds, admin, empty, "MAX([id])") is None
    with vds.quirks(vds_empty="error"):
        assert refused(query(vds, admin, empty, TABLE)) == "500810"
        assert count_of(vds, admin, single, "COUNT([Extract])") == 1
        assert query(vds, admin, empty, {"fieldCaption": "id"}).json() == {"data": []}


def test_nobody_may_query(vds: Sandbox, admin: tsc.Server, single: str):
    """Prevents: a client that owns what it queries never meets a site that allows no queries."""
    with vds.quirks(vds_access="nobody"):
        assert refused(query(vds, admin, single, TABLE)) == "403800"
        body = {"datasource": {"datasourceLuid": single}}
        assert refused(ask(vds, admin, "read-metadata", body)) == "403800"
        permissions = ask(vds, admin, "user-has-query-permissions", body).json()
        assert permissions["hasQueryPermission"] is False
