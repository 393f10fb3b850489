"""Iceberg tables of a catalog that is asked over HTTP."""

import json
from collections.abc import Generator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

from tableau_pipeline.core.lake_table import InCatalog
from tableau_pipeline.errors import RefreshError
from tableau_pipeline_tests.refresh.lakes.support import follow, in_order, published, rows_of
from tableau_pipeline_tests.refresh.support.pipeline import Pipeline

TOKEN = "the-token-of-the-catalog"


@dataclass
class Rest:
    """A catalog that has one table.

    Attributes:
        more: what its answer says beyond the metadata.
        page: a page that it answers in place of everything; "" for none.
        delegations: which access each request wanted to be given.
    """

    table: Table
    more: dict[str, Any] = field(default_factory=dict)
    page: str = ""
    delegations: set[str | None] = field(default_factory=set)

    def answer(self, path: str) -> str:
        if self.page:
            return self.page
        if "/config" in path:
            return json.dumps({"defaults": {}, "overrides": {}})
        metadata = json.loads(self.table.metadata.model_dump_json())
        location = self.table.metadata_location
        return json.dumps({"metadata": metadata, "metadata-location": location, **self.more})


@pytest.fixture
def rest(catalog: SqlCatalog, monkeypatch: pytest.MonkeyPatch) -> Generator[Rest]:
    table = catalog.create_table("db.orders", schema=rows_of([]).schema)
    table.append(rows_of([1]))
    rest = Rest(table)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            rest.delegations.add(self.headers["X-Iceberg-Access-Delegation"])
            body = rest.answer(self.path).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        monkeypatch.setenv("PYICEBERG_CATALOG__REST__URI", f"http://127.0.0.1:{server.server_port}")
        monkeypatch.setenv("PYICEBERG_CATALOG__REST__TOKEN", TOKEN)
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield rest
        server.shutdown()
        thread.join()


@pytest.fixture
def followed(pipeline: Pipeline, rest: Rest) -> Pipeline:
    follow(pipeline, "iceberg", InCatalog("rest", ".".join(rest.table.name())))
    return pipeline


def test_rows_are_read(followed: Pipeline, rest: Rest):
    """Prevents: a table whose catalog is no database cannot be published; credentials are asked
    for that are not used."""
    followed.run()
    assert published(followed) == in_order(rest.table.scan().to_arrow())
    rest.table.append(rows_of([2]))
    followed.run()
    assert published(followed) == in_order(rest.table.scan().to_arrow())
    assert rest.delegations == {""}


@pytest.mark.parametrize("where", ["config", "storage-credentials"])
def test_credentials_of_a_catalog_are_not_used(followed: Pipeline, rest: Rest, where: str):
    """Prevents: a table that cannot be read because its catalog always hands out credentials."""
    given = {"s3.access-key-id": "secret"}
    rest.more = {"config": given}
    if where == "storage-credentials":
        rest.more = {where: [{"prefix": "file:", "config": given}]}
    followed.run()
    assert published(followed) == in_order(rest.table.scan().to_arrow())


def test_a_page_is_no_answer(followed: Pipeline, rest: Rest):
    """Prevents: an exception of pyiceberg, or the token, where a proxy asks for a sign-in."""
    rest.page = f"<html>Sign in, {TOKEN}"
    with pytest.raises(RefreshError, match="The catalog rest cannot be asked") as caught:
        followed.run()
    assert type(caught.value) is RefreshError
    assert TOKEN not in str(caught.value)
