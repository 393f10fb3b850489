"""What a refresh in Dagster tells of a server that is none, and of secrets in its address."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from tableau_pipeline.resources import TableauServerResource
from tableau_pipeline_tests.components.support.location import Location, failure
from tableau_pipeline_tests.refresh.support.models import flights


@dataclass
class Elsewhere(Location):
    """A location whose server and token are those of the environment."""

    def resources(self, **settings: Any) -> dict[str, dg.ConfigurableResource]:
        tableau = TableauServerResource(
            server_url=dg.EnvVar("TABLEAU_SERVER_URL"),
            token_name="pipeline",
            token_value=dg.EnvVar("TABLEAU_TOKEN_VALUE"),
        )
        return super().resources(**settings) | {"tableau": tableau}


@pytest.fixture
def elsewhere(location: Location, monkeypatch: pytest.MonkeyPatch) -> Elsewhere:
    monkeypatch.setenv("TABLEAU_TOKEN_VALUE", location.sandbox.token_secret)
    found = Elsewhere(location.sandbox, location.root, location.instance)
    found.model(flights(8))
    return found


def written(location: Location) -> bytes:
    """All that Dagster has stored."""
    folder = Path(location.instance.root_directory)
    return b"".join(file.read_bytes() for file in folder.rglob("*") if file.is_file())


def test_no_secret_of_the_address_is_stored(elsewhere: Elsewhere, monkeypatch: pytest.MonkeyPatch):
    """Prevents: credentials in TABLEAU_SERVER_URL land in messages, logs and Dagster's database."""
    monkeypatch.setenv("TABLEAU_SERVER_URL", "https://ann:hu5h-hush@tableau.invalid")
    message = failure(elsewhere.refresh("shop"))
    assert "TABLEAU_SERVER_URL (https://tableau.invalid) holds" in message
    assert message.encode()[:40] in written(elsewhere)
    assert b"hu5h-hush" not in written(elsewhere)
