import sys
from pathlib import Path

import pytest

from tableau_pipeline_tests.environments import environment, run
from tableau_sandbox.faults import BreakRows
from tableau_sandbox.testing import Sandbox
from tableau_sandbox_tests.clients.versions import VIZQL_DATA_SERVICE
from tableau_sandbox_tests.samples import execute, publish, signed_in
from tableau_sandbox_tests.vds.service.conftest import SHOP

SCRIPT = """
import sys

import tableauserverclient as TSC
import vizql_data_service_py as vds
from vizql_data_service_py.api import get_datasource_model, query_datasource, read_metadata
from vizql_data_service_py.api.client import VizQLDataServiceClient
from vizql_data_service_py.api.errors import UnexpectedStatus

url, single, shop = sys.argv[1:]
server = TSC.Server(url, use_server_version=True)
auth = TSC.PersonalAccessTokenAuth("pipeline", "pipeline-secret")
with server.auth.sign_in(auth):
    client = VizQLDataServiceClient(url, server, auth)
    # Otherwise, it returns None for a refusal.
    client.raise_on_unexpected_status = True

    def ask(luid, *fields):
        source, query = vds.Datasource(datasourceLuid=luid), vds.Query(fields=list(fields))
        request = vds.QueryRequest(datasource=source, query=query)
        return query_datasource.sync(client=client, body=request)

    def count(luid, formula):
        field = vds.CalculatedField(fieldCaption="n", calculation=formula)
        return ask(luid, field).data

    assert count(single, "COUNT([Extract])") == [{"n": 1}]
    assert count(shop, "COUNT([orders])") == [{"n": 4}]
    assert count(shop, "COUNT([customers])") == [{"n": 3}]
    assert count(shop, "SUM(IIF(ISNULL([name]),1,1))") == [{"n": 3}]
    measure = vds.MeasureField(fieldCaption="name", function=vds.Function.COUNT, fieldAlias="n")
    assert ask(shop, measure).data == [{"n": 2}]
    assert ask(shop, measure).error["errorCode"] == "500000"
    source = vds.Datasource(datasourceLuid=shop)
    request = vds.GetDatasourceModelRequest(datasource=source)
    model = get_datasource_model.sync(client=client, body=request)
    assert [table.caption for table in model.logicalTables] == ["customers", "orders"]
    (related,) = model.logicalTableRelationships
    assert related.fromLogicalTable.logicalTableId == model.logicalTables[1].logicalTableId
    assert related.expression.relationships[0].fromField == "[customer]"
    metadata = read_metadata.sync(client=client, body=vds.ReadMetadataRequest(datasource=source))
    tables = {field.fieldName: field.logicalTableId for field in metadata.data}
    assert tables["amount"] == related.fromLogicalTable.logicalTableId
    try:
        count(single, "COUNT([orders])")
    except UnexpectedStatus as error:
        assert error.status_code == 400, error
        refusal = vds.TableauError.model_validate_json(error.content)
        assert (refusal.errorCode, refusal.datetime.tzname()) == ("400800", "UTC"), refusal
    else:
        raise AssertionError("a table was counted that does not exist")
print("done")
"""


@pytest.mark.slow
def test_tableau_sdk(sandbox: Sandbox, one_row: Path, tmp_path: Path):
    """Prevents: Tableau's own client cannot read an answer, or reads another count from it."""
    python = environment(*VIZQL_DATA_SERVICE) / Path(sys.executable).name
    server = signed_in(sandbox)
    single = publish(server, one_row, name="Single").id
    shop = publish(server, execute(tmp_path / "shop.hyper", *SHOP), name="Shop").id
    # The sixth query of the script.
    sandbox.control.add(BreakRows(nth=6))
    done = run(str(python), "-c", SCRIPT, sandbox.url, single, shop)
    assert done.stdout.endswith("done\n")
