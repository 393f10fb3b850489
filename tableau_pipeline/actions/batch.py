"""Action batches: changes to published data that take effect together, or not at all.

Batch([
    Delete(target="sales", source="affected", where=target("id") == source("id")),
    Insert(target="sales", source="fresh"),
]).json()
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from tableauhyperapi import TableName

from tableau_pipeline.actions.conditions import (
    Condition,
    Side,
    all_of,
    as_sent,
    schema_and_table,
    source,
    target,
)
from tableau_pipeline.errors import BatchError

__all__ = [
    "Action",
    "Batch",
    "BatchError",
    "Delete",
    "Insert",
    "Replace",
    "Upsert",
    "all_of",
    "source",
    "target",
]

# The schema may be omitted if only one schema has tables.
Table = TableName | str


@dataclass(frozen=True, kw_only=True)
class Insert:
    """Append the rows of `source`, which must have exactly the columns of `target`."""

    target: Table
    source: Table
    verb: ClassVar = "insert"
    where: ClassVar[None] = None


@dataclass(frozen=True, kw_only=True)
class Replace:
    """Replace all rows of `target` by the rows of `source`, which has the same columns."""

    target: Table
    source: Table
    verb: ClassVar = "replace"
    where: ClassVar[None] = None


@dataclass(frozen=True, kw_only=True)
class Upsert:
    """Update the rows of `target` that match a row of `source`, and insert the others.

    `where` compares key columns of both tables by `==` or `.is_()`, combined by `&`.
    """

    target: Table
    source: Table
    where: Condition
    verb: ClassVar = "upsert"


@dataclass(frozen=True, kw_only=True)
class Delete:
    """Delete the rows of `target` for which `where` holds, with any row of `source` if it is given.

    `where` must use all columns of `source`.
    """

    target: Table
    source: Table | None = None
    where: Condition
    verb: ClassVar = "delete"


Action = Insert | Upsert | Delete | Replace


@dataclass(frozen=True)
class Batch:
    """Actions in the order in which they are applied, all or none."""

    actions: Sequence[Action]

    def __post_init__(self) -> None:
        """Check what the server could not tell from something else that was meant.

        Raises:
            BatchError: there are no actions, or a name is not one that the server reads.
        """
        # A copy, so that a batch stays as it was checked if the caller changes the list.
        object.__setattr__(self, "actions", tuple(self.actions))
        if not self.actions:
            raise BatchError("a batch needs at least one action")
        self.wire_actions()

    def wire_actions(self) -> list[dict[str, Any]]:
        """Return the actions as `update_hyper_data` of the Tableau Server Client takes them."""
        return [_wire(action) for action in self.actions]

    def json(self) -> str:
        """Return the body of the request."""
        return json.dumps({"actions": self.wire_actions()}, ensure_ascii=False)


def _wire(action: Action) -> dict[str, Any]:
    fields: dict[str, Any] = {"action": action.verb}
    for side, table in ((Side.TARGET, action.target), (Side.SOURCE, action.source)):
        if table is not None or not isinstance(action, Delete):
            schema, name = schema_and_table(table, what=f"the {side} table")
            fields |= {f"{side}-schema": schema} if schema is not None else {}
            fields[f"{side}-table"] = name
    if not isinstance(action, Insert | Replace):
        fields["condition"] = as_sent(action.where)
    return fields


def describe_actions(batch: str) -> str:
    """List the actions of a batch by number: the server's notes name at most one of them."""
    actions = [
        f"{number}. {action['action']} {action.get('target-schema', '')}.{action['target-table']}"
        for number, action in enumerate(json.loads(batch)["actions"], start=1)
    ]
    return f"Its actions were: {'; '.join(actions)}. "
