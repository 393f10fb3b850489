"""Columns in conditions: `target("a") == source("a")`."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from tableauhyperapi import TableName

from tableau_pipeline.actions.conditions import (
    NULL,
    Condition,
    Constant,
    ConstantType,
    Junction,
    Op,
    Predicate,
    Side,
    Value,
    checked_name,
    columns_of,
    constant,
    predicates,
    schema_and_table,
)
from tableau_pipeline.errors import BatchError
from tableau_pipeline.hyper.types import is_collated, type_family

_MIRRORED = {Op.GT: Op.LT, Op.LT: Op.GT, Op.GTE: Op.LTE, Op.LTE: Op.GTE}


@dataclass(frozen=True, eq=False)
class ColumnRef:
    """A column, to be compared with a column of the other table or with a constant.

    `==`, `!=`, `<`, `<=`, `>` and `>=` return conditions, and raise `BatchError` for values that
    cannot be compared. As in SQL, a comparison with NULL never holds.
    """

    side: Side
    name: str

    def __post_init__(self) -> None:
        checked_name(self.name, what=f"the {self.side} column")

    def __eq__(self, other: "ColumnRef | Value") -> Predicate:  # ty: ignore[incompatible-method-override]
        return self._compare(Op.EQ, other)

    def __ne__(self, other: "ColumnRef | Value") -> Predicate:  # ty: ignore[incompatible-method-override]
        return self._compare(Op.NEQ, other)

    def __lt__(self, other: "ColumnRef | Value") -> Predicate:
        return self._compare(Op.LT, other)

    def __le__(self, other: "ColumnRef | Value") -> Predicate:
        return self._compare(Op.LTE, other)

    def __gt__(self, other: "ColumnRef | Value") -> Predicate:
        return self._compare(Op.GT, other)

    def __ge__(self, other: "ColumnRef | Value") -> Predicate:
        return self._compare(Op.GTE, other)

    __hash__ = None  # == returns a condition, which sets and dictionaries cannot use

    def is_(self, other: "ColumnRef | Value | None") -> Predicate:
        """Compare like `==`, but NULL equals NULL.

        Raises:
            BatchError: the values cannot be compared.
        """
        return self.is_null() if other is None else self._compare(Op.IS, other)

    def is_null(self) -> Predicate:
        """Return a condition that holds where the column is NULL."""
        return self._with(Op.IS, NULL)

    def has(self, text: str) -> Predicate:
        """Return a condition that holds where the column contains the text.

        Raises:
            BatchError: the value is not a text.
        """
        found = constant(text, column=str(self))
        if found.type != "string":
            raise BatchError(f"{self}.has() looks for a text, not for {text!r:.100}")
        return self._with(Op.HAS, found)

    def __str__(self) -> str:
        return f'{self.side}("{self.name}")'

    def _compare(self, op: Op, other: object) -> Predicate:
        if not isinstance(other, ColumnRef):
            return self._with(op, constant(other, column=str(self)))
        if other.side is self.side:
            raise BatchError(
                f"{self} cannot be compared with {other}: a condition compares a column of the "
                "target with a column of the source, or a column with a constant"
            )
        if self.side is Side.TARGET:
            return Predicate(op, target=self.name, source=other.name)
        # An action always puts the column of the target first, so source < target becomes
        # target > source.
        return Predicate(_MIRRORED.get(op, op), target=other.name, source=self.name)

    def _with(self, op: Op, value: Constant) -> Predicate:
        if self.side is Side.TARGET:
            return Predicate(op, target=self.name, constant=value)
        return Predicate(op, source=self.name, constant=value)


def target(column: str) -> ColumnRef:
    """Refer to a column of the published table.

    Raises:
        BatchError: the name is not valid for a column.
    """
    return ColumnRef(Side.TARGET, column)


def source(column: str) -> ColumnRef:
    """Refer to a column of the uploaded table.

    Raises:
        BatchError: the name is not valid for a column.
    """
    return ColumnRef(Side.SOURCE, column)


# The tables of a file, each with the SQL types of its columns.
Tables = Mapping[TableName, Mapping[str, str]]

_MOST_LISTED = 10


@dataclass(frozen=True)
class KnownTable:
    """A table that exists.

    Attributes:
        side: the file that holds it.
        name: the name of the table, with its schema.
        types: the SQL types of its columns by name.
    """

    side: Side
    name: TableName
    types: Mapping[str, str]

    def __str__(self) -> str:
        return f"the {self.side} table {self.name}"


def find_table(tables: Tables, side: Side, name: TableName | str) -> KnownTable:
    """Find the table of a file that an action names.

    Raises:
        BatchError: there is none, or the schema is needed to identify it.
    """
    known = {schema_and_table(table, what=f"a {side} table"): table for table in tables}
    schema, table = schema_and_table(name, what=f"the {side} table")
    if schema is None:
        schema = _only_schema(known, side, table)
    found = known.get((schema, table))
    if found is None:
        wanted = TableName(table) if schema is None else TableName(schema, table)
        raise BatchError(
            f"the {side} has no table {wanted}; it has "
            f"{listed(map(str, tables)) or 'no tables at all'} (names are exact, also in case)"
        )
    return KnownTable(side, found, tables[found])


def check_types(tables: Tables) -> None:
    """Refuse unknown types.

    Raises:
        ValueError: a type is not spelled as `table_columns` spells it.
    """
    for table, types in tables.items():
        for column, sql in types.items():
            try:
                type_family(sql)
            except ValueError as error:
                raise ValueError(f'{table}, column "{column}": {error}') from None


def listed(names: Iterable[str]) -> str:
    """List names in a sentence; only the first ones if there are many."""
    names = list(names)
    more = len(names) - _MOST_LISTED
    return ", ".join(names[:_MOST_LISTED]) + (f" and {more} more" if more > 0 else "")


def _only_schema(known: Iterable[tuple[str | None, str]], side: Side, table: str) -> str | None:
    # The key is needed because None, for no schema, does not compare with text.
    schemas = sorted({schema for schema, _ in known}, key=str)
    if len(schemas) > 1:
        raise BatchError(
            f"the {side} holds tables in several schemas, {listed(map(str, schemas))}: name one, "
            f'as in TableName("{schemas[0]}", "{table}")'
        )
    return schemas[0] if schemas else None


def column_problems(
    verb: str, target: KnownTable, source: KnownTable, where: Condition | None
) -> Iterator[str]:
    """Yield why the columns of the source do not fit an action on the target.

    Columns are found by exact name, and have equal types.
    """
    used = columns_of(where, Side.SOURCE)
    if verb == "delete":
        # A source has nothing but what identifies the rows to delete.
        if unused := [name for name in source.types if name not in used]:
            yield (
                f"{source} has {_described(source, unused)}, which the condition does not use: "
                f"remove it from the payload, or compare it with a column of {target}"
            )
        return
    missing = [name for name in target.types if name not in source.types]
    if missing and verb != "update":
        yield (
            f"{source} lacks {_described(target, missing)} of {target}: add it to the payload, "
            "NULL where there is no value"
        )
    if len(missing) == len(target.types) and verb in ("update", "upsert"):
        yield (
            f"{source} has no column of {target}, so there is nothing to set: use the same "
            "column names"
        )
    # A column that the condition names may be there to find rows only; it is not copied.
    extra = [name for name in source.types if name not in target.types and name not in used]
    if extra:
        yield (
            f"{source} has {_described(source, extra)}, which {target} lacks: remove it from the "
            "payload, or publish a file that has it"
        )
    for name, type_ in target.types.items():
        if name in source.types and source.types[name] != type_:
            yield (
                f'column "{name}" is {type_} in {target} and {source.types[name]} in {source}: '
                f"cast it to {type_} in the payload"
            )


def _described(table: KnownTable, columns: list[str]) -> str:
    return listed(f'"{name}" ({table.types[name]})' for name in columns)


_CONSTANTS: dict[str, ConstantType] = {
    **dict.fromkeys(("SMALLINT", "INTEGER", "BIGINT"), "integer"),
    **dict.fromkeys(("DOUBLE PRECISION", "NUMERIC", "REAL"), "double"),
    **dict.fromkeys(("TEXT", "VARCHAR", "CHAR"), "string"),
    **dict.fromkeys(("DATE", "TIMESTAMP", "TIMESTAMPTZ"), "datetime"),
    "BOOLEAN": "boolean",
}
_IN_PYTHON: dict[ConstantType | None, str] = {
    "integer": "write it as int, such as 5",
    "double": "write it as float, such as 5.0",
    "string": "write it as str",
    "datetime": "write it as datetime with a time zone",
    "boolean": "write it as bool",
    None: "put the values into a small table of the payload, and compare with its column",
}
_INCOMPARABLE = frozenset({"INTERVAL", "JSON", "GEOGRAPHY", "UNSUPPORTED"})
_EQUALITY = frozenset({Op.EQ, Op.NEQ, Op.IS})
_ORDER = _EQUALITY | {Op.LT, Op.LTE, Op.GT, Op.GTE}


def comparison_problems(
    condition: Condition | None, tables: Mapping[Side, KnownTable]
) -> Iterator[str]:
    """Yield why the comparisons of a condition do not fit the columns of its tables.

    Only equal types do, as the engine would otherwise convert silently.
    """
    for predicate in predicates(condition):
        missing = [
            (side, name) for side, name in predicate.columns if name not in tables[side].types
        ]
        for side, name in missing:
            had = listed(f'"{each}"' for each in tables[side].types)
            yield f'{tables[side]} has no column "{name}", which the condition names; it has {had}'
        if not missing and (problem := _problem(predicate, tables)):
            yield f"{predicate}: {problem}"


def _problem(predicate: Predicate, tables: Mapping[Side, KnownTable]) -> str | None:
    types = [tables[side].types[name] for side, name in predicate.columns]
    described = ", ".join(
        f'"{name}" of {tables[side]} is {type_}'
        for (side, name), type_ in zip(predicate.columns, types, strict=True)
    )
    if len(set(types)) > 1:
        return f"{described}; cast the column in the payload"
    (type_,) = set(types)
    constant = predicate.constant
    if constant is not None and constant.text is None:
        return None
    fitting = _CONSTANTS.get(type_family(type_))
    if constant is not None and constant.type != fitting:
        return f"{described}, the constant of type {constant.type}; {_IN_PYTHON[fitting]}"
    if predicate.op not in _operators(type_):
        allowed = ", ".join(op.symbol for op in Op if op in _operators(type_))
        return (
            f"{described}, which supports {allowed or 'only .is_null()'}: use another column or "
            "operator"
        )
    return None


def _operators(type_: str) -> frozenset[Op]:
    family = type_family(type_)
    if family in _INCOMPARABLE:
        return frozenset()
    if family == "BYTES" or is_collated(type_):
        return _EQUALITY
    return _ORDER | {Op.HAS} if _CONSTANTS.get(family) == "string" else _ORDER


def upsert_problem(condition: Condition | None) -> str | None:
    """Return why a condition does not determine which rows an upsert updates and inserts.

    The columns of a key may have different names in the two tables. Constants restrict the rows
    that match; a source row without a match is inserted.
    """
    is_and = isinstance(condition, Junction) and condition.joint == "and"
    if not all(isinstance(each, Predicate) for each in (condition.args if is_and else [condition])):
        return 'its condition must be key comparisons, target("k") == source("k"), combined by &'
    if any(each.op not in (Op.EQ, Op.IS) for each in predicates(condition)):
        return "its condition may compare by == and .is_() only: it finds rows by a key"
    if all(each.constant is not None for each in predicates(condition)):
        return "its condition must compare a key column of the target with one of the source"
    return None
