"""Answers of the VizQL Data Service, modelled on public recordings."""

import json
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import pytest

from tableau_pipeline.errors import RefreshError
from tableau_pipeline_tests.publishing.recorded.support import LUID, Server, raw

METADATA, QUERY = (f"vizql-data-service/{each}" for each in ("read-metadata", "query-datasource"))
ROW = {"tableau_pipeline_count": 8}


def field(name: str, table: str | None = "Extract_5D2B2CAE1CFD41D6B4B0F0D6D4A8E0B2") -> dict:
    """A field as in the tests of tableau-mcp; `table` is None if the service names no tables."""
    shown = {"fieldName": name, "fieldCaption": name.title(), "dataType": "INTEGER"}
    more = {"defaultAggregation": "SUM", "columnClass": "COLUMN", "description": "new"}
    return shown | more | ({"logicalTableId": table} if table else {})


def answer(body: Any, *, status: int = 200) -> Any:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return raw(content, status=status, Content_Type="application/json")


@contextmanager
def answering(server: Server, metadata: Any, query: Any) -> Generator[None]:
    with server.saying("POST", METADATA, metadata), server.saying("POST", QUERY, query):
        yield


def counted(server: Server, metadata: Any, query: Any, key: str | None = "id") -> int:
    with answering(server, metadata, query):
        return server.site.count(LUID, {"Extract": key})["Extract"]


@pytest.mark.parametrize(
    "fields",
    [
        [field("id"), field("name")],
        # VizQL-Data-Service, samples: data sources that are older than object models.
        [field("id", "Migrated Data"), field("name", "Migrated Data")],
        # Older services name no table.
        [field("id", None)],
        [field("id"), {"fieldName": "Calculation_1", "fieldCaption": "Sum", "columnClass": "CALC"}],
        [field("id", "pp-2025.csv_35B9C215"), {"fieldName": "x"}, {}],
    ],
)
def test_one_table(server: Server, fields: list[dict]):
    """Prevents: rows cannot be counted on a server that names tables in another way."""
    metadata = answer({"data": fields, "extraData": {"parameters": []}})
    assert counted(server, metadata, answer({"data": [ROW]})) == 8


@pytest.mark.parametrize(
    ("query", "rows"),
    [
        (answer({"data": [ROW], "extraData": {"columns": 1}}), 8),
        (answer({"data": [{"tableau_pipeline_count": 8.0}]}), 8),
        (answer({"data": [{"tableau_pipeline_count": None}]}), 0),
        (answer({"data": []}), 0),
        (answer({"errorCode": "500810", "message": "Empty response"}, status=500), 0),
    ],
)
def test_number_of_rows(server: Server, query: Any, rows: int):
    """Prevents: an empty table passes for a table whose rows cannot be counted."""
    assert counted(server, answer({"data": [field("id")]}), query) == rows


def error(code: str) -> dict[str, str]:
    """An error as in VizQL-Data-Service's list of errors and in the tests of tableau-mcp."""
    return {"errorCode": code, "message": "Because", "datetime": "2024-06-19T00:00:00Z",
            "tab-error-code": "1"}  # fmt: skip


CODES = ["400000", "400800", "400802", "400803", "400804", "403157", "403800", "404934",
         "404937", "404950", "408000", "409000", "429000", "500000", "500811", "501000",
         "504000"]  # fmt: skip


@pytest.mark.parametrize("code", CODES)
def test_error(server: Server, code: str):
    """Prevents: an error of the service passes for a count, or for a bug of the pipeline."""
    refused = answer(error(code), status=int(code[:3]))
    for metadata, query in (
        (refused, answer({"data": [ROW]})),
        (answer({"data": [field("id")]}), refused),
    ):
        with pytest.raises(RefreshError, match=f"{code}: Because"):
            counted(server, metadata, query)


@pytest.mark.parametrize(
    ("query", "said"),
    [
        # An error that occurs after the first row.
        (answer({"data": [ROW], "error": error("500000")}), "500000: Because"),
        (answer({"data": [ROW, ROW]}), "is not one row"),
        (answer({"data": [{"count": 8}]}), "lacks 'tableau_pipeline_count'"),
        (answer({"data": [{"tableau_pipeline_count": "8"}]}), "counts '8', which is no number"),
        (answer({"data": [{"tableau_pipeline_count": True}]}), "counts True, which is no number"),
        (answer({"rows": 8}), "is not one row"),
        (answer([8]), "is not one row"),
        (answer({}, status=403), "answered 403"),
        # A server without the service sends the page of its web client; a gateway sends its own
        # page.
        (raw(b"<!DOCTYPE html><html></html>", Content_Type="text/html"), "status 200"),
        (raw(b"<html>Bad Gateway</html>", status=502, Content_Type="text/html"), "status 502"),
        (answer(b""), "status 200"),
    ],
)
def test_no_number(server: Server, query: Any, said: str):
    """Prevents: half an answer, or a web page, passes for a count of the rows."""
    with pytest.raises(RefreshError, match=said):
        counted(server, answer({"data": [field("id")]}), query)


@pytest.mark.parametrize("metadata", [{}, [], {"data": None}, {"data": [1]}, {"data": {"a": 1}}])
def test_no_fields(server: Server, metadata: Any):
    """Prevents: metadata in an unknown form ends in a bare Python error."""
    with pytest.raises(RefreshError, match="lists no fields"):
        counted(server, answer(metadata), answer({"data": [ROW]}))
