from collections.abc import Generator
from pathlib import Path

import pytest
import tableauserverclient as tsc

from tableau_sandbox.testing import Sandbox, running_sandbox
from tableau_sandbox_tests.conftest import ALICE
from tableau_sandbox_tests.contract.conftest import ENVIRONMENT
from tableau_sandbox_tests.contract.session import Session
from tableau_sandbox_tests.samples import publish, signed_in


@pytest.fixture(scope="module")
def vds(tmp_path_factory: pytest.TempPathFactory) -> Generator[Sandbox, None, None]:
    """One sandbox for the tests of a module, which leave it as they found it."""
    with running_sandbox(tmp_path_factory.mktemp("vds") / "data", users=(ALICE,)) as sandbox:
        yield sandbox


@pytest.fixture(scope="module")
def admin(vds: Sandbox) -> tsc.Server:
    """Tableau's own client, signed in as the administrator, who owns what is published."""
    return signed_in(vds)


@pytest.fixture(scope="module")
def session(vds: Sandbox) -> Session:
    """Another session of the administrator, to ask the service without a library."""
    return Session(vds.url, ENVIRONMENT)


@pytest.fixture(scope="module")
def alice(vds: Sandbox) -> Session:
    """A session of a user who owns nothing that the administrator has published."""
    ((name, value),) = ALICE.tokens
    return Session(vds.url, {"TABLEAU_TOKEN_NAME": name, "TABLEAU_TOKEN_VALUE": value})


@pytest.fixture(scope="module")
def single(admin: tsc.Server, one_row: Path) -> str:
    """The LUID of a data source with the table "Extract", whose row is (1, 'one')."""
    return publish(admin, one_row, name="Single").id
