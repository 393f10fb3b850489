"""What in a `.tds` decides which rows each user sees: filters, user filters and user functions."""

import hashlib
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping

from lxml import etree
from lxml.etree import _Element as Element

from tableau_pipeline.metadata.document import (
    USER,
    Document,
    bare_formula,
    fields_in,
    fields_named,
    unbracketed,
    visible_name,
)

# From Tableau's help, "User Functions".
_USER_FUNCTION = re.compile(
    r"\b(USERNAME|FULLNAME|ISUSERNAME|ISFULLNAME|ISMEMBEROF|USERDOMAIN|USERATTRIBUTE"
    r"|USERATTRIBUTEINCLUDES)\s*\(",
    re.IGNORECASE,
)
# Marks a set whose members are chosen by user, which Tableau calls a user filter.
_USER_FILTER = (f"{{{USER}}}ui-builder", "identity-set")


def row_filters(document: Document) -> Mapping[str, str]:
    """Find in a resolved document what decides which rows a user sees.

    Returns:
        A digest of each such filter or field; the keys are phrases that name it. The digest changes
        with the filter, with the formulas that it uses, and if a field that it uses is gone.
    """
    digests: dict[str, str] = defaultdict(str)
    for name, element in _filters(document):
        # One field may have several filters.
        digests[name] += _digest(document, element)
    return dict(digests)


def _filters(document: Document) -> Iterator[tuple[str, Element]]:
    shown = document.shown()
    for child in document.root:
        function = _USER_FUNCTION.search(bare_formula(_formula(child)))
        if child.tag == "filter":
            names = [*fields_named(child)]
            local = next((name for name in names if name in shown), names[0] if names else "")
            yield f'the filter on "{shown.get(local, unbracketed(local))}"', child
        elif child.tag == "group" and child.get(_USER_FILTER[0]) == _USER_FILTER[1]:
            yield f'the user filter "{visible_name(child)}"', child
        elif function:
            yield f'"{visible_name(child)}", which uses {function[1].upper()}()', child


def _formula(element: Element | None) -> str:
    inner = None if element is None else element.find("calculation")
    return "" if inner is None else inner.get("formula", "")


def _digest(document: Document, element: Element) -> str:
    """Return a digest of a filter, or of the formula of a field, and of all fields that it uses."""
    is_field, shown = element.tag == "column", document.shown()
    text = _formula(element) if is_field else etree.canonicalize(element, strip_text=True)
    waiting = [*(fields_in(text) if is_field else fields_named(element))]
    uses: dict[str, str] = {}
    while waiting:
        local = waiting.pop()
        if local not in uses:
            uses[local] = _formula(document.columns.get(local)) or str(local in shown)
            waiting += fields_in(uses[local])
    return hashlib.sha256(f"{text}{sorted(uses.items())}".encode()).hexdigest()[:16]
