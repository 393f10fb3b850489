"""Random tables, payloads and batches: mostly sensible, sometimes not."""

from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

from hypothesis import strategies as st
from tableauhyperapi import Connection, CreateMode, Inserter, TableName, escape_name

from tableau_pipeline.hyper.process import hyper_process


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


# By schema and name.
Tables = dict[tuple[str, str], Rows]
TEXT, COLLATED = "TEXT", 'TEXT COLLATE "en_US_CI"'
CLASSES = {
    "integer": ("SMALLINT", "INTEGER", "BIGINT"),
    "double": ("DOUBLE PRECISION", "NUMERIC(9, 2)"),
    "string": (TEXT, COLLATED),
    "datetime": ("DATE", "TIMESTAMP", "TIMESTAMPTZ"),
    "boolean": ("BOOLEAN",),
}
VALUES: dict[str, list[Any]] = {
    "SMALLINT": [0, 1, 2, -7],
    "INTEGER": [0, 1, 2, 3, 4, 5],
    "BIGINT": [0, 1, 1 << 62],
    "DOUBLE PRECISION": [0.0, -0.0, 0.1, 1.5, float("nan"), float("inf")],
    "NUMERIC(9, 2)": [Decimal("0.10"), Decimal("1.50"), Decimal("-3.00")],
    TEXT: ["", "a", "A", "ab", "b'\"\\", "ß", "𝄞"],
    COLLATED: ["a", "A", "b", ""],
    "BOOLEAN": [True, False],
    "BYTES": [b"", b"a", b"\0\xff"],
    "DATE": [date(2020, 1, 1), date(2020, 1, 2)],
    "TIMESTAMP": [datetime(2020, 1, 1), datetime(2020, 1, 1, 23, 59, 59, 999000)],
    "TIMESTAMPTZ": [datetime(2020, 1, 1, tzinfo=UTC), datetime(2020, 1, 1, 1, tzinfo=UTC)],
}
CONSTANTS: dict[str, list[Any]] = {
    "integer": ["0", "1", "+2", "-7", 1, 2.0],
    "double": ["0.1", "1.5", "1e300", 1.5, 0, "-3"],
    "string": ["a", "A", "", "b'\"\\", "ß"],
    "boolean": ["TRUE", "false", True],
    "datetime": ["2020-01-01T00:00:00Z", "2020-01-01T01:00:00.000+0100", "2020-01-02T00:00:00Z"],
}
COMPARISONS = ["eq", "eq", "eq", "is", "is", "neq", "gt", "lt", "gte", "lte"]


def rarely(draw: st.DrawFn) -> bool:
    # Hypothesis likes the ends of a range.
    return draw(st.integers(0, 19)) == 7


@st.composite
def target_tables(draw: st.DrawFn) -> Tables:
    schema = draw(st.sampled_from(["Extract", "public"]))
    keys = [(schema, "t")] + ([("Extract", "other one")] if rarely(draw) else [])
    return {key: draw(tables()) for key in keys}


@st.composite
def tables(draw: st.DrawFn) -> Rows:
    names = draw(st.lists(st.sampled_from(["id", "b", "C c", 'd"']), min_size=1, unique=True))
    columns = [
        Col(name, draw(st.sampled_from(list(VALUES))), nullable=not rarely(draw)) for name in names
    ]
    return Rows(columns, draw(rows(columns)))


@st.composite
def rows(draw: st.DrawFn, columns: list[Col]) -> list[tuple]:
    values = [
        st.sampled_from([*VALUES[column.type], *([None] if column.nullable else [])])
        for column in columns
    ]
    return draw(st.lists(st.tuples(*values), min_size=draw(st.integers(0, 3)), max_size=5))


@st.composite
def source_tables(draw: st.DrawFn, like: Rows) -> Rows:
    columns = []
    for column in like.columns:
        if draw(st.integers(0, 5)) == 3:
            continue
        type_ = draw(st.sampled_from(list(VALUES))) if rarely(draw) else column.type
        columns.append(replace(column, type=type_, nullable=draw(st.booleans())))
    if not columns or rarely(draw):
        columns.append(Col("extra", draw(st.sampled_from(list(VALUES)))))
    columns = draw(st.permutations(columns))
    return Rows(columns, draw(rows(columns)))


