import hashlib
import os
from functools import cache
from pathlib import Path

from tableau_pipeline.objects.local import LocalCopies, scratch, temporary_folder
from tableau_pipeline.objects.stores import is_url

_VARIABLE = "PIPELINE_DATA_DIR"


def data_dir() -> Path:
    """Return the folder for snapshots, extracts and locks: PIPELINE_DATA_DIR, if it is a path.

    If it is a URL, snapshots are there, and this is a folder of the temporary directory. If it is
    not set, this is `data/` in this checkout, if the checkout itself is running. In other projects
    it is `data/` in DAGSTER_HOME, because the records there refer to the snapshots; without
    DAGSTER_HOME, `data/` in the working directory.

    Raises:
        RefusedError: PIPELINE_DATA_DIR is a URL of no object store.
    """
    if value := os.environ.get(_VARIABLE):
        if not in_object_store():
            return Path(value).absolute()
        return temporary_folder() / hashlib.sha256(value.encode()).hexdigest()[:12]
    checkout, home = Path(__file__).parents[2], os.environ.get("DAGSTER_HOME")
    places = [Path(home or ".").absolute(), Path.cwd()]
    within = any(place.is_relative_to(checkout) for place in places)
    if within and (checkout / "workspace.yaml").exists():
        return checkout / "data"
    return places[0] / "data"


def in_object_store() -> bool:
    """Whether PIPELINE_DATA_DIR is the URL of an object store.

    Raises:
        RefusedError: it is a URL of something else.
    """
    return is_url(os.environ.get(_VARIABLE) or "", setting=_VARIABLE)


def shared_place(name: str) -> Path | str:
    """Return the path or URL of a folder that all hosts share: `snapshots`, or `kept`.

    `kept` has the data sources that were saved before they were replaced.

    Raises:
        RefusedError: PIPELINE_DATA_DIR is a URL of no object store.
    """
    if in_object_store():
        return f"{os.environ[_VARIABLE].rstrip('/')}/{name}"
    return data_dir() / name


def work_dir(*, keep: bool) -> Path:
    """Return the folder for the files that a refresh builds.

    It is on the disk of this host, and is removed with this process, unless its files are to be
    kept. That of a killed process is removed by the next one.
    """
    return data_dir() if keep else scratch()


@cache
def local_copies(limit: int) -> LocalCopies:
    """Return the copies of objects on this machine's disk, of at most so many bytes."""
    # One for the whole process, because hyperd reads by path whatever a refresh still holds.
    return LocalCopies(temporary_folder() / "copies", limit)
