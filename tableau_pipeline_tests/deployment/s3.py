"""An S3 server on this machine, in an environment of its own."""

import os
import subprocess
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path

import requests

from tableau_pipeline_tests.dagster_servers import free_port, stop
from tableau_pipeline_tests.environments import environment
from tableau_pipeline_tests.waiting import until

BUCKET = "lake"


@contextmanager
def s3_server(folder: Path) -> Generator[Mapping[str, str]]:
    """Run it, with an empty bucket.

    Yields:
        the variables by which its clients find it.
    """
    port, log = free_port(), folder / "s3.log"
    url = f"http://127.0.0.1:{port}"
    program = environment("moto[s3,server]==5.2.5") / "moto_server"
    with log.open("w") as output:
        process = subprocess.Popen(
            [program, "-H", "127.0.0.1", "-p", str(port)],
            stdout=output,
            stderr=output,
            stdin=subprocess.DEVNULL,
            env={**os.environ, "MOTO_S3_CUSTOM_ENDPOINTS": url},
            start_new_session=True,
        )
    try:
        until(lambda: _has_bucket(url), seconds=60, what="the S3 server does not answer", log=log)
        yield {
            "AWS_ENDPOINT_URL": url,
            "AWS_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": "somebody",
            "AWS_SECRET_ACCESS_KEY": "a secret of the test's",
        }
    finally:
        stop(process)


def _has_bucket(url: str) -> bool:
    try:
        return requests.put(f"{url}/{BUCKET}", timeout=5).ok
    except requests.ConnectionError:
        return False
