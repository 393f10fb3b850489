"""A server of Google Cloud Storage on this machine, whose objects are files."""

import json
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import unquote, urlencode

from tableau_pipeline_tests.dagster_servers import free_port
from tableau_pipeline_tests.deployment.stores.network import Answer, Network, PassingOn, asked
from tableau_pipeline_tests.deployment.stores.object_server import BUCKET, ObjectServer
from tableau_pipeline_tests.environments import go_program

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

    def answer(self, behind: int, body: bytes) -> Answer | None:
        if self.command != "PUT":
            # By any other name of the host, the server speaks JSON only.
            headers = {**self.headers, "host": "storage.googleapis.com"}
            return asked(behind, self.command, self.path, headers=headers, body=body)
        bucket, _, key = self.path.lstrip("/").partition("/")
        query = {"uploadType": "media", "name": unquote(key)}
        if condition := self.headers.get("x-goog-if-generation-match"):
            query["ifGenerationMatch"] = condition
        path = f"/upload/storage/v1/b/{bucket}/o?{urlencode(query)}"
        found = asked(behind, "POST", path, headers=self.headers, body=body)
        return found and Answer(found.status, {"ETag": '"1"'}, b"")
