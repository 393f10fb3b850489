"""The server counts published rows: exactly, or it is said why not."""

from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tableau_pipeline.core.server import RemoteDatasource
from tableau_pipeline.errors import RefreshError
from tableau_pipeline.hyper.build import Relationship, build_extract
from tableau_pipeline.hyper.parquet import TableSource
from tableau_pipeline.hyper.process import hyper_process
from tableau_pipeline.hyper.types import Column
from tableau_pipeline.publishing.session import ConnectedApp
from tableau_pipeline.publishing.site import TableauSite
from tableau_pipeline_tests.publishing.conftest import SignIn, hooked, published
from tableau_sandbox.faults import ExpireSessions, Refuse
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


@pytest.fixture(scope="module")
def star(tableau: TableauSite, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A data source with orders and customers."""
    edge = Relationship("orders", "customers", (("id", "id"),))
    tables = {"orders": ORDERS, "customers": CUSTOMERS}
    return published_tables(tableau, tmp_path_factory.mktemp("star"), tables, edge).luid


@pytest.fixture(scope="module")
def single(tableau: TableauSite, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A data source with orders alone."""
    return published_tables(tableau, tmp_path_factory.mktemp("one"), {"Extract": ORDERS}).luid


@pytest.fixture(scope="module")
def empty(tableau: TableauSite, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A data source without rows."""
    tables = {"Extract": ORDERS.slice(0, 0)}
    return published_tables(tableau, tmp_path_factory.mktemp("empty"), tables).luid


def tables(*keys: str | None) -> dict[str, str | None]:
    """Orders and customers, with the columns that are known to have no NULL."""
    return dict(zip(ALL, keys, strict=True))


def test_tables_are_counted(tableau: TableauSite, star: str):
    """Prevents: rows of one table that are counted by the rows of another."""
    assert tableau.count(star, tables(None, None)) == ALL
    assert tableau.count(star, tables("id", None)) == ALL


@pytest.mark.parametrize("schema", ["20251", "20252", "20253"])
def test_older_services_count_keys(sandbox: Sandbox, tableau: TableauSite, star: str, schema: str):
    """Prevents: a server that could count, and is not asked in the words that it knows."""
    with sandbox.quirks(vds_schema=schema):
        assert tableau.count(star, tables("id", "id")) == ALL
        with pytest.raises(RefreshError, match="customers cannot be counted"):
            tableau.count(star, tables("id", None))


@pytest.mark.parametrize("schema", ["20251", "20253", "20261"])
def test_a_table_alone_needs_no_key(
    sandbox: Sandbox, tableau: TableauSite, single: str, schema: str
):
    """Prevents: a column with NULL that passes for the number of rows."""
    with sandbox.quirks(vds_schema=schema):
        assert tableau.count(single, {"Extract": None}) == {"Extract": 4}


@pytest.mark.parametrize("answer", ["no-row", "zero", "error"])
@pytest.mark.parametrize("schema", ["20251", "20262"])
def test_no_rows_are_none(
    sandbox: Sandbox, tableau: TableauSite, empty: str, answer: str, schema: str
):
    """Prevents: an empty table that looks like one that cannot be counted."""
    with sandbox.quirks(vds_empty=answer, vds_schema=schema):
        assert tableau.count(empty, {"Extract": None}) == {"Extract": 0}
        assert tableau.count(empty, {"Extract": "id"}) == {"Extract": 0}


@pytest.mark.parametrize("schema", ["20251", "20262"])
def test_a_second_question(sandbox: Sandbox, tableau: TableauSite, star: str, schema: str):
    """Prevents: a server that refuses to be asked again, for an option that it does not know."""
    with sandbox.quirks(vds_schema=schema):
        assert tableau.count(star, tables("id", "id"), fresh=True) == ALL


def test_a_server_without_the_service(sandbox: Sandbox, tableau: TableauSite, star: str):
    """Prevents: a refresh that ends because its server is of last year."""
    with (
        sandbox.quirks(vds=False),
        pytest.raises(RefreshError, match="no answer of a VizQL Data Service, but status 404"),
    ):
        tableau.count(star, tables(None, None))


def test_a_table_that_is_not_there(tableau: TableauSite, star: str):
    """Prevents: a count of whatever the data source has instead."""
    with pytest.raises(RefreshError, match="the server shows no table products"):
        tableau.count(star, {"products": None})


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
def test_no_answer_is_no_count(tableau: TableauSite, single: str, body: bytes, message: str):
    """Prevents: half an answer, or an error in a success, that passes for a proof."""
    with answering(tableau, body), pytest.raises(RefreshError, match=message):
        tableau.count(single, {"Extract": None})


def test_a_whole_number_may_have_a_point(tableau: TableauSite, single: str):
    """Prevents: a right count that is taken for a wrong answer."""
    with answering(tableau, b'{"data": [{"tableau_pipeline_count": 4.0}]}'):
        assert tableau.count(single, {"Extract": None})["Extract"] == 4


QUERY = "vizql-data-service/query-datasource"


def test_a_spent_budget_is_not_asked_again(sandbox: Sandbox, tableau: TableauSite, single: str):
    """Prevents: a refresh that waits an hour for a count, or spends what others need."""
    refuse = Refuse(status=429, retry_after=3600, method="POST", path=QUERY, times=None)
    with (
        sandbox.armed(refuse) as fault,
        pytest.raises(RefreshError, match=r"429000.*the site's budget of queries is spent"),
    ):
        tableau.count(single, {"Extract": None})
    assert fault.fired == 1


@pytest.mark.parametrize("status", [503, 504])
def test_a_busy_server_is_asked_again(
    sandbox: Sandbox, tableau: TableauSite, single: str, status: int
):
    """Prevents: a file that is downloaded because the server was busy for a moment."""
    refuse = Refuse(status=status, method="POST", path=QUERY, times=1)
    with sandbox.armed(refuse) as fault:
        assert tableau.count(single, {"Extract": None})["Extract"] == 4
    assert fault.fired == 1


def test_a_session_that_has_ended_is_renewed(sandbox: Sandbox, tableau: TableauSite, single: str):
    """Prevents: no comparison after a job that outlived the session."""
    with sandbox.armed(ExpireSessions(user=sandbox.user, method="POST", path=QUERY, times=1)):
        assert tableau.count(single, {"Extract": None})["Extract"] == 4


def test_who_may_not_ask_is_told_what_is_missing(
    sandbox: Sandbox, tableau: TableauSite, single: str
):
    """Prevents: an administrator who cannot guess which capability is missing."""
    with (
        sandbox.quirks(vds_access="nobody"),
        pytest.raises(RefreshError, match=r"403800.*API Access"),
    ):
        tableau.count(single, {"Extract": None})


def test_a_connected_app_asks_for_the_right_to_count(
    sandbox: Sandbox, sign_in: SignIn, single: str
):
    """Prevents: a token that an old server refuses, or one that may not do what is declared."""
    app = sandbox.connected_app
    plain = ConnectedApp(sandbox.user, app.client_id, app.secret_id, app.secret_value)
    with sign_in(replace(plain, counts=True)) as site:
        assert site.count(single, {"Extract": None})["Extract"] == 4
    with sign_in(plain) as site, pytest.raises(RefreshError, match="lacks the scope"):
        site.count(single, {"Extract": None})