@st.composite
def batches(draw: st.DrawFn) -> tuple[Tables, Tables, list[dict]]:
    """A target, a payload, and a batch for them."""
    target = draw(target_tables())
    payload: Tables = {}
    actions = []
    for number in range(draw(st.integers(1, 4))):
        key = draw(st.sampled_from(list(target)))
        kind = draw(st.sampled_from(["insert", "update", "upsert", "delete", "replace"]))
        source_key = ("Extract", f"s{number}")
        source = draw(sources(kind, target[key]))
        action: dict[str, Any] = {"action": kind, "target-table": key[1]}
        if draw(st.booleans()):
            action["target-schema"] = key[0] if not rarely(draw) else "nowhere"
        if source is not None:
            payload[source_key] = source
            action["source-table"] = source_key[1] if not rarely(draw) else "no such table"
        if kind in ("update", "upsert", "delete"):
            action["condition"] = draw(conditions(target[key], source, kind))
        actions.append(action)
    return target, payload, actions


@st.composite
def sources(draw: st.DrawFn, kind: str, target: Rows) -> Rows | None:
    if kind in ("insert", "replace", "upsert") and not rarely(draw):
        columns = draw(st.permutations(target.columns))
        return Rows(columns, draw(rows(columns)))
    if kind == "delete":
        if draw(st.booleans()):
            return None
        columns = target.columns[: draw(st.integers(1, 2))]
        return Rows(columns, draw(rows(columns)))
    return draw(source_tables(target))


@st.composite
def conditions(draw: st.DrawFn, target: Rows, source: Rows | None, kind: str) -> Any:
    if rarely(draw):
        return True
    if kind == "upsert" and source is not None and not rarely(draw):
        common = sorted(set(target.types()) & set(source.types()))
        if common:
            keys = draw(st.lists(st.sampled_from(common), min_size=1, max_size=2, unique=True))
            return upsert_condition(draw, conjunction(draw, keys), target, source)
    if kind == "delete" and source is not None and not rarely(draw):
        return conjunction(draw, list(source.types()))
    leaf = leaves(target, source)
    tree = st.recursive(
        leaf,
        lambda children: st.fixed_dictionaries(
            {
                "op": st.sampled_from(["and", "or"]),
                "args": st.lists(children, min_size=1, max_size=3),
            }
        ),
        max_leaves=4,
    )
    return draw(tree)


def upsert_condition(draw: st.DrawFn, condition: dict, target: Rows, source: Rows) -> dict:
    """The condition, or it and another equality, or an equality of columns of other names."""
    others = [
        leaf
        for leaf in draw(st.lists(leaves(target, source), max_size=3))
        if leaf["op"] in ("eq", "is")
    ]
    crossed = [leaf for leaf in others if leaf.keys() >= {"target-col", "source-col"}]
    if crossed and draw(st.booleans()):
        return crossed[0]
    return {"op": "and", "args": [condition, *others]} if others else condition


def conjunction(draw: st.DrawFn, keys: list[str]) -> dict:
    pairs = [
        {"op": draw(st.sampled_from(["eq", "is"])), "target-col": key, "source-col": key}
        for key in keys
    ]
    return pairs[0] if len(pairs) == 1 else {"op": "and", "args": pairs}


@st.composite
def leaves(draw: st.DrawFn, target: Rows, source: Rows | None) -> dict:
    op = draw(st.sampled_from(COMPARISONS))
    pairs = [
        {"op": op, "target-col": t, "source-col": s}
        for t, t_type in target.types().items()
        for s, s_type in (source.types() if source else {}).items()
        if t_type == s_type or rarely(draw)
    ]
    if pairs and draw(st.booleans()):
        return draw(st.sampled_from(pairs))
    side, table = (
        ("source-col", source) if source and draw(st.booleans()) else ("target-col", target)
    )
    name, type_ = draw(st.sampled_from(list(table.types().items())))
    classes = [const for const, types in CLASSES.items() if type_ in types] or ["string"]
    const = classes[0] if not rarely(draw) else draw(st.sampled_from(list(CONSTANTS)))
    if op == "is" and draw(st.booleans()):
        return {"op": op, side: name, "const": {"type": const, "v": None}}
    if const == "string" and draw(st.booleans()):
        op = "has"
    value = draw(st.sampled_from(CONSTANTS[const]))
    return {"op": op, side: name, "const": {"type": const, "v": value}}


def write_tables(path: Path, tables: Tables) -> Path:
    """A `.hyper` file with these tables."""
    with Connection(hyper_process().endpoint, path, CreateMode.CREATE_AND_REPLACE) as connection:
        for schema in {schema for schema, _ in tables}:
            connection.execute_command(f"CREATE SCHEMA IF NOT EXISTS {escape_name(schema)}")
        for (schema, name), table in tables.items():
            columns = ", ".join(
                f"{escape_name(column.name)} {column.type} {'' if column.nullable else 'NOT NULL'}"
                for column in table.columns
            )
            connection.execute_command(f"CREATE TABLE {TableName(schema, name)} ({columns})")
            if table.rows:
                with Inserter(connection, TableName(schema, name)) as inserter:
                    inserter.add_rows(table.rows)
                    inserter.execute()
    return path
