"""Looking things up by name."""

from collections.abc import Iterator
from typing import Any


def named(endpoint: Any, name: str) -> Iterator[Any]:
    """The items of a TSC endpoint that may have this name; callers compare for themselves.

    Filters of Tableau's REST API have no way to write a comma or an ampersand in a value: such
    a name is looked for among all items.
    """
    query = endpoint.all() if set(name) & set(",&") else endpoint.filter(name=name)
    yield from query
