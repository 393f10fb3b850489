"""A server of Google Cloud Storage on this machine, whose objects are files."""

import json
import re
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import ClassVar
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit
from uuid import uuid4

from tableau_pipeline_tests.deployment.stores.network import Answer, Network, PassingOn, asked
from tableau_pipeline_tests.deployment.stores.object_server import BUCKET, ObjectServer
from tableau_pipeline_tests.environments import go_program
from tableau_pipeline_tests.ports import free_port

_PROGRAM = "github.com/fsouza/fake-gcs-server@v1.56.1"


class GcsServer(ObjectServer):
    """A server of one bucket."""

    url = f"gs://{BUCKET}"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        (folder / "buckets" / BUCKET).mkdir(parents=True)
        self._behind = free_port()
        self._in_front = ExitStack()

    def start(self) -> None:
        """Start it, on the objects that are there, and wait until it answers."""
        self._in_front.enter_context(Network(self._behind, _ByXml, port=self.port).running())
        super().start()

    def kill(self) -> None:
        super().kill()
        self._in_front.close()

    def stop(self) -> None:
        super().stop()
        self._in_front.close()

    def command(self) -> Sequence[str | Path]:
        return [
            go_program(_PROGRAM), "-scheme", "http", "-host", "127.0.0.1", "-port",
            str(self._behind), "-filesystem-root", "buckets",
        ]  # fmt: skip

    def settings_at(self, port: int) -> Mapping[str, str]:
        account = {
            "gcs_base_url": f"http://127.0.0.1:{port}", "disable_oauth": True,
            "client_email": "", "private_key": "", "private_key_id": "",
        }  # fmt: skip
        return {"GOOGLE_SERVICE_ACCOUNT_KEY": json.dumps(account)}


class _ByXml(PassingOn):
    """Creates objects by the XML API, which the server knows for all else but that."""

    # The parts of what is being uploaded, by the id of the upload.
    parts: ClassVar[dict[str, dict[int, bytes]]] = {}

    def answer(self, behind: int, body: bytes) -> Answer | None:
        asks = dict(parse_qsl(urlsplit(self.path).query, keep_blank_values=True))
        if "uploads" in asks:
            self.parts[upload := uuid4().hex] = {}
            return _xml("InitiateMultipartUploadResult", UploadId=upload)
        if upload := asks.get("uploadId"):
            return self._of_upload(behind, upload, asks, body)
        if self.command == "PUT":
            return self._created(behind, body)
        # By any other name of the host, the server speaks JSON only.
        headers = {**self.headers, "host": "storage.googleapis.com"}
        return asked(behind, self.command, self.path, headers=headers, body=body)

    def _of_upload(
        self, behind: int, upload: str, asks: Mapping[str, str], body: bytes
    ) -> Answer | None:
        if self.command == "PUT":
            number = asks["partNumber"]
            self.parts[upload][int(number)] = body
            return Answer(200, {"ETag": f'"{number}"'}, b"")
        parts = self.parts.pop(upload)
        if self.command == "DELETE":
            return Answer(204, {}, b"")
        named = [int(number) for number in re.findall(r"<PartNumber>(\d+)<", body.decode())]
        created = self._created(behind, b"".join(parts[number] for number in named))
        return created and _xml("CompleteMultipartUploadResult", ETag="1")

    def _created(self, behind: int, content: bytes) -> Answer | None:
        bucket, _, key = urlsplit(self.path).path.lstrip("/").partition("/")
        query = {"uploadType": "media", "name": unquote(key)}
        if condition := self.headers.get("x-goog-if-generation-match"):
            query["ifGenerationMatch"] = condition
        path = f"/upload/storage/v1/b/{bucket}/o?{urlencode(query)}"
        headers = {"Host": self.headers["Host"], "Content-Length": str(len(content))}
        found = asked(behind, "POST", path, headers=headers, body=content)
        return found and Answer(found.status, {"ETag": '"1"'}, b"")


def _xml(name: str, **values: str) -> Answer:
    inner = "".join(f"<{key}>{value}</{key}>" for key, value in values.items())
    return Answer(200, {"Content-Type": "application/xml"}, f"<{name}>{inner}</{name}>".encode())
