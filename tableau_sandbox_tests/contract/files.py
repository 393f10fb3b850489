"""Small files to publish, bodies of requests, and the rows of published files."""

import zipfile
from functools import lru_cache
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory

from tableauhyperapi import Connection, CreateMode

from tableau_sandbox.hyperd import hyper_process

TABLE = '"Extract"."Extract"'
_COLUMNS = "id INTEGER, name TEXT"
_BOUNDARY = "b"

# A part of a multipart body: its name, its file name (which may be empty) and its content.
Part = tuple[str, str, str | bytes]


# Many facts need the same few files, each of which takes about 50 ms to make.
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
    """Return a `.hyper` file with one table; `columns` and `rows` are SQL."""
    insert = (f"INSERT INTO {TABLE} VALUES {', '.join(rows)}",) if rows else ()
    return hyper_file(f"CREATE TABLE {TABLE} ({columns})", *insert)


def rows_file(*rows: tuple[int | None, str | None], columns: str = _COLUMNS) -> bytes:
    """Return a `.hyper` file with one table of numbers and names."""
    return table_file(
        columns, *(f"({_literal(number)}, {_literal(name)})" for number, name in rows)
    )


def related_file(*statements: str) -> bytes:
    """Return a `.hyper` file with a table "Two" that refers to a table "One"; both have an id."""
    return hyper_file(
        'CREATE TABLE "Extract"."One" (id INTEGER NOT NULL, ASSUMED PRIMARY KEY (id))',
        'CREATE TABLE "Extract"."Two" (id INTEGER)',
        'ALTER TABLE "Extract"."Two" ADD ASSUMED FOREIGN KEY (id) REFERENCES "Extract"."One" (id)',
        *statements,
    )


def packaged_hyper(package: bytes) -> tuple[str, bytes]:
    """Return the path and the content of the only `.hyper` file in a `.tdsx`."""
    with zipfile.ZipFile(BytesIO(package)) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".hyper"))
        return name, archive.read(name)


def rows_of(hyper: bytes, table: str = "") -> list[tuple]:
    """Return the rows of a table, sorted by their text form."""
    with TemporaryDirectory() as folder:
        path = Path(folder, "read.hyper")
        path.write_bytes(hyper)
        with Connection(hyper_process().endpoint, path) as connection:
            found = connection.execute_list_query(f"SELECT * FROM {table or TABLE}")
    return sorted(map(tuple, found), key=repr)


def _literal(value: int | str | None) -> str:
    return "NULL" if value is None else f"'{value}'" if isinstance(value, str) else str(value)


def multipart(*parts: Part, kind: str = "mixed") -> tuple[bytes, dict[str, str]]:
    """Return a body of several parts and its headers, as Tableau's own client sends them."""
    body = b""
    for name, filename, content in parts:
        head = f'Content-Disposition: name="{name}"' + (f'; filename="{filename}"' * bool(filename))
        text = "application/json" if content[:1] in ("{", b"{") else "text/xml"
        head += f"\r\nContent-Type: {'application/octet-stream' if filename else text}\r\n\r\n"
        data = content.encode() if isinstance(content, str) else content
        body += f"--{_BOUNDARY}\r\n{head}".encode() + data + b"\r\n"
    body += f"--{_BOUNDARY}--\r\n".encode()
    return body, {"Content-Type": f"multipart/{kind}; boundary={_BOUNDARY}"}
