"""What answers to calls of older API versions lack."""

import re
from collections.abc import Iterable
from dataclasses import replace

from tableau_sandbox.rest.wire.elements import Element

# A client that fails at any attribute it does not know is in use with version 3.18, and knows none
# of these. When exactly they came is not documented.
_SINCE = {
    ("datasource", "size"): (3, 19),
    ("owner", "name"): (3, 19),
    ("owner", "fullName"): (3, 19),
    ("contentsCounts", "dataSourceCount"): (3, 19),
}


def as_of(elements: Iterable[Element], path: str) -> tuple[Element, ...]:
    """Return elements without what is newer than the API version in the path of the call."""
    found = re.match(r"/+api/+(\d{1,3})\.(\d{1,3})/", path)
    if found is None:
        return tuple(elements)
    return tuple(_as_of(element, (int(found[1]), int(found[2]))) for element in elements)


def _as_of(element: Element, version: tuple[int, int]) -> Element:
    if version >= max(_SINCE.values()):
        return element
    attributes = {
        name: value
        for name, value in element.attributes.items()
        if version >= _SINCE.get((element.name, name), version)
    }
    children = tuple(_as_of(child, version) for child in element.children)
    return replace(element, attributes=attributes, children=children)
