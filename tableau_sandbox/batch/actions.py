"""The effect of each action on its table."""

from collections.abc import Callable, Mapping, Sequence

from tableauhyperapi import escape_name

from tableau_sandbox.batch.column_rules import (
    check_deleting_columns,
    inserted_columns,
    updated_columns,
)
from tableau_sandbox.batch.conditions import Side
from tableau_sandbox.batch.grammar.batches import Kind
from tableau_sandbox.batch.repeated_keys import check_one_match, check_unique_source
from tableau_sandbox.batch.sql import aliased, column_sql
from tableau_sandbox.batch.step import Step
from tableau_sandbox.batch.unmatched import WAS_UNMATCHED, find_unmatched


def _insert(step: Step) -> None:
    _insert_where(step, _inserted(step), "TRUE")


def _update(step: Step) -> None:
    columns = _updated(step)
    check_one_match(step)
    _set(step, columns)


def _upsert(step: Step) -> None:
    _inserted(step)
    columns = _updated(step)
    check_unique_source(step)
    # The update may change the values by which rows are found.
    find_unmatched(step)
    _set(step, columns)
    _insert_where(step, columns, WAS_UNMATCHED)


def _delete(step: Step) -> None:
    chosen = step.match
    if step.source is not None:
        check_deleting_columns(step.source, condition=step.condition, action=step.position)
        chosen = f"EXISTS (SELECT 1 FROM {aliased(step.source)} WHERE {chosen})"  # noqa: S608
    step.run(f"DELETE FROM {aliased(step.target)} WHERE {chosen}")  # noqa: S608


def _replace(step: Step) -> None:
    columns = inserted_columns(
        step.target, step.rows, condition=step.condition, lenient=False, action=step.position
    )
    step.run(f"DELETE FROM {aliased(step.target)}")  # noqa: S608
    _insert_where(step, columns, "TRUE")


def _inserted(step: Step) -> list[str]:
    return inserted_columns(
        step.target,
        step.rows,
        condition=step.condition,
        lenient=step.lenient,
        action=step.position,
    )


def _updated(step: Step) -> list[str]:
    return updated_columns(step.target, step.rows, condition=step.condition, action=step.position)


def _insert_where(step: Step, columns: Sequence[str], chosen: str) -> None:
    names = ", ".join(escape_name(name) for name in columns)
    values = ", ".join(column_sql(Side.SOURCE, name) for name in columns)
    step.run(
        f"INSERT INTO {step.target.name} ({names})"  # noqa: S608
        f" SELECT {values} FROM {aliased(step.rows)} WHERE {chosen}"
    )


def _set(step: Step, columns: Sequence[str]) -> None:
    values = ", ".join(f"{escape_name(name)} = {column_sql(Side.SOURCE, name)}" for name in columns)
    step.run(
        f"UPDATE {aliased(step.target)} SET {values}"  # noqa: S608
        f" FROM {aliased(step.rows)} WHERE {step.match}"
    )


EXECUTE: Mapping[Kind, Callable[[Step], None]] = {
    Kind.INSERT: _insert,
    Kind.UPDATE: _update,
    Kind.UPSERT: _upsert,
    Kind.DELETE: _delete,
    Kind.REPLACE: _replace,
}
