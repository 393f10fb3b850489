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


class Deviation(Exception):  # noqa: N818 - a finding, not an error
    """A server does something else than a fact says.

    Attributes:
        expected: what the fact says.
        got: what the server did.
    """

    def __init__(self, expected: object, got: object):
        super().__init__(f"expected {expected}, got {got}")
        self.expected = str(expected)
        self.got = str(got)


class NotShown(Exception):  # noqa: N818
    """A site lacks what it takes to check a fact; the message says what."""


def expect(expected: object, got: object) -> None:
    """Compare two values.

    Raises:
        Deviation: they differ.
    """
    if got != expected:
        raise Deviation(expected, got)


def expect_that(holds: object, expected: object, got: object) -> None:
    """Check a condition; the other two values describe it.

    Raises:
        Deviation: it does not hold.
    """
    if not holds:
        raise Deviation(expected, got)


@dataclass(frozen=True)
class Answer:
    """The answer to one request."""

    status: int
    headers: Mapping[str, str]
    content: bytes

    def succeeds(self, status: int) -> "Answer":
        """Return itself if it has this status.

        Raises:
            Deviation: it has another one.
        """
        expect_that(self.status == status, status, self)
        return self

    def is_refused(self, *codes: str) -> None:
        """Check that it is an error with one of these codes, complete, and with the status of it.

        Raises:
            Deviation: it is something else.
        """
        expected = f"an error {' or '.join(codes)}"
        expect_that(self.status >= 400, expected, self)
        error = self.root().find("error")
        if error is None or error.get("code") not in codes:
            raise Deviation(expected, self)
        for part in ("summary", "detail"):
            expect_that(error.findtext(part), f"an error with a {part}", self)
        code = error.get("code", "")
        expect_that(code.startswith(str(self.status)), f"the status of {code}", self.status)

    def root(self) -> Element:
        """Return the root of an XML answer, with names without namespaces.

        Raises:
            Deviation: it is no XML.
        """
        root = _parsed(self.content)
        if root is None:
            raise Deviation("an answer in XML", self)
        return root

    def element(self, path: str) -> Element:
        """Return the first element at a path below the root.

        Raises:
            Deviation: there is none.
        """
        found = self.root().find(path)
        if found is None:
            raise Deviation(f"an element {path}", self)
        return found

    def elements(self, path: str) -> list[Element]:
        """Return all elements at a path below the root."""
        return self.root().findall(path)

    def json(self) -> Any:
        """Return the value of a JSON answer.

        Raises:
            Deviation: it is no JSON.
        """
        try:
            return json.loads(self.content)
        except ValueError as error:
            raise Deviation("an answer in JSON", self) from error

    def __str__(self) -> str:
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
    """Return an attribute.

    Raises:
        Deviation: the element lacks it.
    """
    value = element.get(name)
    if value is None:
        raise Deviation(f"an attribute {element.tag}@{name}", "none")
    return value
