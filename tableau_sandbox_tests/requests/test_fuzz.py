"""Hostile requests by the thousand: none breaks the sandbox, hangs it, or climbs out of it."""

import random
from collections.abc import Callable
from http.client import HTTPException
from pathlib import Path

import pytest

from tableau_sandbox.testing import Sandbox
from tableau_sandbox_tests.requests.fuzz_messages import World, status_of
from tableau_sandbox_tests.requests.fuzz_mutations import damage, spoil
from tableau_sandbox_tests.requests.fuzz_rights import rights
from tableau_sandbox_tests.samples import publish, rows_on_server

FAMILIES = (
    "auth",
    "projects",
    "datasources",
    "publish",
    "files",
    "uploads",
    "updates",
    "revisions",
    "jobs",
    "tags",
    "queries",
    "pages",
    "json",
    "rights",
)
# Ten thousand in all; others each time.
SHARE = 10_000 // len(FAMILIES) + 1
HEALED_EVERY = 50


@pytest.mark.few_variants(2)
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("count", [100, pytest.param(SHARE, marks=pytest.mark.slow)])
def test_spoilt_requests(
    start_sandbox: Callable[..., Sandbox], tmp_path: Path, one_row: Path, family: str, count: int
):
    # Prevents: a request that no client should send takes the sandbox down, or writes elsewhere.
    sandbox = start_sandbox(sites=("second",))
    seed = random.randrange(1 << 30)
    chance = random.Random(seed)
    world = World(sandbox, one_row)
    for number in range(count):
        if number and number % HEALED_EVERY == 0:
            world.heal()
        spoil_one = damage if family == "files" else spoil
        good = rights(world) if family == "rights" else world.families()[family]
        message = spoil_one(chance.choice(good), chance)
        try:
            status = status_of(sandbox, message)
        except (OSError, HTTPException) as error:
            pytest.fail(
                f"no answer, {error!r}, seed {seed}, number {number}: {message.written()[:2000]}"
            )
        context = f"{status}, seed {seed}, number {number}: {message.written()[:2000]}"
        assert status is None or status < 500, context
    world.heal()
    item = publish(world.server, one_row, name="Last")
    assert rows_on_server(world.server, item.id) == [[1, "one"]]
    check_folders(sandbox, tmp_path)


def check_folders(sandbox: Sandbox, around: Path) -> None:
    """Nothing is where it should not be."""
    assert [path.name for path in around.iterdir()] == [sandbox.data_dir.name]
    assert {path.name for path in sandbox.data_dir.iterdir()} <= {
        *("content", "incoming", "uploads"),
        *("sandbox.lock", "sandbox.sqlite", "sandbox.sqlite-shm", "sandbox.sqlite-wal"),
    }
    for folder in ("content", "incoming", "uploads"):
        assert all(path.is_file() for path in (sandbox.data_dir / folder).iterdir())
