from collections.abc import Callable, Iterator
from uuid import uuid4

import pytest

from tableau_pipeline.objects import arrow_files, storage
from tableau_pipeline.objects.local_files import LocalCopies
from tableau_pipeline.objects.storage import ObjectStorage
from tableau_pipeline.snapshots.version_store import SnapshotStore
from tableau_pipeline_tests.deployment.object_stores import (
    AzureServer,
    GcsServer,
    Network,
    ObjectServer,
    S3Server,
)

STORES = [
    pytest.param(S3Server, id="S3", marks=pytest.mark.slow),
    pytest.param(GcsServer, id="GCS", marks=pytest.mark.long),
    pytest.param(AzureServer, id="Azure", marks=pytest.mark.long),
]


@pytest.fixture(scope="module", params=STORES)
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ObjectServer]:
    """A running object store."""
    with request.param(tmp_path_factory.mktemp("server") / "server").running() as server:
        yield server


@pytest.fixture
def network(server: ObjectServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[Network]:
    """The network between the store and this process, which retries rarely and briefly."""
    monkeypatch.setattr(arrow_files, "_RETRY", {"max_retries": 1})
    monkeypatch.setattr(storage, "_PAUSES", (0.1, 0.1))
    with Network(server.port).running() as network:
        for name, value in server.settings_at(network.port).items():
            monkeypatch.setenv(name, value)
        yield network


@pytest.fixture
def location(server: ObjectServer) -> str:
    """The URL of a folder for one test."""
    return f"{server.url}/{uuid4().hex[:8]}"


@pytest.fixture
def client(location: str, tmp_path_factory: pytest.TempPathFactory) -> Callable[[], SnapshotStore]:
    """A function that makes the snapshot store of a new host, with its own disk for copies."""
    return lambda: SnapshotStore(
        ObjectStorage(location, LocalCopies(tmp_path_factory.mktemp("copies"), 10**9))
    )
