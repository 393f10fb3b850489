"""Parse action batches from JSON."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from tableau_sandbox.batch.conditions import Always, Condition, Side, columns_of
from tableau_sandbox.batch.errors import GrammarError
from tableau_sandbox.batch.grammar.conditions import parse_condition
from tableau_sandbox.batch.grammar.json_values import fields_of, name_of, parse_json
from tableau_sandbox.batch.grammar.upserts import check_upsert


class Kind(StrEnum):
    """What an action does."""

    INSERT = "insert"
    UPDATE = "update"
    UPSERT = "upsert"
    DELETE = "delete"
    REPLACE = "replace"


@dataclass(frozen=True)
class TableReference:
    """A table by name; the schema may be omitted if only one schema has tables."""

    schema: str | None
    name: str


@dataclass(frozen=True)
class Action:
    """One action of a batch; `condition` is `Always` for actions that take none."""

    kind: Kind
    target: TableReference
    source: TableReference | None
    condition: Condition


@dataclass(frozen=True)
class Batch:
    """Actions in the order in which they are applied, all or none."""

    actions: tuple[Action, ...]

    @property
    def needs_payload(self) -> bool:
        """Whether an action reads from an uploaded file."""
        return any(action.source for action in self.actions)


_KEYS = (
    "action",
    "target-schema",
    "target-table",
    "source-schema",
    "source-table",
    # Tableau's schema of answers has this key, but its guide does not; it has no effect.
    "source-file",
    "condition",
)
_CONDITIONAL = (Kind.UPDATE, Kind.UPSERT, Kind.DELETE)


def parse_batch(body: bytes) -> Batch:
    """Parse the body of a request as a batch.

    Raises:
        GrammarError: it is not a batch; the message names the action.
    """
    actions = fields_of(parse_json(body), known=("actions",), what="the body").get("actions")
    if not isinstance(actions, list) or not actions:
        raise GrammarError("the body needs a non-empty list 'actions'")
    return Batch(tuple(_numbered(number, value) for number, value in enumerate(actions, start=1)))


def _numbered(number: int, value: object) -> Action:
    try:
        return _action(fields_of(value, known=_KEYS, what="the action"))
    except GrammarError as error:
        raise GrammarError(f"action {number}: {error}") from error


def _action(fields: dict[str, Any]) -> Action:
    if fields.get("action") not in list(Kind):
        known = ", ".join(Kind)
        raise GrammarError(f"unknown action {fields.get('action')!r}; known: {known}")
    kind = Kind(fields["action"])
    target, source = _reference(fields, Side.TARGET), _reference(fields, Side.SOURCE)
    if target is None:
        raise GrammarError(f"'{kind}' needs a 'target-table'")
    if source is None and kind is not Kind.DELETE:
        raise GrammarError(f"'{kind}' needs a 'source-table'")
    if "source-file" in fields:
        name_of(fields["source-file"], what="'source-file'")
    if ("condition" in fields) != (kind in _CONDITIONAL):
        verb = "needs a" if kind in _CONDITIONAL else "takes no"
        raise GrammarError(f"'{kind}' {verb} 'condition'")
    condition = parse_condition(fields["condition"]) if "condition" in fields else Always()
    if source is None and columns_of(condition, Side.SOURCE):
        raise GrammarError("without a 'source-table', a condition knows no 'source-col'")
    if kind is Kind.UPSERT:
        check_upsert(condition)
    return Action(kind, target, source, condition)


def _reference(fields: dict[str, Any], side: Side) -> TableReference | None:
    schema, table = (
        name_of(fields[key], what=f"'{key}'") if key in fields else None
        for key in (f"{side}-schema", f"{side}-table")
    )
    if table is None and schema is not None:
        raise GrammarError(f"a '{side}-schema' needs a '{side}-table'")
    return TableReference(schema, table) if table is not None else None
