from collections.abc import Generator
from pathlib import Path

import pytest
import tableauserverclient as tsc

from tableau_sandbox.testing import Sandbox, running_sandbox
from tableau_sandbox_tests.conftest import ALICE, VIEWER
from tableau_sandbox_tests.samples import execute, publish, signed_in, write_hyper

KEY = 'ALTER TABLE "Extract".orders ADD ASSUMED FOREIGN KEY (customer)'
SHOP = (
    'CREATE TABLE "Extract".customers (id INT NOT NULL, name TEXT, ASSUMED PRIMARY KEY (id))',
    'CREATE TABLE "Extract".orders (id BIGINT NOT NULL, customer INT, amount NUMERIC(18, 2),'
    " placed DATE)",
    f'{KEY} REFERENCES "Extract".customers (id)',
    "INSERT INTO \"Extract\".customers VALUES (1, 'Ann'), (2, 'Bob'), (3, NULL)",
    'INSERT INTO "Extract".orders VALUES'
    " (1, 1, 10.5, DATE '2024-01-31'), (2, 1, 2, NULL), (3, 9, NULL, DATE '2025-06-30'),"
    " (4, NULL, 1, DATE '2024-02-01')",
)


@pytest.fixture(scope="module")
def vds(tmp_path_factory: pytest.TempPathFactory) -> Generator[Sandbox, None, None]:
    """One sandbox for the tests of a module, which leave it as they found it."""
    folder = tmp_path_factory.mktemp("vds")
    with running_sandbox(folder / "data", users=(ALICE, VIEWER), sites=("second",)) as sandbox:
        yield sandbox


@pytest.fixture(scope="module")
def admin(vds: Sandbox) -> tsc.Server:
    """Tableau's own client, signed in as the administrator, who owns what is published."""
    return signed_in(vds)


@pytest.fixture(scope="module")
def single(admin: tsc.Server, one_row: Path) -> str:
    """The LUID of a data source with the table "Extract", whose row is (1, 'one')."""
    return publish(admin, one_row, name="Single").id


@pytest.fixture(scope="module")
def empty(admin: tsc.Server, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The LUID of a data source with a table without rows."""
    file = tmp_path_factory.mktemp("files") / "empty.hyper"
    write_hyper(file, "SELECT 1 AS id, 'one' AS name WHERE FALSE")
    return publish(admin, file, name="Empty").id


@pytest.fixture(scope="module")
def shop(admin: tsc.Server, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The LUID of a data source with three customers, and their four orders."""
    file = execute(tmp_path_factory.mktemp("files") / "shop.hyper", *SHOP)
    return publish(admin, file, name="Shop").id
