"""Answer list queries as the API does: filtered, sorted, and page by page."""

import operator
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Generic, TypeVar
from xml.etree.ElementTree import Element

from tableau_sandbox.clock import stamp
from tableau_sandbox.errors import refusal
from tableau_sandbox.rest.answers import Reply, element
from tableau_sandbox.services import Services

_LARGEST_PAGE = 1000
# Stamps are compared as text, and this text is greater than all stamps.
_ALL = "9"
_COMPARISONS = ("eq", "gt", "gte", "lt", "lte")
_T = TypeVar("_T")


@dataclass(frozen=True)
class Field(Generic[_T]):
    """A field by which a list can be filtered and sorted.

    Attributes:
        read: returns the values of an item: several for tags, none if the item lacks the field.
        operators: the operators that the field supports.
        any_case: whether equality ignores case.
        parse: converts values for comparison; if it raises a ValueError, the filter is refused.
    """

    read: Callable[[_T], Sequence[str]]
    operators: Collection[str]
    any_case: bool = False
    parse: Callable[[str], Any] = str

    def values(self, item: _T) -> list[Any]:
        """Return the values of one item, converted for comparison."""
        return [self.parse(value) for value in self.read(item)]


def text_field(
    read: Callable[[_T], str | None],
    *,
    any_case: bool = False,
    operators: Collection[str] = ("eq", "in"),
) -> Field[_T]:
    """Return a field for text; `read` returns the text of an item, or None."""
    return Field(_one(read), operators, any_case)


def flag_field(read: Callable[[_T], bool]) -> Field[_T]:
    """Return a field for flags; `read` returns the flag of an item."""
    return Field(lambda item: (str(read(item)).lower(),), ("eq",), parse=_flag)


def time_field(read: Callable[[_T], str | None]) -> Field[_T]:
    """Return a field for times; `read` returns the time of an item, or None."""
    return Field(_one(read), _COMPARISONS, parse=_moment)


def number_field(read: Callable[[_T], int]) -> Field[_T]:
    """Return a field for whole numbers; `read` returns the number of an item."""
    return Field(lambda item: (str(read(item)),), _COMPARISONS, parse=int)


def _one(read: Callable[[_T], str | None]) -> Callable[[_T], Sequence[str]]:
    def values(item: _T) -> Sequence[str]:
        value = read(item)
        return () if value is None else (value,)

    return values


