"""Read multipart bodies as streams: the payload to memory, the file to disk."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header

from tableau_sandbox.errors import malformed, refusal
from tableau_sandbox.rest.wire.requests import Attachment
from tableau_sandbox.store.files import open_private

if TYPE_CHECKING:
    from python_multipart.multipart import MultipartCallbacks

PAYLOAD = "request_payload"
PAYLOAD_BYTES = 1 << 20
FILE_BYTES = 64 << 20


async def read_multipart(
    stream: AsyncIterator[bytes], content_type: str, *, file_part: str, path: Path
) -> tuple[bytes, Attachment | None]:
    """Read the payload and the file of a multipart body.

    Args:
        stream: the body.
        content_type: the content type of the body; it contains the boundary.
        file_part: the name of the part with the file.
        path: where to write that file; it is removed if the request is refused.

    Raises:
        RestError: 400000 for a body that is incomplete, not `multipart/mixed` or without a payload,
            400010 for two files, 400016 for a file above 64 MB.
    """
    kind, parameters = parse_options_header(content_type)
    # Forms of browsers, and of many HTTP libraries by default, are `multipart/form-data`; Tableau's
    # REST API reference asks for this type.
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
    """Collects the parts that the parser finds."""

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
        # Some clients omit the type, so that the header begins with its first parameter.
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
