import sqlite3
import threading
from collections.abc import Generator
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path
from typing import Any

Value = str | int | float | bytes | None


class Database:
    """The state of the sandbox: one SQLite file, one connection, one thread at a time.

    A sandbox serves one developer or one test, so a single lock is simple, safe and fast enough.
    The lock also keeps files consistent with the rows that name them.
    """

    def __init__(self, path: Path):
        self.lock = threading.RLock()
        # SQLite gives its other files the mode of this one.
        path.touch(mode=0o600)
        for file in path.parent.glob(f"{path.name}*"):
            file.chmod(0o600)
        # By itself, Python would open transactions, and refuse other threads; `lock` sees to both.
        self._connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self._connection.row_factory = sqlite3.Row
        self._connection.execute("PRAGMA journal_mode = WAL")
        # A power failure may cost the latest changes; a sandbox need not pay a sync for each of
        # them.
        self._connection.execute("PRAGMA synchronous = NORMAL")
        self._connection.execute("PRAGMA foreign_keys = ON")
        self._connection.executescript(
            files("tableau_sandbox.store").joinpath("schema.sql").read_text("utf-8")
        )

    @contextmanager
    def transaction(self) -> Generator[None]:
        """Make all changes inside the block together, or none of them; may be nested."""
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

    def rows(self, sql: str, *values: Value) -> list[dict[str, Any]]:
        """Return the rows of a query, as columns by name."""
        with self.lock:
            return [dict(row) for row in self._connection.execute(sql, values)]

    def row(self, sql: str, *values: Value) -> dict[str, Any] | None:
        """Return the first row of a query."""
        return next(iter(self.rows(sql, *values)), None)

    def change(self, sql: str, *values: Value) -> int:
        """Execute a statement; return the number of rows that it changed."""
        with self.lock:
            return self._connection.execute(sql, values).rowcount

    def close(self) -> None:
        """Close the file; committed changes stay."""
        with self.lock:
            self._connection.close()
