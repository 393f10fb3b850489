"""What was read from the object store, and written to it."""

import re
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

from tableau_pipeline_tests.deployment.s3 import BUCKET

# As the server logs it: time, server, status, duration, client, method, path and query.
_REQUEST = re.compile(
    rf"\| 200 \| +\S+ \| \S+ \| (GET|PUT|POST) \| /{BUCKET}/(\S+) \| - \| (.*)$", re.MULTILINE
)


@dataclass(frozen=True)
class Transfer:
    """Bytes of whole objects, and the number of all requests."""

    read: int
    written: int
    requests: int


class Transfers:
    """Adds up what the log of an S3 server tells, from one look to the next."""

    def __init__(self, folder: Path) -> None:
        self._log = folder / "log"
        self._objects = folder / "buckets" / BUCKET
        self._position = 0

    def since_last(self) -> Transfer:
        """What came since the last call."""
        with self._log.open() as log:
            log.seek(self._position)
            text = log.read()
            self._position = log.tell()
        read = written = 0
        for method, key, query in _REQUEST.findall(text):
            # A large object arrives in parts, and is there with the request that ends them.
            is_part = "partNumber=" in query or "uploads=" in query
            size = 0 if is_part else self._size(key)
            if method == "GET":
                read += size
            else:
                written += size
        return Transfer(read, written, requests=text.count("| vgw |"))

    def _size(self, key: str) -> int:
        path = self._objects / unquote(key)
        return path.stat().st_size if path.is_file() else 0
