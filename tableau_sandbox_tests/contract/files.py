"""Small files to publish, bodies that send them, and the rows of what was published."""

import zipfile
from functools import lru_cache
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from tableauhyperapi import Connection, CreateMode

from tableau_sandbox.hyperd import hyper_process

TABLE = '"Extract"."Extract"'
_COLUMNS = "id INTEGER, name TEXT"
_BOUNDARY = "contract"

Part = tuple[str, str, str | bytes]


# Many facts need the same few files, and each takes some 50 ms to make.
@lru_cache
def hyper_file(*statements: str) -> bytes:
    """Return a `.hyper` file with a schema "Extract", made by these statements."""
    with TemporaryDirectory() as folder:
        path = Path(folder, "made.hyper")
        mode = CreateMode.CREATE_AND_REPLACE
        with Connection(hyper_process().endpoint, path, mode) as connection:
            for statement in ('CREATE SCHEMA "Extract"', *statements):
                connection.execute_command(statement)
        return path.read_bytes()


def table_file(columns: str, *rows: str) -> bytes:
    """Return a `.hyper` file with one table; its columns and rows are in SQL."""
    insert = (f"INSERT INTO {TABLE} VALUES {', '.join(rows)}",) if rows else ()
    return hyper_file(f"CREATE TABLE {TABLE} ({columns})", *insert)


def rows_file(*rows: tuple[int | None, str | None], columns: str = _COLUMNS) -> bytes:
    """Return a `.hyper` file with one table of numbered names."""
    values = (f"({_literal(number)}, {_literal(name)})" for number, name in rows)
    return table_file(columns, *values)


def packaged_hyper(package: bytes) -> tuple[str, bytes]:
    """Return the path and the content of the `.hyper` file in a `.tdsx`."""
    try:
        archive = zipfile.ZipFile(BytesIO(package))
    except zipfile.BadZipFile:
        pytest.fail("the package is no zip", pytrace=False)
    with archive:
        names = [name for name in archive.namelist() if name.endswith(".hyper")]
        assert len(names) == 1
        return names[0], archive.read(names[0])


def rows_of(hyper: bytes, *, table: str = TABLE) -> list[tuple]:
    """Return the rows of a table, in order."""
    with TemporaryDirectory() as folder:
        path = Path(folder, "read.hyper")
        path.write_bytes(hyper)
        with Connection(hyper_process().endpoint, path) as connection:
            found = connection.execute_list_query(f"SELECT * FROM {table}")
    return sorted(map(tuple, found), key=repr)


def _literal(value: int | str | None) -> str:
    return "NULL" if value is None else f"'{value}'" if isinstance(value, str) else str(value)


def multipart(*parts: Part, kind: str = "mixed") -> tuple[bytes, dict[str, str]]:
    """Return a body and its headers; each part has a name, a file name or none, and a content."""
    body = b""
    for name, filename, content in parts:
        file = f'; filename="{filename}"' if filename else ""
        head = f'--{_BOUNDARY}\r\nContent-Disposition: name="{name}"{file}\r\n'
        head += f"Content-Type: {_content_type(filename, content)}\r\n\r\n"
        data = content.encode() if isinstance(content, str) else content
        body += head.encode() + data + b"\r\n"
    body += f"--{_BOUNDARY}--\r\n".encode()
    return body, {"Content-Type": f"multipart/{kind}; boundary={_BOUNDARY}"}


def _content_type(filename: str, content: str | bytes) -> str:
    if filename:
        return "application/octet-stream"
    return "application/json" if content[:1] in ("{", b"{") else "text/xml"
