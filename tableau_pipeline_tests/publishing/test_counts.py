"""The server counts published rows exactly, or an error says why it cannot."""

from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tableau_pipeline.core.drift import RemoteDatasource
from tableau_pipeline.errors import RefreshError
from tableau_pipeline.hyper.build import build_extract
from tableau_pipeline.hyper.parquet import TableSource
from tableau_pipeline.hyper.process import hyper_process
from tableau_pipeline.hyper.relationships import Relationship
from tableau_pipeline.hyper.types import Column
from tableau_pipeline.publishing.session import ConnectedApp
from tableau_pipeline.publishing.site import TableauSite
from tableau_pipeline_tests.publishing.conftest import SignIn, hooked, published
from tableau_sandbox.faults import CallFault, ExpireSessions, Refuse
from tableau_sandbox.testing import Sandbox

TYPES = {"int64": "bigint", "string": "string", "date32[day]": "date", "double": "double"}
ORDERS = pa.table(
    {
        "id": [1, 2, 3, 4],
        "note]s": ["a", None, "a", "b"],
        "day": [date(2024, 1, 31), None, date(2023, 5, 1), None],
        "price": [0.1, 0.1, None, 3.0],
    }
)
CUSTOMERS = pa.table({"id": [1, 2], "name": ["Ada", "Ada"]})
ALL = {"orders": 4, "customers": 2}


def published_tables(
    site: TableauSite, folder: Path, tables: dict[str, pa.Table], *edges: Relationship
) -> RemoteDatasource:
    """Publish a data source that consists of the tables."""
    sources = []
    for name, rows in tables.items():
        file = folder / f"{uuid4().hex}.parquet"
        pq.write_table(rows, file)
        columns = tuple(Column(field.name, TYPES[str(field.type)]) for field in rows.schema)
        sources.append(TableSource(name, columns, (str(file),)))
    extract = build_extract(
        hyper_process(), folder / f"{uuid4().hex}.hyper", tables=sources, relationships=edges
    )
    project = site.project("Default", create=False)
    return published(site, extract.path, name=f"Counted {uuid4().hex[:8]}", project_id=project)


@dataclass(frozen=True)
class Counted:
    """A session, its server, and the LUIDs of three data sources."""

    site: TableauSite
    sandbox: Sandbox
    star: str
    single: str
    empty: str

    def orders(self) -> int:
        """The number of rows that the server counts in the data source of one table."""
        return self.site.count(self.single, {"Extract": None})["Extract"]


@pytest.fixture(scope="module")
def counted(
    tableau: TableauSite, sandbox: Sandbox, tmp_path_factory: pytest.TempPathFactory
) -> Counted:
    folder = tmp_path_factory.mktemp("counted")
    edge = Relationship("orders", "customers", (("id", "id"),))
    star = published_tables(tableau, folder, {"orders": ORDERS, "customers": CUSTOMERS}, edge)
    single = published_tables(tableau, folder, {"Extract": ORDERS})
    empty = published_tables(tableau, folder, {"Extract": ORDERS.slice(0, 0)})
    return Counted(tableau, sandbox, star.luid, single.luid, empty.luid)


def tables(*keys: str | None) -> dict[str, str | None]:
    """Orders and customers. Each key is a column that is known to have no NULL."""
    return dict(zip(ALL, keys, strict=True))


def test_tables_are_counted(counted: Counted):
    """Prevents: a relationship to another table changes the number of rows of a table."""
    assert counted.site.count(counted.star, tables(None, None)) == ALL
    assert counted.site.count(counted.star, tables("id", None)) == ALL


def test_connections_are_used_again_and_closed(counted: Counted, sign_in: SignIn):
    """Prevents: each question opens a connection, or connections outlive their session."""
    port = urlsplit(counted.sandbox.url).port

    def connections() -> int:
        found = psutil.Process().net_connections("tcp")
        return sum(bool(each.raddr) and each.raddr.port == port for each in found)

    before = connections()
    with sign_in() as site:
        for _ in range(3):
            assert site.count(counted.single, {"Extract": None})["Extract"] == ORDERS.num_rows
        assert connections() - before <= 2, "one for the REST API, one for the data service"
    assert connections() == before


@pytest.mark.parametrize("schema", ["20251", "20252", "20253"])
def test_older_services_count_keys(counted: Counted, schema: str):
    """Prevents: an older service cannot count because the query uses unknown words."""
    with counted.sandbox.quirks(vds_schema=schema):
        assert counted.site.count(counted.star, tables("id", "id")) == ALL
        with pytest.raises(RefreshError, match="customers cannot be counted"):
            counted.site.count(counted.star, tables("id", None))


@pytest.mark.parametrize("schema", ["20251", "20253", "20261"])
def test_a_table_alone_needs_no_key(counted: Counted, schema: str):
    """Prevents: a NULL in a column makes the number of rows too small."""
    with counted.sandbox.quirks(vds_schema=schema):
        assert counted.orders() == 4