def _flag(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError("it is neither true nor false")
    return text.lower() == "true"


def _moment(text: str) -> datetime:
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError("it has no zone")
    return moment


def listed_since(services: Services) -> str:
    """Return the time up to which lists show objects; lists omit objects created later."""
    lag = services.options.index_lag_seconds
    return stamp(services.clock() - timedelta(seconds=lag)) if lag else _ALL


def list_page(
    items: Sequence[_T],
    query: Mapping[str, str],
    *,
    name: str,
    write: Callable[[_T], Element],
    fields: Mapping[str, Field[_T]] | None = None,
) -> Reply:
    """Return the answer to a list query: the element `pagination`, and the list called `name`.

    Args:
        items: all items, in their usual order.
        query: the query parameters.
        name: the name of the list.
        write: returns the element of an item.
        fields: the fields by which the list can be filtered and sorted.

    Raises:
        RestError: 400006, 400007, 403014 or 400065: the page, its size, the filter or the order is
            invalid.
    """
    fields = fields or {}
    clauses = [_clause(part, fields=fields) for part in _split(query.get("filter", ""))]
    chosen = [item for item in items if all(clause(item) for clause in clauses)]
    for reading, descending in _order(query.get("sort", ""), fields=fields):
        chosen.sort(key=reading.values, reverse=descending)
    number, size = _page(query)
    # The first page exists even if it is empty.
    if number > 1 and (number - 1) * size >= len(chosen):
        raise refusal("400006", f"Page number {number} is beyond the last page.")
    pagination = {"pageNumber": number, "pageSize": size, "totalAvailable": len(chosen)}
    shown = chosen[(number - 1) * size : number * size]
    return Reply(200, element("pagination", pagination), element(name, None, *map(write, shown)))


def _page(query: Mapping[str, str]) -> tuple[int, int]:
    size = _integer(query.get("pageSize", "100"), code="400007", what="page size")
    number = _integer(query.get("pageNumber", "1"), code="400006", what="page number")
    if size > _LARGEST_PAGE:
        raise refusal("403014", f"The page size {size} is above the maximum of {_LARGEST_PAGE}.")
    return number, size


def _integer(text: str, *, code: str, what: str) -> int:
    if not re.fullmatch(r"[0-9]{1,9}", text) or int(text) < 1:
        raise refusal(code, f"The {what} '{text}' must be a whole number above zero.")
    return int(text)


def _split(text: str) -> list[str]:
    """Split a filter into its clauses, at commas outside the brackets of a list.

    This reads each character once. A regular expression with a lookahead would take seconds for a
    text of many commas.
    """
    clauses, begin, inside = [], 0, False
    for mark in re.finditer(r"[\[\],]", text):
        if mark.group() != ",":
            inside = mark.group() == "["
        elif not inside:
            clauses.append(text[begin : mark.start()])
            begin = mark.end()
    if not text:
        return []
    rest = text[begin:]
    # A bracket without a closing bracket does not begin a list.
    return [*clauses, *(rest.split(",") if inside else [rest])]


def _clause(text: str, *, fields: Mapping[str, Field[_T]]) -> Callable[[_T], bool]:
    name, how, value = (*text.split(":", 2), "", "")[:3]
    if name not in fields:
        raise refusal(
            "400065",
            "The filter query contains a key which is not recognized for this api version."
            f" (key: '{name}')",
        )
    chosen = fields[name]
    if how not in chosen.operators:
        raise refusal("400065", f"The filter query has an operator unknown for '{name}': '{how}'.")
    is_pattern = how == "eq" and chosen.parse is str and "*" in value
    test = _matches if is_pattern else _OPERATORS[how]
    fold = str.casefold if chosen.any_case else str
    try:
        wanted = chosen.parse(fold(value))
    except ValueError as error:
        raise refusal("400065", f"'{value}' is not a value for '{name}'.") from error
    return lambda item: any(test(chosen.parse(fold(found)), wanted) for found in chosen.read(item))


def _order(text: str, *, fields: Mapping[str, Field[_T]]) -> list[tuple[Field[_T], bool]]:
    """Return pairs, last key first: a field to sort by, and whether its order is descending.

    The caller sorts by one field after another. Sorting is stable, so the last sort counts most.
    """
    order = []
    for part in filter(None, text.split(",")):
        name, _, direction = part.partition(":")
        if name not in fields or direction not in ("", "asc", "desc"):
            raise refusal("400065", f"The sort expression '{part}' is not recognized.")
        order.append((fields[name], direction == "desc"))
    return order[::-1]


def _listed(found: str, wanted: str) -> bool:
    return found in [value.strip() for value in wanted.strip("[]").split(",")]


def _matches(found: str, pattern: str) -> bool:
    """Whether a text matches a pattern, in which each asterisk matches any text."""
    first, *others = pattern.split("*")
    *middle, last = others
    # Search the parts one after another, because a regular expression could take seconds.
    begin, end = len(first), len(found) - len(last)
    if begin > end or not (found.startswith(first) and found.endswith(last)):
        return False
    for part in middle:
        if (at := found.find(part, begin, end)) < 0:
            return False
        begin = at + len(part)
    return True


_OPERATORS: Mapping[str, Callable[[Any, Any], bool]] = {
    "eq": operator.eq,
    "has": operator.contains,
    "in": _listed,
    "gt": operator.gt,
    "gte": operator.ge,
    "lt": operator.lt,
    "lte": operator.le,
}
