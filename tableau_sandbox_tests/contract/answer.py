"""The answer of a server, and what a fact may expect of it."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
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

    def succeeds(self, *statuses: int) -> "Answer":
        """Return itself if it has this status, or one of these; by default 200."""
        assert self.status in (statuses or (200,)), self
        return self

    def is_refused(self, codes: str) -> None:
        """Check that it is a complete error with this code, or one that " or " separates."""
        if self.content[:1] == b"{":
            code = str(self.json().get("errorCode"))
        else:
            error = None if self._tree is None else self._tree.find("error")
            assert error is not None, f"not refused with {codes}: {self}"
            code = error.get("code", "")
            assert error.findtext("summary"), self
            assert error.findtext("detail"), self
        assert code in codes.split(" or "), f"{code} in place of {codes}: {self}"
        assert code.startswith(str(self.status)), self

    def meets(self, expected: str) -> None:
        """Check it against codes, or a status, by default 200, and paths with or without a value.

        For instance "404004", "400000 or 400009", "204", or "201 project@id project@name=Seen".
        """
        if re.match(r"\d{6}", expected):
            self.is_refused(expected)
            return
        *status, paths = re.fullmatch(r"(?:(\d{3})\b)? ?(.*)", expected).groups()
        self.succeeds(*(int(each) for each in status if each))
        for path, _, value in (each.partition("=") for each in paths.split()):
            assert self[path] == (value or self[path]), f"{path} is not {value}: {self}"

    def elements(self, path: str) -> list[Element]:
        """Return all elements at a path below the root of an XML answer."""
        assert self._tree is not None, f"no XML: {self}"
        return self._tree.findall(path)

    def element(self, path: str) -> Element:
        """Return the first element at a path, which must be there."""
        found = self.elements(path)
        assert found, f"no element {path}: {self}"
        return found[0]

    def all(self, path: str) -> list[str | None]:
        """Return the attributes or the texts that a path such as projects/project@id leads to."""
        elements, name = re.fullmatch(r"(.*?)(?:@(\w+))?", path).groups()
        return [each.get(name) if name else each.text for each in self.elements(elements)]

    def get(self, path: str) -> str | None:
        """Return the first of them, or nothing."""
        return next(iter(self.all(path)), None)

    def __getitem__(self, path: str) -> str:
        """Return the first of them, which must be there."""
        found = self.get(path)
        assert found is not None, f"no {path}: {self}"
        return found

    def json(self) -> Any:
        """Return the value of a JSON answer."""
        try:
            return json.loads(self.content)
        except ValueError as error:
            raise AssertionError(f"no JSON: {self}") from error

    @cached_property
    def _tree(self) -> Element | None:
        """The root, with names without namespaces; None if it is no XML."""
        try:
            root = ElementTree.fromstring(self.content, forbid_dtd=True)
        except (ParseError, DefusedXmlException, ValueError):
            return None
        for element in root.iter():
            element.tag = element.tag.removeprefix(_NAMESPACE)
        return root

    def __repr__(self) -> str:
        """Describe it without what it contains, which may be confidential."""
        if self._tree is None:
            return f"{self.status} with {len(self.content)} bytes"
        if (error := self._tree.find("error")) is None:
            return f"{self.status} with {', '.join(child.tag for child in self._tree) or 'nothing'}"
        detail = (error.findtext("detail") or "")[:_LONGEST]
        return f"{self.status} with the error {error.get('code')}: {detail}"
