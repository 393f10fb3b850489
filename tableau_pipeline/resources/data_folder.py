import os
from collections.abc import Iterable, Iterator
from pathlib import Path


def data_dir() -> Path:
    """Where snapshots, extracts and locks live: what PIPELINE_DATA_DIR says.

    Otherwise it is `data/`: of this checkout, where that is what runs, and in other projects of
    DAGSTER_HOME, whose records tell of the snapshots; without one, of the folder that we run in.
    """
    if said := os.environ.get("PIPELINE_DATA_DIR"):
        return Path(said).absolute()
    checkout, home = Path(__file__).parents[2], os.environ.get("DAGSTER_HOME")
    places = [Path(home or ".").absolute(), Path.cwd()]
    if (checkout / "workspace.yaml").exists() and checkout in _upwards(places):
        return checkout / "data"
    return places[0] / "data"


def _upwards(places: Iterable[Path]) -> Iterator[Path]:
    """These folders, and all that they lie in."""
    for place in places:
        yield place
        yield from place.parents
