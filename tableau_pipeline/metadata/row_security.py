"""Find the filters and functions in a `.tds` that decide which rows a user sees."""

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

# The functions under "User Functions" in Tableau's help; and ISCURRENTUSER, which Tableau writes
# into the sets of user filters.
_USER_FUNCTION = re.compile(
    r"\b(USERNAME|FULLNAME|ISUSERNAME|ISFULLNAME|ISMEMBEROF|USERDOMAIN|USERATTRIBUTE"
    r"|USERATTRIBUTEINCLUDES|ISCURRENTUSER)\s*\(",
    re.IGNORECASE,
)
# The attribute, with its value, that marks a user filter. A user filter is a set whose members
# differ from user to user.
_USER_FILTER = (f"{{{USER}}}ui-builder", "identity-set")


def row_filters(document: Document) -> Mapping[str, str]:
    """Find the filters and fields that decide which rows a user sees.

    Call `document.resolve` for the root of the document first, because this function compares tags
    without the prefixes of features.

    Returns:
        A digest of each such filter or field; the keys are phrases that name the filter or field. A
        digest changes with the filter itself, and with each formula, group or set that the filter
        uses. It also changes if a field that the filter uses is removed.
    """
    digests: dict[str, str] = defaultdict(str)
    for name, element in _filters(document):
        # Append, because one field may have several filters.
        digests[name] += _digest(document, element)
    return dict(digests)


def _filters(document: Document) -> Iterator[tuple[str, Element]]:
    for child in document.root:
        if child.tag == "filter":
            yield f'the filter on "{_filtered(document, child)}"', child
        elif child.tag == "group" and child.get(_USER_FILTER[0]) == _USER_FILTER[1]:
            yield f'the user filter "{visible_name(child)}"', child
        elif child.tag in ("column", "group") and (function := _user_function(child)):
            yield f'"{visible_name(child)}", which uses {function}()', child


def _filtered(document: Document, element: Element) -> str:
    """Return the name of the field that a filter limits.

    For a column, return its own name, not its caption: refreshes compare the names, and a refresh
    may set the caption.
    """
    shown, columns = document.shown(), {*document.locals.values()}
    fields = (name for name in fields_named(element) if name in shown)
    local = next(fields, element.get("column", ""))
    return unbracketed(local) if local in columns else shown.get(local, unbracketed(local))


def _user_function(element: Element) -> str | None:
    """Return the first user function in the formula of a field or the conditions of a set."""
    definition = _definition(element)
    for part in () if definition is None else definition.iter():
        for key in ("formula", "expression"):
            if match := _USER_FUNCTION.search(bare_formula(part.get(key, ""))):
                return match[1].upper()
    return None


def _definition(element: Element | None) -> Element | None:
    """Return the element that defines a filter, set or field; None for a column of a table."""
    is_field = element is not None and element.tag == "column"
    return element.find("calculation") if is_field else element


def _digest(document: Document, element: Element) -> str:
    """Return a digest of a filter, set or calculated field, including all fields that it uses."""
    shown, fields = document.shown(), {**document.columns, **document.groups}
    text, waiting = _content(_definition(element))
    uses: dict[str, str] = {}
    while waiting:
        local = waiting.pop()
        if local not in uses:
            defined, used = _content(_definition(fields.get(local)))
            uses[local] = defined or str(local in shown)
            waiting += used
    return hashlib.sha256(f"{text}{sorted(uses.items())}".encode()).hexdigest()[:16]


def _content(definition: Element | None) -> tuple[str, list[str]]:
    """Return the text of a definition, and the fields in it; "" and [] if `definition` is None."""
    if definition is None:
        return "", []
    # Canonicalize a serialized copy: serializing adds the namespaces that the document's root
    # declares.
    text = etree.tostring(definition, encoding="unicode", with_tail=False)
    fields = [*fields_in(definition.get("formula", "")), *fields_named(definition)]
    return etree.canonicalize(text, strip_text=True), fields
