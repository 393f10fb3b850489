"""What a batch means, in plain Python: a second reading of the rules, without SQL."""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, time
from decimal import Decimal
from typing import Any


@dataclass(frozen=True)
class Col:
    name: str
    type: str
    nullable: bool = True


@dataclass
class Rows:
    columns: list[Col]
    rows: list[tuple]

    def types(self) -> dict[str, str]:
        return {column.name: column.type for column in self.columns}

    def named(self) -> list[dict[str, Any]]:
        names = [column.name for column in self.columns]
        return [dict(zip(names, row, strict=True)) for row in self.rows]


Tables = dict[tuple[str, str], Rows]


class RefusedError(Exception):
    """`action` is None for what the request itself is refused for."""

    def __init__(self, reason: str, action: int | None = None):
        super().__init__(reason)
        self.reason, self.action = reason, action


TEXT, COLLATED = "TEXT", 'TEXT COLLATE "en_US_CI"'
CLASSES = {
    "integer": ("SMALLINT", "INTEGER", "BIGINT"),
    "double": ("DOUBLE PRECISION", "NUMERIC(9, 2)"),
    "string": (TEXT, COLLATED),
    "datetime": ("DATE", "TIMESTAMP", "TIMESTAMPTZ"),
    "boolean": ("BOOLEAN",),
}


def apply(target: Tables, payload: Tables, actions: Sequence[dict]) -> Tables:
    """The target after all actions; the argument stays as it is."""
    for action in actions:
        if action["action"] == "upsert":
            _check_upsert(action["condition"])
    result = {key: Rows(table.columns, list(table.rows)) for key, table in target.items()}
    for number, action in enumerate(actions):
        try:
            _apply(result, payload, action)
        except RefusedError as refused:
            raise RefusedError(refused.reason, number) from refused
    return result


def _apply(target: Tables, payload: Tables, action: dict) -> None:
    table = _find(target, action.get("target-schema"), action["target-table"])
    source = None
    if "source-table" in action:
        source = _find(payload, action.get("source-schema"), action["source-table"])
    condition = action.get("condition", True)
    for leaf in _leaves(condition):
        _check_leaf(leaf, table.types(), source.types() if source else {})
    ACTIONS[action["action"]](table, source, condition)
    for column, values in zip(table.columns, zip(*table.rows, strict=True), strict=False):
        if not column.nullable and None in values:
            raise RefusedError("null")


def _find(tables: Tables, schema: str | None, name: str) -> Rows:
    schemas = {key[0] for key in tables}
    if schema is None and len(schemas) > 1:
        raise RefusedError("schema")
    if schema is None and schemas:
        (schema,) = schemas
    if (schema or "", name) not in tables:
        raise RefusedError("table")
    return tables[schema or "", name]


def _insert(table: Rows, source: Rows, condition: Any, only: list[dict] | None = None) -> None:
    names = _assigned(table, source, condition)
    if len(names) < len(table.columns):
        raise RefusedError("missing")
    for row in source.named() if only is None else only:
        table.rows.append(tuple(row[column.name] for column in table.columns))


def _replace(table: Rows, source: Rows, condition: Any) -> None:
    table.rows.clear()
    _insert(table, source, condition)


def _delete(table: Rows, source: Rows | None, condition: Any) -> None:
    if source is not None:
        used = {leaf["source-col"] for leaf in _leaves(condition) if "source-col" in leaf}
        if set(source.types()) - used:
            raise RefusedError("unused")
    others = source.named() if source else [{}]
    table.rows = [
        row
        for row, named in zip(table.rows, table.named(), strict=True)
        if not any(_holds(condition, named, table, other, source) for other in others)
    ]


def _update(table: Rows, source: Rows, condition: Any) -> None:
    names = _assigned(table, source, condition)
    if not names:
        raise RefusedError("nothing to set")
    _set(table, source, condition, names)


def _set(table: Rows, source: Rows, condition: Any, names: list[str]) -> None:
    rows = []
    for named in table.named():
        found = [row for row in source.named() if _holds(condition, named, table, row, source)]
        if len(found) > 1:
            raise RefusedError("repeated")
        changed = {name: found[0][name] for name in names} if found else {}
        rows.append(tuple((named | changed).values()))
    table.rows = rows


def _upsert(table: Rows, source: Rows, condition: Any) -> None:
    names = _assigned(table, source, condition)
    if len(names) < len(table.columns):
        raise RefusedError("missing")
    pairs = [leaf for leaf in _leaves(condition) if "const" not in leaf]
    for one, other in itertools.combinations(source.named(), 2):
        if all(
            _compare(p["op"], one[p["source-col"]], other[p["source-col"]], source, p["source-col"])
            for p in pairs
        ):
            raise RefusedError("repeated")
    new = [
        row
        for row in source.named()
        if not any(_holds(condition, named, table, row, source) for named in table.named())
    ]
    _set(table, source, condition, names)
    _insert(table, source, condition, new)


