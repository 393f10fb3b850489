"""Looking things up by name."""

from collections.abc import Iterator
from typing import Any

import tableauserverclient as TSC

# The most that Tableau gives at a time.
_PAGE_SIZE = 1000
_NOT_IN_FILTERS = frozenset(",&:[]")


def every(endpoint: Any, options: TSC.RequestOptions | None = None) -> Iterator[Any]:
    """The items of a TSC endpoint, page by page.

    TSC's own `filter()` and `all()` take most errors for the end of the list: to them, a server
    that is too busy to answer has no data source of that name.
    """
    options = options or TSC.RequestOptions()
    options.pagesize = _PAGE_SIZE
    yield from TSC.Pager(endpoint, options)


def named(endpoint: Any, name: str) -> Iterator[Any]:
    """The items of a TSC endpoint that may have this name; callers compare for themselves.

    First those that the server finds by it, then all: names that differ in case only are the same
    to Tableau, but not to its filters, and some names cannot be written in a filter.
    """
    if not _NOT_IN_FILTERS & set(name):
        options = TSC.RequestOptions()
        options.filter.add(
            TSC.Filter(TSC.RequestOptions.Field.Name, TSC.RequestOptions.Operator.Equals, name)
        )
        yield from every(endpoint, options)
    yield from every(endpoint)


def same_name(one: str | None, other: str | None) -> bool:
    """Whether Tableau takes two names for the same."""
    return (one or "").casefold() == (other or "").casefold()
