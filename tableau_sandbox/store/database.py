import sqlite3
import threading
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path
from typing import Any, TypeVar

from tableau_sandbox.store.records import Datasource, Project, Record

Value = str | int | float | bytes | None
R = TypeVar("R", bound=Record)
Named = TypeVar("Named", Project, Datasource)


class Database:
    """The state of the sandbox: one SQLite file, one connection, one thread at a time.

    A sandbox serves one developer or one test, so a single lock is simple, safe and fast enough.
    The lock also keeps files consistent with the rows that name the files.
    """

    def __init__(self, path: Path):
        self.lock = threading.RLock()
        # Create the file with this mode, because SQLite gives its other files the same mode.
        path.touch(mode=0o600)
        # Switch off Python's own transactions and its check of threads: `lock` and `transaction`
        # suffice.
        self._connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self._connection.row_factory = sqlite3.Row
        self._connection.execute("PRAGMA journal_mode = WAL")
        # A power failure may lose the latest changes; a sandbox need not sync each of them to the
        # disk.
        self._connection.execute("PRAGMA synchronous = NORMAL")
        self._connection.execute("PRAGMA foreign_keys = ON")
        self._connection.executescript(
            files("tableau_sandbox.store").joinpath("schema.sql").read_text("utf-8")
        )

    @contextmanager
    def transaction(self) -> Generator[None]:
        """Commit all changes of the block; commit nothing after an error. Blocks may be nested."""
        with self.lock:
            if self._connection.in_transaction:
                yield
                return
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield
            except BaseException:
                self._connection.execute("ROLLBACK")
                raise
            self._connection.execute("COMMIT")

    @property
    def changes(self) -> int:
        """The number of rows that have changed since the database was opened."""
        return self._connection.total_changes

    def rows(self, sql: str, *values: Value) -> list[dict[str, Any]]:
        """Return the rows of a query; each row maps the names of columns to values."""
        with self.lock:
            return [dict(row) for row in self._connection.execute(sql, values)]

    def row(self, sql: str, *values: Value) -> dict[str, Any] | None:
        """Return the first row of a query, or None."""
        return next(iter(self.rows(sql, *values)), None)

    def records(self, kind: type[R], rest: str = "", *values: Value) -> list[R]:
        """Return the records of a kind; the SQL text `rest` filters and orders the records."""
        select = kind.SELECT or f"SELECT * FROM {kind.TABLE}"  # noqa: S608 - no values
        return [kind.of(row) for row in self.rows(f"{select} {rest}", *values)]

    def all(self, kind: type[R], **key: Value) -> list[R]:
        """Return the records of a kind with these values, oldest first."""
        rest = f"{_where(kind.TABLE, key)} ORDER BY {kind.TABLE}.rowid"
        return self.records(kind, rest, *key.values())

    def find(self, kind: type[R], **key: Value) -> R | None:
        """Return the oldest record of a kind with these values, or None."""
        found = self.all(kind, **key)
        return found[0] if found else None

    def named(self, kind: type[Named], name: str, **key: Value) -> Named | None:
        """Return the record with these values and this name, ignoring the name's case, or None."""
        # Compare names here, because SQLite ignores case only for ASCII letters.
        named = (each for each in self.all(kind, **key) if each.name.casefold() == name.casefold())
        return next(named, None)

    def change(self, sql: str, *values: Value) -> int:
        """Execute a statement; return the number of rows that it changed."""
        with self.lock:
            return self._connection.execute(sql, values).rowcount

    def save(self, table: str, values: Mapping[str, Any]) -> None:
        """Insert a row, or change the row with the same key; ignore values without a column."""
        with self.lock:
            columns = self.rows(f"PRAGMA table_info({table})")
            names = [column["name"] for column in columns if column["name"] in values]
            key = ", ".join(column["name"] for column in columns if column["pk"])
            changed = ", ".join(f"{name} = excluded.{name}" for name in names)
            self.change(
                f"{_insert('INSERT', table, names)} ON CONFLICT ({key}) DO UPDATE SET {changed}",
                *(values[name] for name in names),
            )

    def add(self, table: str, **values: Value) -> bool:
        """Insert a row unless a row has the same key; return whether this inserted a row."""
        return self.change(_insert("INSERT OR IGNORE", table, list(values)), *values.values()) > 0

    def delete(self, table: str, **key: Value) -> int:
        """Delete the rows of a table with these values; return the number of deleted rows."""
        sql = f"DELETE FROM {table} {_where(table, key)}"  # noqa: S608 - no values
        return self.change(sql, *key.values())

    def close(self) -> None:
        """Close the file; committed changes stay."""
        with self.lock:
            self._connection.close()


def _where(table: str, key: Mapping[str, Value]) -> str:
    # In SQL, `= NULL` finds no rows; IS finds rows without a value.
    return f"WHERE {' AND '.join(f'{table}.{name} IS ?' for name in key)}" if key else ""


def _insert(verb: str, table: str, names: list[str]) -> str:
    return f"{verb} INTO {table} ({', '.join(names)}) VALUES ({', '.join('?' * len(names))})"
