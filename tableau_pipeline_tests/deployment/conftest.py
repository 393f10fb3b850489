from collections.abc import Iterator

import pytest

from tableau_pipeline_tests.deployment.s3 import S3Server
from tableau_pipeline_tests.deployment.stores.azure import AzureServer
from tableau_pipeline_tests.deployment.stores.object_server import ObjectServer

STORES = [
    pytest.param(S3Server, id="S3", marks=pytest.mark.slow),
    pytest.param(AzureServer, id="Azure", marks=pytest.mark.long),
]


@pytest.fixture(scope="module", params=STORES)
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ObjectServer]:
    """An object store that runs."""
    with request.param(tmp_path_factory.mktemp("server") / "server").running() as server:
        yield server
