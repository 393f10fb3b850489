"""A server of Azure's blobs on this machine, whose objects are files."""

import base64
import hashlib
import hmac
from collections.abc import Mapping, Sequence
from email.utils import formatdate
from pathlib import Path

import httpx

from tableau_pipeline_tests.deployment.stores.object_server import BUCKET, ObjectServer
from tableau_pipeline_tests.environments import node_program

_PROGRAM = "azurite@3.37.0"
# Those of every emulator, as Azure documents them.
_ACCOUNT = "devstoreaccount1"
_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="


class AzureServer(ObjectServer):
    """A server of one container."""

    url = f"abfss://{BUCKET}@{_ACCOUNT}.dfs.core.windows.net"
    # It writes its list of blobs every few seconds.
    outlives_a_kill = False

    def command(self) -> Sequence[str | Path]:
        *node, program = node_program(_PROGRAM)
        return [
            *node, f"{program}-blob", "--blobHost", "127.0.0.1", "--blobPort", str(self.port),
            "--location", "buckets", "--disableTelemetry", "--skipApiVersionCheck", "--silent",
        ]  # fmt: skip

    def settings_at(self, port: int) -> Mapping[str, str]:
        return {
            "AZURE_STORAGE_USE_EMULATOR": "true",
            "AZURITE_BLOB_STORAGE_URL": f"http://127.0.0.1:{port}",
        }

    def start(self) -> None:
        """Start it, wait until it answers, and create the container."""
        super().start()
        date, version = formatdate(usegmt=True), "2021-08-06"
        text = (
            "PUT" + "\n" * 12 + f"x-ms-date:{date}\nx-ms-version:{version}\n"
            f"/{_ACCOUNT}/{_ACCOUNT}/{BUCKET}\nrestype:container"
        )
        digest = hmac.new(base64.b64decode(_KEY), text.encode(), hashlib.sha256).digest()
        created = httpx.put(
            f"http://127.0.0.1:{self.port}/{_ACCOUNT}/{BUCKET}",
            params={"restype": "container"},
            headers={
                "x-ms-date": date,
                "x-ms-version": version,
                "Authorization": f"SharedKey {_ACCOUNT}:{base64.b64encode(digest).decode()}",
            },
        )
        assert created.status_code == 201, created.text
