"""Parse requests: XML safely, multipart bodies as streams, and the values that handlers need."""

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO
from xml.etree.ElementTree import Element, ParseError

from defusedxml import ElementTree
from defusedxml.common import DefusedXmlException
from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header

from tableau_sandbox.errors import RestError, malformed, refusal
from tableau_sandbox.store.files import open_private
from tableau_sandbox.store.records import Session, Site, User

if TYPE_CHECKING:
    from python_multipart.multipart import MultipartCallbacks

PAYLOAD = "request_payload"
PAYLOAD_BYTES = 1 << 20
FILE_BYTES = 64 << 20
_NAMESPACE = "{http://tableau.com/api}"


@dataclass(frozen=True)
class Attachment:
    """A file from a request, stored where the handler can use it.

    Attributes:
        filename: the client's file name; handlers use only its suffix.
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
        path: the decoded variable parts of the path, by name.
        query: the query parameters; if a parameter is repeated, its last value counts.
        body: the body, or the `request_payload` part of a multipart body.
        attachment: the file part of a multipart body.
        headers: the headers; their names ignore case.
        base_url: the URL by which the client reaches the sandbox.
        opened: the session of the request; None only if the route requires no sign-in.
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
            RestError: 401000, the request has no session.
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
            RestError: 400008, the parameter is neither true nor false.
        """
        value = self.query.get(name, str(default)).lower()
        if value not in ("true", "false"):
            raise refusal("400008", f"The query parameter '{name}' must be true or false.")
        return value == "true"


def parse_request(body: bytes, child: str) -> Element:
    """Return the element `child` of a request; its elements have no namespaces.

    Raises:
        RestError: 400000, the body is not a request with this element.
    """
    found = optional_request(body, child)
    if found is None:
        raise _lacks(child)
    return found


def optional_request(body: bytes, child: str) -> Element | None:
    """Return the element `child` of a request, as `parse_request` does; None for an empty request.

    Raises:
        RestError: 400000, the body is neither an empty request nor a request with this element.
    """
    # Ignore the content type: some clients send none, and some send a wrong type.
    root = _xml_tree(body.lstrip(b"\xef\xbb\xbf \t\r\n"))
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
        element.tag = element.tag.removeprefix(_NAMESPACE)
    return root


def flag_attribute(element: Element, name: str, *, default: bool) -> bool:
    """Return an attribute that is true or false.

    Raises:
        RestError: 400000, the attribute is neither true nor false.
    """
    value = element.get(name, str(default)).lower()
    if value not in ("true", "false"):
        raise malformed(f"The attribute '{name}' must be true or false.")
    return value == "true"


def name_attribute(element: Element) -> str:
    """Return the attribute `name` of an object.

    Raises:
        RestError: 400000, the name is missing, blank or longer than 255 characters.
    """
    name = element.get("name", "")
    if not name.strip():
        raise malformed(f"The {element.tag} has no name.")
    if len(name) > 255:
        raise malformed(f"The name of the {element.tag} is longer than 255 characters.")
    return name


async def read_multipart(
    stream: AsyncIterator[bytes], content_type: str, *, file_part: str, path: Path
) -> tuple[bytes, Attachment | None]:
    """Read the payload and the file of a multipart body.

    Args:
        stream: the body.
        content_type: the content type of the body; it contains the boundary.
        file_part: the name of the part with the file.
        path: where to store that file; a refusal of the request removes the file.

    Raises:
        RestError: 400000, the body is incomplete, is not `multipart/mixed` or has no payload;
            400010, it has two files; 400016, the file is larger than 64 MB.
    """
    kind, parameters = parse_options_header(content_type)
    # Tableau's REST API reference requires this type. Browser forms, and many HTTP libraries by
    # default, send `multipart/form-data`.
    if kind != b"multipart/mixed" or not parameters.get(b"boundary"):
        raise malformed("The request is not 'multipart/mixed', or names no boundary.")
    try:
        with open_private(path) as file:
            reader = _Reader(file, file_part=file_part)
            parser = MultipartParser(parameters[b"boundary"], reader.callbacks())
            async for chunk in stream:
                parser.write(chunk)
        if not reader.ended:
            raise malformed("The multipart request breaks off.")
        if not reader.has_payload:
            raise malformed(f"The multipart request lacks the part '{PAYLOAD}'.")
    except BaseException as error:
        path.unlink(missing_ok=True)
        if isinstance(error, FormParserError):
            raise malformed(f"The multipart request is malformed: {error}") from error
        raise
    if reader.filename is None:
        path.unlink()
        return bytes(reader.payload), None
    return bytes(reader.payload), Attachment(reader.filename, path, reader.size)


class _Reader:
    """Collects the parts that the multipart parser finds."""

    def __init__(self, file: BinaryIO, *, file_part: str):
        self.payload = bytearray()
        self.has_payload = False
        self.filename: str | None = None
        self.size = 0
        self.ended = False
        self._file = file
        self._file_part = file_part
        self._header = bytearray(), bytearray()
        self._disposition = ""
        self._name = ""

    def callbacks(self) -> "MultipartCallbacks":
        return {
            "on_part_begin": self._begin_part,
            "on_header_begin": self._begin_header,
            "on_header_field": lambda data, start, end: self._header[0].extend(data[start:end]),
            "on_header_value": lambda data, start, end: self._header[1].extend(data[start:end]),
            "on_header_end": self._end_header,
            "on_headers_finished": self._end_headers,
            "on_part_data": self._take,
            "on_end": self._end,
        }

    def _begin_part(self) -> None:
        self._disposition = ""

    def _begin_header(self) -> None:
        self._header = bytearray(), bytearray()

    def _end_header(self) -> None:
        name, value = self._header
        if name.lower() == b"content-disposition":
            self._disposition = value.decode("latin-1")

    def _end_headers(self) -> None:
        # Some clients omit the disposition's type, so the header begins with its first parameter.
        _, parameters = parse_options_header(f"part; {self._disposition}")
        self._name = parameters.get(b"name", b"").decode("latin-1").strip()
        if self._name not in (PAYLOAD, self._file_part):
            raise malformed(f"The multipart request has an unexpected part '{self._name}'.")
        if self._name == self._file_part:
            if self.filename is not None:
                raise refusal("400010", "The request has more than one file.")
            self.filename = parameters.get(b"filename", b"").decode("latin-1").strip()
            return
        if self.has_payload:
            raise malformed(f"The multipart request has more than one part '{PAYLOAD}'.")
        self.has_payload = True

    def _take(self, data: bytes, start: int, end: int) -> None:
        if self._name == PAYLOAD:
            self.payload += data[start:end]
            if len(self.payload) > PAYLOAD_BYTES:
                raise malformed(f"The part '{PAYLOAD}' is larger than {PAYLOAD_BYTES} bytes.")
            return
        self.size += end - start
        if self.size > FILE_BYTES:
            raise refusal("400016", "The file in the request is larger than 64 MB.")
        self._file.write(data[start:end])

    def _end(self) -> None:
        self.ended = True