@pytest.mark.parametrize("answer", ["no-row", "zero", "error"])
@pytest.mark.parametrize("schema", ["20251", "20262"])
def test_no_rows_are_none(counted: Counted, answer: str, schema: str):
    """Prevents: an empty table passes for a table whose rows cannot be counted."""
    with counted.sandbox.quirks(vds_empty=answer, vds_schema=schema):
        assert counted.site.count(counted.empty, {"Extract": None}) == {"Extract": 0}
        assert counted.site.count(counted.empty, {"Extract": "id"}) == {"Extract": 0}


@pytest.mark.parametrize("schema", ["20251", "20262"])
def test_a_second_question(counted: Counted, schema: str):
    """Prevents: a server refuses a fresh count because of an option unknown to the server."""
    with counted.sandbox.quirks(vds_schema=schema):
        assert counted.site.count(counted.star, tables("id", "id"), fresh=True) == ALL


@pytest.mark.parametrize(
    ("quirk", "said"),
    [
        ({"vds": False}, "no answer of a VizQL Data Service, but status 404"),
        ({"vds_access": "nobody"}, r"403800.*API Access"),
    ],
    ids=["absent", "forbidden"],
)
def test_a_server_without_the_service(counted: Counted, quirk: dict[str, Any], said: str):
    """Prevents: the error about a missing service or capability does not say what is missing."""
    with counted.sandbox.quirks(**quirk), pytest.raises(RefreshError, match=said):
        counted.orders()


def test_a_table_that_is_not_there(counted: Counted):
    """Prevents: the pipeline counts another table instead of a missing table."""
    with pytest.raises(RefreshError, match="the server shows no table products"):
        counted.site.count(counted.star, {"products": None})
    with pytest.raises(RefreshError, match="the server shows no table orders"):
        counted.site.count(counted.single, tables(None, None))


def answering(site: TableauSite, body: bytes) -> Any:
    """Replace the answers to queries by a body."""

    def replaced(response: Any, **_: Any) -> None:
        if response.url.endswith("query-datasource"):
            response._content = body

    return hooked(site, replaced)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b'{"data": [{"tableau_pipeline_count": 4}', "no answer of a VizQL Data Service"),
        (b'{"data": [], "error": {"errorCode": "500000", "message": "stop"}}', "500000: stop"),
        (b"<html>busy</html>", "no answer of a VizQL Data Service, but status 200"),
        (b'{"data": [{"tableau_pipeline_count": "4"}]}', "counts '4'"),
        (b'{"data": [{"tableau_pipeline_count": 4.5}]}', "counts 4.5"),
        (b'{"data": [{"tableau_pipeline_count": true}]}', "counts True"),
        (b'{"data": [{"n": 4}]}', "lacks 'tableau_pipeline_count'"),
        (
            b'{"data": [{"tableau_pipeline_count": 4}, {"tableau_pipeline_count": 4}]}',
            "not one row",
        ),
    ],
)
def test_no_answer_is_no_count(counted: Counted, body: bytes, message: str):
    """Prevents: half an answer, or an error with status 200, passes for a number of rows."""
    with answering(counted.site, body), pytest.raises(RefreshError, match=message):
        counted.orders()


def test_a_whole_number_may_have_a_point(counted: Counted):
    """Prevents: a right count with a decimal point passes for a wrong answer."""
    with answering(counted.site, b'{"data": [{"tableau_pipeline_count": 4.0}]}'):
        assert counted.orders() == 4


QUERY = {"method": "POST", "path": "vizql-data-service/query-datasource"}


def test_a_spent_budget_is_not_asked_again(counted: Counted):
    """Prevents: a refresh waits an hour for a count, or keeps asking after the budget is spent."""
    refuse = Refuse(status=429, retry_after=3600, **QUERY, times=None)
    said = pytest.raises(RefreshError, match=r"429000.*the site's budget of queries is spent")
    with counted.sandbox.armed(refuse) as fault, said:
        counted.orders()
    assert fault.fired == 1


@pytest.mark.parametrize(
    "fault",
    [Refuse(status=503, **QUERY), Refuse(status=504, **QUERY), ExpireSessions(**QUERY)],
    ids=str,
)
def test_a_busy_server_is_asked_again(counted: Counted, fault: CallFault):
    """Prevents: a count fails because the server is busy for a moment, or the session has ended."""
    with counted.sandbox.armed(fault) as armed:
        assert counted.orders() == 4
    assert armed.fired == 1


def test_a_connected_app_asks_for_the_right_to_count(counted: Counted, sign_in: SignIn):
    """Prevents: a connected app cannot count rows, or the error does not name the scope."""
    app = counted.sandbox.connected_app
    plain = ConnectedApp(counted.sandbox.user, app.client_id, app.secret_id, app.secret_value)
    with sign_in(replace(plain, counts=True)) as site:
        assert site.count(counted.single, {"Extract": None})["Extract"] == 4
    with sign_in(plain) as site, pytest.raises(RefreshError, match="lacks the scope"):
        site.count(counted.single, {"Extract": None})
