"""Look up items by name."""

from collections.abc import Iterator
from typing import Any

import tableauserverclient as TSC
from tableauserverclient.server.endpoint.exceptions import NonXMLResponseError

# The largest page that Tableau returns.
_PAGE_SIZE = 1000
# No site has a million items of a kind.
_MOST_PAGES = 1000
# In a filter these characters end a value or begin another one.
_NOT_IN_FILTERS = frozenset(",&:[]")


def every(endpoint: Any, options: TSC.RequestOptions | None = None) -> Iterator[Any]:
    """Yield the items of a TSC endpoint, page by page.

    TSC's own `filter()` and `all()` treat most errors as the end of the list. With them, a data
    source would seem not to exist when the server is merely too busy to answer. Its `Pager` would
    ask a server that counts wrong for ever.
    """
    options = options or TSC.RequestOptions()
    options.pagesize = _PAGE_SIZE
    page_of = getattr(endpoint, "get", endpoint)
    for number in range(1, _MOST_PAGES + 1):
        options.pagenumber = number
        items, page = page_of(options)
        yield from items
        if page.page_size * number >= page.total_available:
            return
        if page.page_size < 1 or not items:
            break
    raise NonXMLResponseError(
        f"page {number} of a list has {len(items)} items, and {page.total_available} are said to be"
    )


def named(endpoint: Any, name: str) -> Iterator[Any]:
    """Yield the items of a TSC endpoint that may have this name; callers compare names themselves.

    It yields the matches of the server's filter first, then all items: to Tableau names that differ
    only in case are equal, but not to its filters, and a filter cannot contain every name.
    """
    if not _NOT_IN_FILTERS & set(name):
        options = TSC.RequestOptions()
        options.filter.add(
            TSC.Filter(TSC.RequestOptions.Field.Name, TSC.RequestOptions.Operator.Equals, name)
        )
        yield from every(endpoint, options)
    yield from every(endpoint)


def same_name(one: str | None, other: str | None) -> bool:
    """Whether two names are equal to Tableau."""
    return (one or "").casefold() == (other or "").casefold()
