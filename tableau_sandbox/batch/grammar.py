"""The grammar of action batches, which update data: what a batch may contain, and its meaning."""

import math
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, Literal, TypeAlias

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)

from tableau_sandbox.strict_json import JsonError, first_problem, read_json

# Longer conditions crash the engine of real servers.
_MOST_TERMS = 5_000
_DEEPEST = 100
_INTEGER = re.compile(r"[+-]?[0-9]{1,19}")
_DOUBLE = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]{1,4})?")
# Real servers are known to support milliseconds. How they treat finer fractions is unknown.
_DATETIME = re.compile(
    r"(\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2})(\.\d{1,3})?(Z|[+-]\d{2}:?\d{2})", re.ASCII
)
_BEYOND = 1 << 63
# From this number on, floating-point numbers cannot represent all whole numbers.
_EXACT = 1 << 53

Name: TypeAlias = Annotated[str, Field(min_length=1, max_length=255)]
ConstantType: TypeAlias = Literal["boolean", "integer", "double", "string", "datetime"]
Value: TypeAlias = bool | int | float | str | datetime | None
_HINTS = {
    "integer": " of 64 bits",
    "datetime": " with a time zone, such as 2007-12-03T10:15:30Z",
}


class GrammarError(ValueError):
    """A batch cannot be parsed; the message names the place, the key and the value."""


class Side(StrEnum):
    """The table of a column: the published table (target) or the uploaded table (source)."""

    TARGET = "target"
    SOURCE = "source"


class _Part(BaseModel):
    model_config = ConfigDict(
        strict=True,
        extra="forbid",
        frozen=True,
        alias_generator=lambda name: name.replace("_", "-"),
    )


class Constant(_Part):
    """A constant with its exact value. A datetime is in UTC; null is possible for every type."""

    type: ConstantType
    v: Value

    @field_validator("v", mode="plain")
    @classmethod
    def _exactly(cls, written: object, info: ValidationInfo) -> Value:
        type_ = info.data.get("type")
        if written is None or type_ is None:
            return None
        value = _value(type_, written)
        if value is None:
            raise ValueError(f"not of the type {type_}{_HINTS.get(type_, '')}")
        return value


class Comparison(_Part):
    """A comparison of a column with a constant or with a column of the other table."""

    op: Literal["eq", "neq", "gt", "lt", "gte", "lte", "is", "has"]
    target_col: Name = ""
    source_col: Name = ""
    const: Constant | None = None

    @property
    def columns(self) -> dict[Side, str]:
        """The compared columns, one or two, with the target's column first."""
        named = {Side.TARGET: self.target_col, Side.SOURCE: self.source_col}
        return {side: name for side, name in named.items() if name}

    @model_validator(mode="after")
    def _has_two_operands(self) -> "Comparison":
        if "const" not in self.model_fields_set:
            if len(self.columns) != len(Side):
                raise ValueError("a comparison needs two columns, or a column and a constant")
            if self.op == "has":
                raise ValueError("'has' needs a constant to look for")
        elif self.const is None or len(self.columns) != 1:
            raise ValueError("a comparison with a constant needs exactly one column")
        elif self.op == "has" and self.const.type != "string":
            raise ValueError("'has' needs a constant of the type string")
        elif self.const.v is None and self.op != "is":
            raise ValueError("only 'is' can compare with null")
        return self


class Junction(_Part):
    """A combination of conditions: "and" requires all of them, "or" requires one of them."""

    op: Literal["and", "or"]
    args: Annotated[list["Condition"], Field(min_length=1)]


Condition: TypeAlias = Annotated[Junction | Comparison, Field(discriminator="op")]
# This condition represents the constant true: an `and` of no conditions always holds.
ALWAYS = Junction.model_construct(op="and", args=[])


def comparisons(condition: Condition) -> Iterator[Comparison]:
    """Yield the comparisons of a condition in the order of the text."""
    if isinstance(condition, Junction):
        for arg in condition.args:
            yield from comparisons(arg)
    else:
        yield condition


def columns_of(condition: Condition, side: Side) -> set[str]:
    """Return the columns of one table that a condition uses."""
    used = (comparison.columns.get(side) for comparison in comparisons(condition))
    return {name for name in used if name}


def column_pairs(condition: Condition) -> list[Comparison]:
    """Return the comparisons of a target column with a source column."""
    return [comparison for comparison in comparisons(condition) if comparison.const is None]


def _whole(written: object) -> object:
    """Replace the constant true by a condition; refuse a condition that is too long or too deep."""
    if written is True:
        return ALWAYS
    terms, level = 0, [written]
    for _ in range(_DEEPEST + 1):
        inner = [part.get("args") for part in level if isinstance(part, dict)]
        terms += len(level) - sum(isinstance(args, list) for args in inner)
        level = [arg for args in inner if isinstance(args, list) for arg in args]
    if level:
        raise ValueError(f"the condition has more than {_DEEPEST} levels")
    if terms > _MOST_TERMS:
        raise ValueError(f"the condition has {terms} terms, more than {_MOST_TERMS}")
    return written


