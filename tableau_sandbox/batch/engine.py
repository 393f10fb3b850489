"""Apply an action batch to a `.hyper` file: the result is a new file, or an error."""

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from tableauhyperapi import Connection, HyperException, HyperProcess, TypeTag, escape_name

from tableau_sandbox.batch.grammar import (
    Action,
    Batch,
    Comparison,
    Condition,
    Junction,
    Side,
    column_pairs,
)
from tableau_sandbox.batch.tables import (
    BatchError,
    Code,
    ColumnType,
    Table,
    check_condition,
    check_deleting_columns,
    find_table,
    inserted_columns,
    updated_columns,
)
from tableau_sandbox.hyperd import UnreadableFileError, connect, string_literal, with_hyperd

# In SQL, the target table has the alias "t", and the source table has the alias "s".
_ALIASES = {Side.TARGET: "t", Side.SOURCE: "s"}
_OPERATORS = {
    "eq": "=",
    "neq": "<>",
    "gt": ">",
    "lt": "<",
    "gte": ">=",
    "lte": "<=",
    "is": "IS NOT DISTINCT FROM",
}
# A condition that finds source rows by their positions (`ctid`). The source table does not change,
# so the rows keep their positions.
_WAS_UNMATCHED = "s.ctid IN (SELECT row FROM unmatched)"


def apply_batch(target: Path, payload: Path | None, batch: Batch, output: Path) -> None:
    """Apply a batch to `target`, and write the result to `output`; after an error, write no file.

    Args:
        target: a `.hyper` file, which does not change.
        payload: a `.hyper` file with the source tables; None if the batch needs no source.
        batch: the actions; later actions see the effects of earlier ones.
        output: the path of the new file.

    Raises:
        BatchError: an action cannot be applied, or a file cannot be opened.
    """
    try:
        with_hyperd(lambda hyper: _apply_all(hyper, target, payload, batch, output))
    except UnreadableFileError as error:
        raise BatchError(Code.ENGINE, str(error)) from error


def _apply_all(
    hyper: HyperProcess, target: Path, payload: Path | None, batch: Batch, output: Path
) -> None:
    shutil.copyfile(target, output)
    try:
        with connect(hyper) as connection:
            _attach(connection, Side.TARGET, output)
            if payload is not None:
                _attach(connection, Side.SOURCE, payload)
            # This table will list the source rows that match no target row before an upsert changes
            # the target. Hyper creates no temporary table inside a transaction.
            connection.execute_command("CREATE TEMPORARY TABLE unmatched (row BIGINT)")
            connection.execute_command("BEGIN")
            for position, action in enumerate(batch.actions):
                _apply(connection, action, position)
            connection.execute_command("COMMIT")
            # Close the file, so that it is complete before it is moved.
            connection.catalog.detach_all_databases()
    except BaseException:
        output.unlink(missing_ok=True)
        raise


def _attach(connection: Connection, side: Side, path: Path) -> None:
    try:
        connection.catalog.attach_database(path, alias=side)
    except HyperException as error:
        # Omit the rest of the message, which contains a path of the sandbox.
        reason = str(error.main_message).partition(": DatabaseId")[0]
        raise BatchError(
            Code.UNREADABLE_FILE, f"The {side} file cannot be opened: {reason}."
        ) from error


def _apply(connection: Connection, action: Action, position: int) -> None:
    try:
        target = find_table(
            connection, Side.TARGET, schema=action.target_schema, name=action.target_table
        )
        source = None
        if action.source_table:
            source = find_table(
                connection, Side.SOURCE, schema=action.source_schema, name=action.source_table
            )
        check_condition(action.condition, target=target, source=source)
        _EXECUTE[action.action](_Step(connection, target, source, action.condition))
    except BatchError as error:
        error.action = position
        raise
    except HyperException as error:
        raise BatchError(Code.ENGINE, f"{error.main_message}.", position) from error


@dataclass(frozen=True)
class _Step:
    """An action whose tables exist and fit its condition. Only a delete may lack a source."""

    connection: Connection
    target: Table
    source: Table | None
    condition: Condition

    @property
    def rows(self) -> Table:
        """The source table, for actions that require one."""
        if self.source is None:
            raise LookupError(f"no source table for the {self.target.title}")
        return self.source

    @property
    def match(self) -> str:
        """The condition of the action as SQL."""
        return _condition_sql(self.condition, target=self.target, source=self.source)

    def run(self, sql: str) -> None:
        """Execute a statement."""
        self.connection.execute_command(sql)

    def first(self, query: str) -> list | None:
        """Return the first row of a query, or None if the query returns no rows."""
        return next(iter(self.connection.execute_list_query(f"{query} LIMIT 1")), None)


def _insert(step: _Step) -> None:
    columns = inserted_columns(step.target, step.rows, step.condition)
    _insert_where(step, columns, "TRUE")


def _update(step: _Step) -> None:
    columns = updated_columns(step.target, step.rows, step.condition)
    _check_one_match(step)
    _set(step, columns)


def _upsert(step: _Step) -> None:
    columns = inserted_columns(step.target, step.rows, step.condition)
    _check_unique_source(step)
    # The update may change the values that the condition compares, so find the unmatched source
    # rows first.
    step.run("DELETE FROM unmatched")
    step.run(
        f"INSERT INTO unmatched SELECT s.ctid FROM {_aliased(step.rows)}"  # noqa: S608
        f" WHERE NOT EXISTS (SELECT 1 FROM {_aliased(step.target)} WHERE {step.match})"
    )
    _set(step, columns)
    _insert_where(step, columns, _WAS_UNMATCHED)


