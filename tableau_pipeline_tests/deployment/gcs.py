"""A server of one bucket that speaks the XML API of Google Cloud Storage.

Start it by `python -m tableau_pipeline_tests.deployment.gcs PORT FOLDER`. It answers the requests
of this project's clients, after https://cloud.google.com/storage/docs/xml-api/reference-methods:
reads with ranges, lists, deletions, uploads in parts, and writes that fail if the object exists.
Other emulators ignore this condition, or lack this API.
"""

import hashlib
import os
import re
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar
from urllib.parse import parse_qs, quote, unquote, urlsplit
from uuid import uuid4
from xml.etree import ElementTree
from xml.sax.saxutils import escape

_PAGE = 1000


class _Handler(BaseHTTPRequestHandler):
    """Answers requests for the objects of a folder. The name of a file is the quoted key."""

    protocol_version = "HTTP/1.1"
    folder: ClassVar[Path]

    def do_GET(self) -> None:
        """Read an object, read a part of an object, or list the bucket."""
        if not self._key:
            return self._list()
        try:
            content, stat = self._file.read_bytes(), self._file.stat()
        except FileNotFoundError:
            return self._answer(404, _error("NoSuchKey"))
        headers = {
            "ETag": _etag(content),
            "Last-Modified": formatdate(stat.st_mtime, usegmt=True),
            "x-goog-generation": f"{stat.st_mtime_ns}",
        }
        if range_ := re.fullmatch(r"bytes=(\d*)-(\d*)", self.headers.get("Range", "")):
            first, last = range_.groups()
            start = int(first) if first else max(len(content) - int(last), 0)
            end = min(int(last) + 1 if first and last else len(content), len(content))
            if start >= len(content):
                return self._answer(416, _error("InvalidRange"))
            headers["Content-Range"] = f"bytes {start}-{end - 1}/{len(content)}"
            return self._answer(206, content[start:end], headers)
        return self._answer(200, content, headers)

    do_HEAD = do_GET  # noqa: N815

    def do_PUT(self) -> None:
        """Write an object, or a part of an upload."""
        content = self._body()
        if upload := self._query.get("uploadId"):
            path = self.folder / "uploads" / upload / f"{int(self._query['partNumber']):05}"
            path.write_bytes(content)
            return self._answer(200, headers={"ETag": _etag(content)})
        return self._write(content)

    def do_POST(self) -> None:
        """Begin an upload in parts, or complete it."""
        if "uploads" in self._query:
            upload = uuid4().hex
            (self.folder / "uploads" / upload).mkdir(parents=True)
            return self._answer(200, _xml("InitiateMultipartUploadResult", UploadId=upload))
        parts = ElementTree.fromstring(self._body()).iter("PartNumber")
        folder = self.folder / "uploads" / self._query["uploadId"]
        content = b"".join((folder / f"{int(part.text or 0):05}").read_bytes() for part in parts)
        return self._write(content, _xml("CompleteMultipartUploadResult", ETag=_etag(content)))

    def do_DELETE(self) -> None:
        """Remove an object."""
        try:
            self._file.unlink()
        except FileNotFoundError:
            return self._answer(404, _error("NoSuchKey"))
        return self._answer(204)

    def log_message(self, *args: object) -> None:
        """Log nothing."""

    def _write(self, content: bytes, answer: bytes = b"") -> None:
        """Store an object on the disk, then answer. A conditional request replaces no object."""
        written = self.folder / "uploads" / uuid4().hex
        with written.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        try:
            if self.headers.get("x-goog-if-generation-match") == "0":
                os.link(written, self._file)
                written.unlink()
            else:
                written.replace(self._file)
        except FileExistsError:
            return self._answer(412, _error("PreconditionFailed"))
        generation = f"{self._file.stat().st_mtime_ns}"
        headers = {"ETag": _etag(content), "x-goog-generation": generation}
        return self._answer(200, answer, headers)

    def _list(self) -> None:
        query = self._query
        prefix = query.get("prefix", "")
        after = max(query.get("continuation-token", ""), query.get("start-after", ""))
        found = [*self._entries(prefix, query.get("delimiter", ""))]
        page = [entry for entry in found if entry[0] > after]
        more = ""
        if len(page) > _PAGE:
            more = f"<NextContinuationToken>{escape(page[_PAGE - 1][0])}</NextContinuationToken>"
        text = "".join(entry for _, entry in page[:_PAGE])
        self._answer(200, f"<ListBucketResult>{text}{more}</ListBucketResult>".encode())

    def _entries(self, prefix: str, delimiter: str) -> Iterator[tuple[str, str]]:
        """Yield the key and the XML of each object or folder, in order."""
        last = None
        for key, path in sorted((unquote(p.name), p) for p in (self.folder / "objects").iterdir()):
            if not key.startswith(prefix):
                continue
            head, separator, _ = key[len(prefix) :].partition(delimiter or "\0")
            if separator:
                common = f"{prefix}{head}{delimiter}"
                if common != last:
                    name = escape(common)
                    yield common, f"<CommonPrefixes><Prefix>{name}</Prefix></CommonPrefixes>"
                last = common
                continue
            try:
                content, stat = path.read_bytes(), path.stat()
            except FileNotFoundError:
                continue
            modified = datetime.fromtimestamp(stat.st_mtime, UTC).isoformat()
            yield (
                key,
                f"<Contents><Key>{escape(key)}</Key><Size>{len(content)}</Size><LastModified>"
                f"{modified}</LastModified><ETag>{_etag(content)}</ETag></Contents>",
            )

    @property
    def _key(self) -> str:
        return unquote(urlsplit(self.path).path).removeprefix("/").partition("/")[2]

    @property
    def _file(self) -> Path:
        return self.folder / "objects" / quote(self._key, safe="")

    @property
    def _query(self) -> dict[str, str]:
        parsed = parse_qs(urlsplit(self.path).query, keep_blank_values=True)
        return {name: values[0] for name, values in parsed.items()}

    def _body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    def _answer(
        self, status: int, content: bytes = b"", headers: dict[str, str] | None = None
    ) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", f"{len(content)}")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)


def _etag(content: bytes) -> str:
    return f'"{hashlib.md5(content, usedforsecurity=False).hexdigest()}"'


def _xml(name: str, **children: str) -> bytes:
    inner = "".join(f"<{child}>{escape(text)}</{child}>" for child, text in children.items())
    return f"<{name}>{inner}</{name}>".encode()


def _error(code: str) -> bytes:
    return _xml("Error", Code=code)


def main(port: str, folder: str) -> None:
    """Serve a folder at a port of this machine, until the process ends."""
    _Handler.folder = Path(folder)
    for name in ("objects", "uploads"):
        (_Handler.folder / name).mkdir(parents=True, exist_ok=True)
    server = ThreadingHTTPServer(("127.0.0.1", int(port)), _Handler)
    server.daemon_threads = True
    server.serve_forever()


if __name__ == "__main__":
    main(*sys.argv[1:])
