"""Batches carried out, by the sandbox's engine on files of their own."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tableauhyperapi import Connection, CreateMode, TableName

from tableau_pipeline.actions.batch import Batch
from tableau_pipeline.hyper.hyper_file import read_table
from tableau_pipeline.hyper.process import hyper_process
from tableau_sandbox.simulation import apply_batch, parse_batch

Rows = list[tuple]

USERS = "SELECT * FROM (VALUES (1, 'ann'), (2, 'bob'), (3, 'cy')) AS t (user_id, name)"
ON_USER = {"op": "eq", "target-col": "user_id", "source-col": "user_id"}


def rows_after(
    batch: Batch,
    folder: Path,
    *,
    published: Mapping[str, str],
    payload: Mapping[str, str] | None = None,
) -> dict[str, Rows]:
    """The rows of each published table after a batch.

    Both files are made by queries.
    """
    before = file_of(folder / "before.hyper", published)
    source = None if payload is None else file_of(folder / "payload.hyper", payload)
    after = folder / "after.hyper"
    apply_batch(before, source, parse_batch(batch.json().encode()), after)
    return {name: _rows(after, name) for name in published}


def sent(action: str, source: str, target: str, **more: Any) -> dict[str, Any]:
    """An action as it is sent, of tables without schemas."""
    return {"action": action, "source-table": source, "target-table": target, **more}


def constant_test(op: str, column: str, type_: str, value: str | None) -> dict[str, Any]:
    """A comparison of a target column with a constant, as it is sent."""
    return {"op": op, "target-col": column, "const": {"type": type_, "v": value}}


def file_of(path: Path, tables: Mapping[str, str]) -> Path:
    """A `.hyper` file with tables in "Extract", made by queries."""
    with Connection(hyper_process().endpoint, path, CreateMode.CREATE_AND_REPLACE) as connection:
        connection.execute_command('CREATE SCHEMA "Extract"')
        for name, query in tables.items():
            connection.execute_command(f'CREATE TABLE "Extract"."{name}" AS ({query})')
    return path


def _rows(path: Path, name: str) -> Rows:
    table = read_table(hyper_process(), path, TableName("Extract", name))
    return sorted(tuple(row.values()) for row in table.to_pylist())