def _delete(step: _Step) -> None:
    chosen = step.match
    if step.source is not None:
        check_deleting_columns(step.source, step.condition)
        chosen = f"EXISTS (SELECT 1 FROM {_aliased(step.source)} WHERE {chosen})"  # noqa: S608
    step.run(f"DELETE FROM {_aliased(step.target)} WHERE {chosen}")  # noqa: S608


def _replace(step: _Step) -> None:
    columns = inserted_columns(step.target, step.rows, step.condition)
    step.run(f"DELETE FROM {_aliased(step.target)}")  # noqa: S608
    _insert_where(step, columns, "TRUE")


_EXECUTE: Mapping[str, Callable[[_Step], None]] = {
    "insert": _insert,
    "update": _update,
    "upsert": _upsert,
    "delete": _delete,
    "replace": _replace,
}


def _insert_where(step: _Step, columns: Sequence[str], chosen: str) -> None:
    names = ", ".join(escape_name(name) for name in columns)
    values = ", ".join(_column(Side.SOURCE, name) for name in columns)
    step.run(
        f"INSERT INTO {step.target.name} ({names})"  # noqa: S608
        f" SELECT {values} FROM {_aliased(step.rows)} WHERE {chosen}"
    )


def _set(step: _Step, columns: Sequence[str]) -> None:
    values = ", ".join(f"{escape_name(name)} = {_column(Side.SOURCE, name)}" for name in columns)
    step.run(
        f"UPDATE {_aliased(step.target)} SET {values}"  # noqa: S608
        f" FROM {_aliased(step.rows)} WHERE {step.match}"
    )


def _check_one_match(step: _Step) -> None:
    """Refuse an update in which several source rows match one target row.

    Hyper would silently use any of these source rows.
    """
    key = sorted({pair.target_col for pair in column_pairs(step.condition)})
    # Group by the position of the target row as well (`ctid` in Hyper), because rows may be equal.
    group = ", ".join(["t.ctid", *(_column(Side.TARGET, name) for name in key)])
    repeated = step.first(
        f"SELECT {group} FROM {_aliased(step.target)} JOIN {_aliased(step.rows)} ON {step.match}"  # noqa: S608
        f" GROUP BY {group} HAVING COUNT(*) > 1"
    )
    if repeated:
        raise _repeated(step, key, repeated[1:])


def _check_unique_source(step: _Step) -> None:
    """Refuse an upsert whose source has several rows for one key.

    For 'eq', NULL is not a key, because no two NULLs are equal. For 'is', NULL is a key.
    """
    pairs = column_pairs(step.condition)
    key = sorted({pair.source_col for pair in pairs})
    columns = ", ".join(_column(Side.SOURCE, name) for name in key)
    known = [
        f"{_column(Side.SOURCE, pair.source_col)} IS NOT NULL" for pair in pairs if pair.op == "eq"
    ]
    repeated = step.first(
        f"SELECT {columns} FROM {_aliased(step.rows)} WHERE {' AND '.join(known) or 'TRUE'}"  # noqa: S608
        f" GROUP BY {columns} HAVING COUNT(*) > 1"
    )
    if repeated:
        raise _repeated(step, key, repeated)


def _repeated(step: _Step, key: Sequence[str], values: Sequence[object]) -> BatchError:
    described = ", ".join(
        f'"{name}" = {value!s:.100}' for name, value in zip(key, values, strict=True)
    )
    where = f" with {described}" if described else ""
    return BatchError(
        Code.REPEATED_KEY,
        f"Several rows of the {step.rows.title} match one row{where} of the {step.target.title}.",
    )


def _aliased(table: Table) -> str:
    return f"{table.name} AS {_ALIASES[table.side]}"


def _column(side: Side, name: str) -> str:
    return f"{_ALIASES[side]}.{escape_name(name)}"


def _condition_sql(condition: Condition, *, target: Table, source: Table | None) -> str:
    """Return the SQL of a condition that `check_condition` has accepted."""
    if isinstance(condition, Junction):
        parts = [_condition_sql(arg, target=target, source=source) for arg in condition.args]
        return f"({f' {condition.op.upper()} '.join(parts) or 'TRUE'})"
    (side, name), *others = condition.columns.items()
    if others:
        (other,) = others
        return f"{_column(side, name)} {_OPERATORS[condition.op]} {_column(*other)}"
    table = target if side is Side.TARGET or source is None else source
    return _constant_test(condition, _column(side, name), table.types[name])


def _constant_test(test: Comparison, column: str, type_: ColumnType) -> str:
    if test.const is None or test.const.v is None:
        return f"{column} IS NULL"
    literal = _literal(test.const.v, type_)
    if test.op == "has":
        return f"POSITION({literal} IN {column}) > 0"
    return f"{column} {_OPERATORS[test.op]} {literal}"


def _literal(value: bool | int | float | str | datetime, type_: ColumnType) -> str:
    if isinstance(value, bool):
        return str(value).upper()
    if isinstance(value, int):
        return f"CAST({value} AS BIGINT)"
    if isinstance(value, float):
        return f"CAST('{value!r}' AS DOUBLE PRECISION)"
    if isinstance(value, str):
        return string_literal(value)
    if type_.type.tag is TypeTag.TIMESTAMP_TZ:
        return f"TIMESTAMPTZ '{value.isoformat(' ')}'"
    return f"TIMESTAMP '{value.replace(tzinfo=None).isoformat(' ')}'"