_Whole: TypeAlias = Annotated[Condition, BeforeValidator(_whole)]


class _Action(_Part):
    """An action on a table. The schema may be omitted if only one schema has tables."""

    target_schema: Name = ""
    target_table: Name
    source_schema: Name = ""
    source_table: Name
    # Tableau's schema has this key, but its guide does not mention it. The key has no effect.
    source_file: Name = ""


class Insertion(_Action):
    """Inserts all rows of the source; "replace" first deletes all rows of the target."""

    action: Literal["insert", "replace"]

    @property
    def condition(self) -> Condition:
        """The condition that always holds: the action inserts every row."""
        return ALWAYS


class Update(_Action):
    """Changes the target rows that match a source row."""

    action: Literal["update"]
    condition: _Whole


class Upsert(_Action):
    """Changes the target rows that match a source row, and inserts the source rows without a match.

    The accepted conditions ensure that source rows with different keys never match the same target
    row. The columns of a key may have different names in the two tables. Comparisons with constants
    restrict the rows that match.
    """

    action: Literal["upsert"]
    condition: _Whole

    @field_validator("condition")
    @classmethod
    def _determines_rows(cls, condition: Condition) -> Condition:
        if not _is_conjunction(condition):
            raise ValueError("an 'upsert' may combine comparisons by 'and' only")
        if any(found.op not in ("eq", "is") for found in comparisons(condition)):
            raise ValueError("an 'upsert' may compare by 'eq' and 'is' only")
        if not column_pairs(condition):
            raise ValueError("an 'upsert' must compare key columns of the two tables")
        return condition


class Delete(_Action):
    """Deletes target rows. With a source, the condition must hold for at least one source row."""

    action: Literal["delete"]
    source_table: Name = ""
    condition: _Whole

    @model_validator(mode="after")
    def _has_its_source(self) -> "Delete":
        if self.source_table:
            return self
        if self.source_schema:
            raise ValueError("a 'source-schema' needs a 'source-table'")
        if columns_of(self.condition, Side.SOURCE):
            raise ValueError("a condition with a 'source-col' needs a 'source-table'")
        return self


Action: TypeAlias = Annotated[Insertion | Update | Upsert | Delete, Field(discriminator="action")]


class Batch(_Part):
    """Actions in the order of their application. If an action fails, no action takes effect."""

    actions: Annotated[list[Action], Field(min_length=1)]

    @property
    def needs_payload(self) -> bool:
        """Whether an action reads from an uploaded file."""
        return any(action.source_table for action in self.actions)


def parse_batch(body: bytes) -> Batch:
    """Parse the body of a request as a batch.

    Raises:
        GrammarError: the body is not a batch.
    """
    try:
        return Batch.model_validate(read_json(body))
    except JsonError as error:
        raise GrammarError(str(error)) from error
    except ValidationError as error:
        raise GrammarError(first_problem(error)) from error


def _is_conjunction(condition: Condition) -> bool:
    if isinstance(condition, Junction):
        return condition.op == "and" and all(map(_is_conjunction, condition.args))
    return True


def _value(type_: ConstantType, written: object) -> Value:
    """Return `written` as a value of this type, or None if no value of the type equals it."""
    if type_ == "string":
        return written if isinstance(written, str) else None
    if type_ == "boolean":
        if isinstance(written, bool):
            return written
        return {"true": True, "false": False}.get(str(written).lower())
    if type_ == "datetime":
        return _moment(written)
    number = _number(type_, written)
    if isinstance(number, int):
        return number if -_BEYOND <= number < _BEYOND else None
    return number if number is not None and math.isfinite(number) else None


def _number(type_: ConstantType, written: object) -> int | float | None:
    read, form = (int, _INTEGER) if type_ == "integer" else (float, _DOUBLE)
    if isinstance(written, str):
        return read(written) if form.fullmatch(written) else None
    if isinstance(written, bool) or not isinstance(written, int | float):
        return None
    # A whole number counts as an integer and as a double, whether it is written as 1 or as 1.0.
    if isinstance(written, read) or (written == written // 1 and abs(written) < _EXACT):
        return read(written)
    return None


def _moment(written: object) -> datetime | None:
    match = _DATETIME.fullmatch(written) if isinstance(written, str) else None
    if match is None:
        return None
    text = "".join(part or "" for part in match.groups())
    try:
        return datetime.fromisoformat(text).astimezone(UTC)
    except (ValueError, OverflowError):
        return None