ACTIONS: dict[str, Callable] = {
    "insert": _insert,
    "replace": _replace,
    "delete": _delete,
    "update": _update,
    "upsert": _upsert,
}


def _assigned(table: Rows, source: Rows, condition: Any) -> list[str]:
    used = {leaf["source-col"] for leaf in _leaves(condition) if "source-col" in leaf}
    if set(source.types()) - set(table.types()) - used:
        raise RefusedError("extra")
    names = [column.name for column in table.columns if column.name in source.types()]
    if any(table.types()[name] != source.types()[name] for name in names):
        raise RefusedError("types")
    return names


def _leaves(condition: Any) -> list[dict]:
    if condition is True:
        return []
    if condition["op"] in ("and", "or"):
        return [leaf for arg in condition["args"] for leaf in _leaves(arg)]
    return [condition]


def _check_upsert(condition: Any) -> None:
    def is_plain(part: Any) -> bool:
        if part is True or part["op"] == "or":
            return False
        return part["op"] in ("eq", "is") or (
            part["op"] == "and" and all(is_plain(arg) for arg in part["args"])
        )

    pairs = [leaf for leaf in _leaves(condition) if "const" not in leaf]
    if not (is_plain(condition) and pairs):
        raise RefusedError("upsert")


def _check_leaf(leaf: dict, target: dict[str, str], source: dict[str, str]) -> None:
    types = [
        columns.get(leaf[key])
        for key, columns in (("target-col", target), ("source-col", source))
        if key in leaf
    ]
    if None in types:
        raise RefusedError("column")
    const = leaf.get("const")
    if const and const["v"] is None:
        return
    if const and types[0] not in CLASSES[const["type"]]:
        raise RefusedError("constant")
    if len(set(types)) > 1:
        raise RefusedError("types")
    if types[0] in ("BYTES", COLLATED) and leaf["op"] not in ("eq", "neq", "is"):
        raise RefusedError("comparison")
    if leaf["op"] == "has" and types[0] != TEXT:
        raise RefusedError("comparison")


def _holds(condition: Any, row: dict, table: Rows, other: dict, source: Rows | None) -> bool | None:
    """True, False or, as SQL has it, unknown."""
    if condition is True:
        return True
    if condition["op"] in ("and", "or"):
        results = [_holds(arg, row, table, other, source) for arg in condition["args"]]
        decisive = condition["op"] == "or"
        if decisive in results:
            return decisive
        return None if None in results else not decisive
    if "target-col" in condition:
        name, of = condition["target-col"], table
        value = row[name]
    else:
        assert source is not None
        name, of = condition["source-col"], source
        value = other[name]
    if "const" in condition:
        wanted, value = _constant(condition["const"], value)
    else:
        wanted = other[condition["source-col"]]
    return _compare(condition["op"], value, wanted, of, name)


def _constant(const: dict, value: Any) -> tuple[Any, Any]:
    """The constant, and the value of the column in a form that compares with it."""
    text = const["v"]
    if text is None or value is None:
        return text and "", value
    if const["type"] == "datetime":
        moment = datetime.fromisoformat(text).astimezone(UTC)
        if isinstance(value, datetime):
            return (moment if value.tzinfo else moment.replace(tzinfo=None)), value
        return moment.replace(tzinfo=None), datetime.combine(value, time())
    if const["type"] == "boolean":
        return str(text).lower() == "true", value
    if const["type"] == "double":
        return float(text), float(value) if isinstance(value, Decimal) else value
    return (int(text), value) if const["type"] == "integer" else (text, value)


def _compare(op: str, left: Any, right: Any, of: Rows, column: str) -> bool | None:
    if op == "is" and (left is None or right is None):
        return left is None and right is None
    if left is None or right is None:
        return None
    if op == "has":
        return right in left
    fold = of.types()[column] == COLLATED
    a, b = (_ordered(value.lower() if fold else value) for value in (left, right))
    return {
        "eq": a == b,
        "is": a == b,
        "neq": a != b,
        "gt": a > b,
        "lt": a < b,
        "gte": a >= b,
        "lte": a <= b,
    }[op]


def _ordered(value: Any) -> tuple:
    """Hyper's order: not-a-number equals itself and comes after all numbers."""
    if isinstance(value, float):
        return (value != value, 0.0 if value != value else value)
    return (False, value)
