"""Parse request bodies: XML and JSON read safely, and the values that handlers need."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from xml.etree.ElementTree import Element, ParseError

from defusedxml import ElementTree
from defusedxml.common import DefusedXmlException

from tableau_sandbox.errors import RestError, malformed, refusal
from tableau_sandbox.rest.wire.elements import NAMESPACE
from tableau_sandbox.rest.wire.json_requests import request_tree
from tableau_sandbox.store.records import Session, Site, User


@dataclass(frozen=True)
class Attachment:
    """A file that came with a request, stored where its handler can use it.

    Attributes:
        filename: the client's file name, of which only the suffix is used.
        path: the path of the stored file.
        size: in bytes.
    """

    filename: str
    path: Path
    size: int


@dataclass(frozen=True, kw_only=True)
class Call:
    """A parsed request.

    Attributes:
        path: the variable parts of the path, by name, decoded.
        query: the query parameters; the last one counts.
        body: the body, or the `request_payload` part of a multipart body.
        attachment: the file part of a multipart body.
        headers: the headers, their names in any case of letters.
        base_url: the URL by which the client reaches the sandbox.
        session: the session of the request; None only where no sign-in is required.
    """

    path: Mapping[str, str]
    query: Mapping[str, str]
    body: bytes = b""
    attachment: Attachment | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    base_url: str = ""
    opened: Session | None = field(default=None)

    @property
    def session(self) -> Session:
        """The session of the request.

        Raises:
            RestError: 401000, it has no session.
        """
        if self.opened is None:
            raise refusal("401000", "No authentication credentials were provided.")
        return self.opened

    @property
    def user(self) -> User:
        """The user who makes the request."""
        return self.session.user

    @property
    def site(self) -> Site:
        """The site of the request."""
        return self.session.site

    def flag(self, name: str, *, default: bool = False) -> bool:
        """Return a query parameter that is true or false.

        Raises:
            RestError: 400008, it is neither.
        """
        value = self.query.get(name, str(default)).lower()
        if value not in ("true", "false"):
            raise refusal("400008", f"The query parameter '{name}' must be true or false.")
        return value == "true"


def parse_request(body: bytes, child: str) -> Element:
    """Return the element `child` of a request in XML or JSON, with names without namespaces.

    Raises:
        RestError: 400000, the body is not such a request.
    """
    found = optional_request(body, child)
    if found is None:
        raise _lacks(child)
    return found


def optional_request(body: bytes, child: str) -> Element | None:
    """Return the element `child` of a request as `parse_request` does, or None if it is empty.

    Raises:
        RestError: 400000, the body is not such a request.
    """
    text = body.lstrip(b"\xef\xbb\xbf \t\r\n")
    # Some clients send no content type, and some a wrong one.
    root = request_tree(text) if text.startswith(b"{") else _xml_tree(text)
    if root.tag != "tsRequest":
        raise malformed(f"The request begins with '{root.tag}' instead of 'tsRequest'.")
    found = root.find(child)
    if found is None and (len(root) or root.attrib):
        raise _lacks(child)
    return found


def _lacks(child: str) -> RestError:
    return malformed(f"The request lacks the element 'tsRequest/{child}'.")


def _xml_tree(text: bytes) -> Element:
    try:
        root = ElementTree.fromstring(text, forbid_dtd=True)
    except (ParseError, DefusedXmlException, ValueError, LookupError) as error:
        raise malformed(f"The request is not well-formed XML: {error}") from error
    for element in root.iter():
        element.tag = element.tag.removeprefix(f"{{{NAMESPACE}}}")
    return root


def flag_attribute(element: Element, name: str, *, default: bool) -> bool:
    """Return an attribute that is true or false.

    Raises:
        RestError: 400000, it is neither.
    """
    value = element.get(name, str(default)).lower()
    if value not in ("true", "false"):
        raise malformed(f"The attribute '{name}' must be true or false.")
    return value == "true"


def name_attribute(element: Element) -> str:
    """Return the attribute `name` of an object.

    Raises:
        RestError: 400000, it is missing, blank or longer than 255 characters.
    """
    name = element.get("name", "")
    if not name.strip():
        raise malformed(f"The {element.tag} has no name.")
    if len(name) > 255:
        raise malformed(f"The name of the {element.tag} is longer than 255 characters.")
    return name
