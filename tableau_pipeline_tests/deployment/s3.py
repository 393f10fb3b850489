"""An S3 server on this machine, whose objects are files."""

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar

from tableau_pipeline_tests.deployment.stores.object_server import BUCKET, ObjectServer
from tableau_pipeline_tests.environments import go_program

_PROGRAM = "github.com/versity/versitygw/cmd/versitygw@v1.8.0"
_USER, SECRET = "somebody", "a secret of the test's"


class S3Server(ObjectServer):
    """A server of one bucket. What it has confirmed outlives it."""

    url = f"s3://{BUCKET}"
    variables: ClassVar[Mapping[str, str]] = {"ROOT_ACCESS_KEY": _USER, "ROOT_SECRET_KEY": SECRET}

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        (folder / "buckets" / BUCKET).mkdir(parents=True)

    def command(self) -> Sequence[str | Path]:
        return [go_program(_PROGRAM), "--port", f"127.0.0.1:{self.port}", "posix", "buckets"]

    def settings_at(self, port: int) -> Mapping[str, str]:
        return {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
            "AWS_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": _USER,
            "AWS_SECRET_ACCESS_KEY": SECRET,
        }


@contextmanager
def s3_server(folder: Path) -> Generator[Mapping[str, str]]:
    """Run one.

    Yields:
        the variables by which its clients find it.
    """
    server = S3Server(folder / "s3")
    try:
        server.start()
        yield server.settings
    finally:
        server.stop()
