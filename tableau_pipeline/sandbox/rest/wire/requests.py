"""Request bodies: XML read safely, and what a handler learns about its request."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from xml.etree.ElementTree import Element, ParseError

from defusedxml import ElementTree
from defusedxml.common import DefusedXmlException

from tableau_pipeline.sandbox.errors import malformed, refusal
from tableau_pipeline.sandbox.rest.wire.elements import NAMESPACE
from tableau_pipeline.sandbox.store.records import Session, Site, User


@dataclass(frozen=True)
class Attachment:
    """A file that came with a request, stored where its handler can take it.

    Attributes:
        filename: as the client calls it; good for its suffix only.
        path: where it is.
        size: in bytes.
    """

    filename: str
    path: Path
    size: int


@dataclass(frozen=True, kw_only=True)
class Call:
    """One request, read.

    Attributes:
        path: the variable parts of the path, by name, decoded.
        query: the query parameters; the last one counts.
        body: the body, or the `request_payload` part of a multipart body.
        attachment: the file part of a multipart body.
        headers: the headers, their names in any case of letters.
        base_url: the address by which the client knows the sandbox.
        session: who asks; None only where no sign-in is needed.
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
        """The session in which the request was made.

        Raises:
            RestError: 401000, it was made without one.
        """
        if self.opened is None:
            raise refusal("401000", "No authentication credentials were provided.")
        return self.opened

    @property
    def user(self) -> User:
        """Who makes the request."""
        return self.session.user

    @property
    def site(self) -> Site:
        """The site that the request is about."""
        return self.session.site

    def flag(self, name: str, *, default: bool = False) -> bool:
        """A query parameter that is true or false.

        Raises:
            RestError: 400008, it is neither.
        """
        value = self.query.get(name, str(default)).lower()
        if value not in ("true", "false"):
            raise refusal("400008", f"The query parameter '{name}' must be true or false.")
        return value == "true"


def parse_request(body: bytes, child: str) -> Element:
    """The element `child` of an XML request, names without namespaces.

    Raises:
        RestError: 400000, the body is not such a request.
    """
    text = body.lstrip(b"\xef\xbb\xbf \t\r\n")
    if text.startswith(b"{"):
        raise malformed("The sandbox reads XML requests only, this one is JSON.")
    try:
        root = ElementTree.fromstring(text, forbid_dtd=True)
    except (ParseError, DefusedXmlException, ValueError, LookupError) as error:
        raise malformed(f"The request is not well-formed XML: {error}") from error
    for element in root.iter():
        element.tag = element.tag.removeprefix(f"{{{NAMESPACE}}}")
    found = root.find(child) if root.tag == "tsRequest" else None
    if found is None:
        raise malformed(f"The request lacks the element 'tsRequest/{child}'.")
    return found


def flag_attribute(element: Element, name: str, *, default: bool) -> bool:
    """An attribute that is true or false.

    Raises:
        RestError: 400000, it is neither.
    """
    value = element.get(name, str(default)).lower()
    if value not in ("true", "false"):
        raise malformed(f"The attribute '{name}' must be true or false.")
    return value == "true"


def name_attribute(element: Element, *, longest: int = 255) -> str:
    """The attribute `name` of something that people name.

    Raises:
        RestError: 400000, it is missing, blank or longer than `longest` characters.
    """
    name = element.get("name", "")
    if not name.strip():
        raise malformed(f"The {element.tag} has no name.")
    if len(name) > longest:
        raise malformed(f"The name of the {element.tag} is longer than {longest} characters.")
    return name
