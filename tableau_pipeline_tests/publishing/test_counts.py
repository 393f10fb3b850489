"""The server counts published rows: exactly, or it is said why not."""

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
    """A data source of these tables."""
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
    """A session, its server, and data sources with both tables, with orders, with no rows."""

    site: TableauSite
    sandbox: Sandbox
    star: str
    single: str
    empty: str

    def orders(self) -> int:
        """The rows that are counted of the table that stands alone."""
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
    """Orders and customers, with the columns that are known to have no NULL."""
    return dict(zip(ALL, keys, strict=True))


def test_tables_are_counted(counted: Counted):
    """Prevents: rows of one table that are counted by the rows of another."""
    assert counted.site.count(counted.star, tables(None, None)) == ALL
    assert counted.site.count(counted.star, tables("id", None)) == ALL


def test_connections_are_used_again_and_closed(counted: Counted, sign_in: SignIn):
    """Prevents: a handshake for each question, and connections that stay until the process ends."""
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
    """Prevents: a server that could count, and is not asked in the words that it knows."""
    with counted.sandbox.quirks(vds_schema=schema):
        assert counted.site.count(counted.star, tables("id", "id")) == ALL
        with pytest.raises(RefreshError, match="customers cannot be counted"):
            counted.site.count(counted.star, tables("id", None))


@pytest.mark.parametrize("schema", ["20251", "20253", "20261"])
def test_a_table_alone_needs_no_key(counted: Counted, schema: str):
    """Prevents: a column with NULL that passes for the number of rows."""
    with counted.sandbox.quirks(vds_schema=schema):
        assert counted.orders() == 4


@pytest.mark.parametrize("answer", ["no-row", "zero", "error"])
@pytest.mark.parametrize("schema", ["20251", "20262"])
def test_no_rows_are_none(counted: Counted, answer: str, schema: str):
    """Prevents: an empty table that looks like one that cannot be counted."""
    with counted.sandbox.quirks(vds_empty=answer, vds_schema=schema):
        assert counted.site.count(counted.empty, {"Extract": None}) == {"Extract": 0}
        assert counted.site.count(counted.empty, {"Extract": "id"}) == {"Extract": 0}


@pytest.mark.parametrize("schema", ["20251", "20262"])
def test_a_second_question(counted: Counted, schema: str):
    """Prevents: a server that refuses to be asked again, for an option that it does not know."""
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
    """Prevents: a refresh that ends because its server is of last year, or an administrator who
    cannot guess which capability is missing."""
    with counted.sandbox.quirks(**quirk), pytest.raises(RefreshError, match=said):
        counted.orders()


def test_a_table_that_is_not_there(counted: Counted):
    """Prevents: a count of whatever the data source has instead."""
    with pytest.raises(RefreshError, match="the server shows no table products"):
        counted.site.count(counted.star, {"products": None})
    with pytest.raises(RefreshError, match="the server shows no table orders"):
        counted.site.count(counted.single, tables(None, None))


def answering(site: TableauSite, body: bytes) -> Any:
    """Around questions whose answer is this one."""

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
    """Prevents: half an answer, or an error in a success, that passes for a proof."""
    with answering(counted.site, body), pytest.raises(RefreshError, match=message):
        counted.orders()


def test_a_whole_number_may_have_a_point(counted: Counted):
    """Prevents: a right count that is taken for a wrong answer."""
    with answering(counted.site, b'{"data": [{"tableau_pipeline_count": 4.0}]}'):
        assert counted.orders() == 4


QUERY = {"method": "POST", "path": "vizql-data-service/query-datasource"}


def test_a_spent_budget_is_not_asked_again(counted: Counted):
    """Prevents: a refresh that waits an hour for a count, or spends what others need."""
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
    """Prevents: a file that is downloaded because the server was busy for a moment, or because a
    job outlived what it was signed in with."""
    with counted.sandbox.armed(fault) as armed:
        assert counted.orders() == 4
    assert armed.fired == 1


def test_a_connected_app_asks_for_the_right_to_count(counted: Counted, sign_in: SignIn):
    """Prevents: a token that an old server refuses, or one that may not do what is declared."""
    app = counted.sandbox.connected_app
    plain = ConnectedApp(counted.sandbox.user, app.client_id, app.secret_id, app.secret_value)
    with sign_in(replace(plain, counts=True)) as site:
        assert site.count(counted.single, {"Extract": None})["Extract"] == 4
    with sign_in(plain) as site, pytest.raises(RefreshError, match="lacks the scope"):
        site.count(counted.single, {"Extract": None})
