"""Action batches: changes to published data that take effect together, or not at all.

Batch([
    Delete(target="sales", source="affected", where=target("id") == source("id")),
    Insert(target="sales", source="fresh"),
]).json()
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, cast

from tableauhyperapi import TableName

from tableau_pipeline.actions.columns import (
    Tables,
    check_types,
    column_problems,
    comparison_problems,
    find_table,
    source,
    target,
    upsert_problem,
)
from tableau_pipeline.actions.conditions import (
    Condition,
    Side,
    all_of,
    always,
    any_of,
    as_sent,
    columns_of,
    schema_and_table,
)
from tableau_pipeline.errors import BatchError

__all__ = [
    "Action",
    "Batch",
    "BatchError",
    "Delete",
    "Insert",
    "Replace",
    "Update",
    "Upsert",
    "all_of",
    "always",
    "any_of",
    "source",
    "target",
]

# The schema may be omitted if only one schema has tables.
Table = TableName | str


class _Checked:
    def __post_init__(self) -> None:
        action = cast("Action", self)
        schema_and_table(action.target, what="the target table")
        if action.source is not None:
            schema_and_table(action.source, what="the source table")
        elif not isinstance(action, Delete):
            raise BatchError(f"{_title(action)}: it needs a source table to take rows from")
        if not isinstance(action, Insert | Replace) and not isinstance(action.where, Condition):
            given = "" if action.where is None else f", not {action.where!r:.100}"
            raise BatchError(
                f"{_title(action)}: it needs a condition{given}: "
                'where=target("a") == source("a"), or where=always for every row'
            )


@dataclass(frozen=True, kw_only=True)
class Insert(_Checked):
    """Append the rows of `source`, which must have exactly the columns of `target`."""

    target: Table
    source: Table
    verb: ClassVar = "insert"
    where: ClassVar[None] = None


@dataclass(frozen=True, kw_only=True)
class Replace(_Checked):
    """Replace all rows of `target` by the rows of `source`, which has the same columns."""

    target: Table
    source: Table
    verb: ClassVar = "replace"
    where: ClassVar[None] = None


@dataclass(frozen=True, kw_only=True)
class Update(_Checked):
    """Set the values of each row of `target` from the row of `source` that matches by `where`.

    Columns that `source` lacks keep their values; columns that only `where` names are not copied.
    """

    target: Table
    source: Table
    where: Condition | None = None
    verb: ClassVar = "update"


@dataclass(frozen=True, kw_only=True)
class Upsert(_Checked):
    """Update the rows of `target` that match a row of `source`, and insert the others.

    `where` compares key columns with the same name in both tables, combined by `&`.
    """

    target: Table
    source: Table
    where: Condition | None = None
    verb: ClassVar = "upsert"

    def __post_init__(self) -> None:
        super().__post_init__()
        if problem := upsert_problem(self.where):
            raise BatchError(f"{_title(self)}: {problem}")


@dataclass(frozen=True, kw_only=True)
class Delete(_Checked):
    """Delete the rows of `target` for which `where` holds, with any row of `source` if it is given.

    `where` must use all columns of `source`.
    """

    target: Table
    source: Table | None = None
    where: Condition | None = None
    verb: ClassVar = "delete"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.source is None and (names := columns_of(self.where, Side.SOURCE)):
            raise BatchError(
                f'{_title(self)}: where names source("{names[0]}"), but the action has no source: '
                "add source=..., or compare with a constant"
            )


Action = Insert | Update | Upsert | Delete | Replace


@dataclass(frozen=True)
class Batch:
    """Actions in the order in which they are applied, all or none."""

    actions: Sequence[Action]

    def __post_init__(self) -> None:
        """Check the actions.

        Raises:
            BatchError: there are none, or one is not an action.
        """
        # A copy, so that a batch stays as it was checked if the caller changes the list.
        object.__setattr__(self, "actions", tuple(self.actions))
        if not self.actions:
            raise BatchError("a batch needs at least one action")
        for action in self.actions:
            if not isinstance(action, Action):
                raise BatchError(
                    f"{action!r:.100} is not an action: use Insert, Update, Upsert, Delete or "
                    "Replace"
                )

    def wire_actions(self) -> list[dict[str, Any]]:
        """Return the actions as `update_hyper_data` of the Tableau Server Client takes them."""
        return [_wire(action) for action in self.actions]

    def json(self) -> str:
        """Return the body of the request."""
        return json.dumps({"actions": self.wire_actions()}, ensure_ascii=False)


def _title(action: Action) -> str:
    _, table = schema_and_table(action.target, what="the target table")
    return f'{action.verb} of "{table}"'


def _wire(action: Action) -> dict[str, Any]:
    fields: dict[str, Any] = {"action": action.verb}
    for side, table in ((Side.TARGET, action.target), (Side.SOURCE, action.source)):
        if table is not None:
            schema, name = schema_and_table(table, what=f"the {side} table")
            fields |= {f"{side}-schema": schema} if schema is not None else {}
            fields[f"{side}-table"] = name
    if action.where is not None:
        fields["condition"] = as_sent(action.where)
    return fields


def describe_actions(batch: str) -> str:
    """List the actions of a batch by number: the server's notes name at most one of them."""
    actions = [
        f"{number}. {action['action']} {action.get('target-schema', '')}.{action['target-table']}"
        for number, action in enumerate(json.loads(batch)["actions"], start=1)
    ]
    return f"Its actions were: {'; '.join(actions)}. "


def batch_problems(batch: Batch, *, target: Tables, source: Tables) -> list[str]:
    """Return a sentence for each problem that the server would refuse, except those of rows.

    `tableau_pipeline.hyper.hyper_file.table_columns` reads the tables of a file.

    Args:
        batch: the actions.
        target: the tables of the published file, with the SQL types of their columns.
        source: the tables of the payload; empty without one.

    Raises:
        ValueError: a type is not spelled as `table_columns` spells it.
    """
    check_types(target)
    check_types(source)
    return [
        f"Action {number} ({action.verb}): {problem}"
        for number, action in enumerate(batch.actions, start=1)
        for problem in _problems(action, target, source)
    ]


def _problems(action: Action, target: Tables, source: Tables) -> list[str]:
    try:
        into = find_table(target, Side.TARGET, action.target)
        rows = None if action.source is None else find_table(source, Side.SOURCE, action.source)
    except BatchError as error:
        return [f"{error}."]
    tables = {table.side: table for table in (into, rows) if table is not None}
    problems = list(comparison_problems(action.where, tables))
    if rows is not None:
        problems += column_problems(action.verb, into, rows, action.where)
    # A long condition may report the same problem of a column many times.
    return [f"{problem}." for problem in dict.fromkeys(problems)]
