"""The command `deployment`, in a data folder and in copies of it."""

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tableau_pipeline.command_line.main import WRONG_USAGE
from tableau_pipeline.core.deployment import JournalPlace
from tableau_pipeline.objects.storage import LocalStorage
from tableau_pipeline_tests.command_line.conftest import World, documented, masked
from tableau_pipeline_tests.refresh.support.models import flights
from tableau_pipeline_tests.refresh.support.pipeline import session

COPIED, MOVED = "tableau-pipeline deployment --copied", "tableau-pipeline deployment --moved"


@pytest.fixture(scope="module")
def published(world: World) -> World:
    """A project with two data sources; only "arrivals" was refreshed."""
    result = world.run("deployment")
    assert (result.code, result.errors) == (0, "")
    folder = world.root / "data" / "journal"
    assert result.text == f'Deployment "main" in {folder}\nIt has not published yet\n'
    assert not folder.exists()
    for key in ("arrivals", "gates"):
        world.declare(key)
        world.model(key, flights(8))
    assert world.run("refresh", "arrivals").code == 0
    return world


@pytest.fixture
def copy(published: World, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A copy of the data folder, which the next commands use."""
    folder = published.root / "copy"
    shutil.copytree(published.root / "data", folder)
    monkeypatch.setenv("PIPELINE_DATA_DIR", str(folder))
    yield folder
    shutil.rmtree(folder)


@pytest.mark.slow
def test_status_where_there_are_no_records(published: World, monkeypatch: pytest.MonkeyPatch):
    """Prevents: `status` calls a data source fresh although no record of it exists."""
    assert published.run("status", "arrivals", "--offline").code == 0
    monkeypatch.setenv("PIPELINE_DEPLOYMENT", "review")
    result = published.run("status", "arrivals", "--offline")
    assert result.code == 1
    assert "Arrivals: unknown" in result.text
    assert "the data folder has no record of them" in result.text


def server_has(world: World) -> list[tuple[str, str]]:
    """The data sources on the server, with their last change."""
    with session(world.sandbox) as site:
        return sorted((str(e.name), str(e.updated_at)) for e in site.tsc.datasources.all())


def test_whose_records_they_are(published: World):
    """Prevents: users cannot find out which deployment a data folder belongs to."""
    result = published.run("deployment")
    assert result.code == 0
    folder = str(published.root / "data")
    shown = "\n".join(documented("tableau-pipeline deployment"))
    shown = re.sub(r"/srv/\S+/data", folder, shown).replace("5 data sources", "1 data source")
    assert masked(result.text) == shown.splitlines()
    place = JournalPlace(LocalStorage(Path(folder) / "journal"))
    recorded = place.recorded()
    assert recorded
    assert published.run("deployment", "--json").data == {
        "name": "main",
        "place": place.where,
        "id": recorded.id,
        "keys": ["arrivals"],
        "problem": None,
    }
    # `--moved` changes nothing in a folder that was not moved.
    assert published.run("deployment", "--moved").code == 0
    assert place.recorded() == recorded


@pytest.mark.slow
def test_another_name(published: World, monkeypatch: pytest.MonkeyPatch):
    """Prevents: two deployments that share a data folder count as one deployment."""
    monkeypatch.setenv("PIPELINE_DEPLOYMENT", "staging")
    shown = published.run("deployment", "--json").data
    assert (shown["name"], shown["id"], shown["keys"]) == ("staging", None, [])
    result = published.run("refresh", "arrivals")
    assert result.code == 1
    assert "--accept takeover" in result.text + result.errors


@pytest.mark.slow
def test_a_copy_is_refused(published: World, copy: Path):
    """Prevents: a copied data folder lets two deployments continue one history."""
    before = server_has(published)
    result = published.run("deployment")
    assert result.code == 1
    assert f"were made in {published.root / 'data' / 'journal'}: this is a copy" in result.text
    shown = published.run("deployment", "--json")
    assert (shown.code, shown.data["keys"]) == (1, [])
    assert shown.data["problem"] in result.text
    for command in (
        ("refresh", "arrivals"),
        ("plan", "arrivals"),
        ("status",),
        ("unlock", "arrivals", "--yes"),
    ):
        result = published.run(*command)
        assert result.code in (1, 2), command
        assert COPIED in result.text + result.errors, command
        assert MOVED in result.text + result.errors, command
    assert server_has(published) == before


def test_both_together_are_wrong(published: World, copy: Path):
    """Prevents: `deployment --moved --copied` obeys one of two contradictory options."""
    file = copy / "journal" / "@deployments" / "main.json"
    before = file.read_bytes()
    result = published.run("deployment", "--moved", "--copied")
    assert result.code == WRONG_USAGE
    assert "exclude each other" in result.errors
    assert file.read_bytes() == before


def test_it_has_moved(published: World, copy: Path):
    """Prevents: after a move to a new host, a deployment treats its data sources as foreign."""
    before = server_has(published)
    id_ = JournalPlace(LocalStorage(published.root / "data" / "journal")).established().id
    result = published.run("deployment", "--moved", "--json")
    assert (result.code, result.data["id"], result.data["problem"]) == (0, id_, None)
    assert (result.data["place"], result.data["keys"]) == (str(copy / "journal"), ["arrivals"])
    result = published.run("refresh", "arrivals")
    assert result.code == 0
    assert "no change" in result.text
    assert server_has(published) == before


@pytest.mark.slow
def test_it_is_another_one(published: World, copy: Path):
    """Prevents: a test system with copied records publishes over production's data sources."""
    before = server_has(published)
    original = JournalPlace(LocalStorage(published.root / "data" / "journal")).established()
    result = published.run("deployment", "--copied")
    assert result.code == 0
    assert result.text.endswith(", 0 data sources\n")
    shown = published.run("deployment", "--json").data
    assert (shown["place"], shown["keys"]) == (str(copy / "journal"), [])
    assert shown["id"] != original.id
    result = published.run("refresh", "arrivals")
    assert result.code == 1
    assert "--accept takeover" in result.text + result.errors
    assert server_has(published) == before
    assert published.run("refresh", "gates").code == 0
    assert "gates" in published.run("deployment", "--json").data["keys"]
