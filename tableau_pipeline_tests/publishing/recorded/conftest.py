from collections.abc import Generator

import pytest

from tableau_pipeline_tests.publishing import hostile
from tableau_pipeline_tests.publishing.conftest import SignIn
from tableau_pipeline_tests.publishing.recorded.support import Server
from tableau_sandbox.testing import Sandbox


@pytest.fixture(scope="package")
def server(sandbox: Sandbox, sign_in: SignIn) -> Generator[Server]:
    """A session of the administrator through a server that can answer in place of the sandbox."""
    with hostile.front_of(sandbox.url) as front, sign_in(url=front.url) as site:
        yield Server(site, front)
