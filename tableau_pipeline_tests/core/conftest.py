"""Stores for journals, the records of refreshes: on a disk, and in S3, GCS and Azure."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from uuid import uuid4

import pytest

from tableau_pipeline.objects.local_files import LocalCopies
from tableau_pipeline.objects.storage import LocalStorage, ObjectStorage, Storage
from tableau_pipeline_tests.deployment.object_stores import (
    AzureServer,
    GcsServer,
    ObjectServer,
    S3Server,
)

SERVERS: dict[str, type[ObjectServer]] = {"S3": S3Server, "GCS": GcsServer, "Azure": AzureServer}


@pytest.fixture(scope="module")
def buckets(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], str]]:
    """A function that returns the URL of a bucket; its server runs until the tests end."""
    with ExitStack() as stack:
        patch = stack.enter_context(pytest.MonkeyPatch.context())

        @cache
        def url_of(kind: str) -> str:
            server = SERVERS[kind](tmp_path_factory.mktemp(kind) / "server")
            stack.enter_context(server.running())
            for name, value in server.settings.items():
                patch.setenv(name, value)
            return server.url

        yield url_of


@pytest.fixture(
    params=[
        "on a disk",
        "objects",
        *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("S3", "GCS")),
        pytest.param("Azure", marks=pytest.mark.long),
    ]
)
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    """An empty store."""
    root = tmp_path / "journal"
    if request.param == "on a disk":
        return LocalStorage(root)
    copies = LocalCopies(tmp_path / "copies", limit=10**6)
    if request.param in SERVERS:
        url = request.getfixturevalue("buckets")(request.param)
        return ObjectStorage(f"{url}/{uuid4().hex[:8]}", copies)
    # The object store library can also use a folder on a disk, if the folder exists.
    root.mkdir()
    return ObjectStorage(root.as_uri(), copies)
