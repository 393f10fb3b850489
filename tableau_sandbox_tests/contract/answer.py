"""The answer of a server, and what a fact may expect of it."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from xml.etree.ElementTree import Element, ParseError

from defusedxml import ElementTree
from defusedxml.common import DefusedXmlException

_NAMESPACE = "{http://tableau.com/api}"
_LONGEST = 200


@dataclass(frozen=True, repr=False)
class Answer:
    """The answer to one request."""

    status: int
    headers: Mapping[str, str]
    content: bytes

    def succeeds(self, status: int) -> "Answer":
        """Return itself if it has this status."""
        assert self.status == status, self
        return self

    def is_refused(self, *codes: str) -> None:
        """Check that it is an error with one of these codes, complete, with its status."""
        assert self.status >= 400, f"not refused with {' or '.join(codes)}: {self}"
        error = self.root().find("error")
        assert error is not None, self
        assert error.get("code") in codes, self
        assert error.get("code", "").startswith(str(self.status)), self
        assert error.findtext("summary"), self
        assert error.findtext("detail"), self

    def root(self) -> Element:
        """Return the root of an XML answer, with names without namespaces."""
        root = _parsed(self.content)
        assert root is not None, f"no XML: {self}"
        return root

    def element(self, path: str) -> Element:
        """Return the first element at a path below the root."""
        found = self.root().find(path)
        assert found is not None, f"no element {path}: {self}"
        return found

    def elements(self, path: str) -> list[Element]:
        """Return all elements at a path below the root."""
        return self.root().findall(path)

    def json(self) -> Any:
        """Return the value of a JSON answer."""
        try:
            return json.loads(self.content)
        except ValueError as error:
            raise AssertionError(f"no JSON: {self}") from error

    def __repr__(self) -> str:
        """Describe it without what it contains, which may be confidential."""
        root = _parsed(self.content)
        if root is None:
            return f"{self.status} with {len(self.content)} bytes"
        error = root.find("error")
        if error is None:
            names = ", ".join(child.tag for child in root)
            return f"{self.status} with {names or 'nothing'}"
        detail = (error.findtext("detail") or "")[:_LONGEST]
        return f"{self.status} with the error {error.get('code')}: {detail}"


def _parsed(content: bytes) -> Element | None:
    try:
        root = ElementTree.fromstring(content, forbid_dtd=True)
    except (ParseError, DefusedXmlException, ValueError):
        return None
    for element in root.iter():
        element.tag = element.tag.removeprefix(_NAMESPACE)
    return root


def attribute(element: Element, name: str) -> str:
    """Return an attribute, which must be there."""
    value = element.get(name)
    assert value is not None, f"no attribute {element.tag}@{name}"
    return value
