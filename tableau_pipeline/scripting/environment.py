"""Find the folders, stores and user of a deployment, by environment variables."""

import getpass
import hashlib
import math
import os
import sys
from functools import cache
from pathlib import Path

from tableau_pipeline.core.deployment import MAIN, JournalPlace
from tableau_pipeline.core.identity import root_from
from tableau_pipeline.errors import SettingError
from tableau_pipeline.objects.local_files import LocalCopies, scratch, temporary_folder
from tableau_pipeline.objects.storage import LocalStorage, ObjectStorage
from tableau_pipeline.objects.stores import is_url

# The largest total size of local copies of files in object stores, in gigabytes.
CACHE_GB = 10
_VARIABLE = "PIPELINE_DATA_DIR"
_PACKAGE = "tableau-pipeline"


def data_dir() -> Path:
    """Return the data folder, which has snapshots, journals and extracts.

    If PIPELINE_DATA_DIR is a path, return this path. If PIPELINE_DATA_DIR is a URL, the snapshots
    and journals are at the URL; return a folder in the temporary directory for the other files. If
    PIPELINE_DATA_DIR is not set, and this process runs in a source checkout of this package, return
    `data/` in the checkout. Otherwise, return `data/` in DAGSTER_HOME; if DAGSTER_HOME is not set,
    in the working directory.

    Raises:
        RefusedError: PIPELINE_DATA_DIR is a URL, but not the URL of an object store.
    """
    if value := os.environ.get(_VARIABLE):
        if not in_object_store():
            return Path(value).absolute()
        return temporary_folder() / hashlib.sha256(value.encode()).hexdigest()[:12]
    if in_checkout():
        return _checkout() / "data"
    return Path(os.environ.get("DAGSTER_HOME") or ".").absolute() / "data"


def user_data_dir() -> Path:
    """Return the folder in which programs keep this user's data, on this platform.

    Raises:
        SettingError: this user has no home folder.
    """
    if sys.platform == "darwin":
        return _home() / "Library" / "Application Support" / _PACKAGE
    given = os.environ.get("XDG_DATA_HOME", "")
    # Ignore a relative path, as the XDG standard requires.
    parent = Path(given) if Path(given).is_absolute() else _home() / ".local" / "share"
    return parent / _PACKAGE


def _home() -> Path:
    try:
        return Path.home()
    except RuntimeError as error:
        # In a container, the user may have no entry in the list of users.
        raise SettingError(
            f"HOME is not set, and this user has no home folder: set {_VARIABLE} to a folder that "
            "stays, or to a bucket, such as s3://bucket/folder"
        ) from error


def in_checkout() -> bool:
    """Whether DAGSTER_HOME or the working directory is in a source checkout of this package."""
    places = [Path(os.environ.get("DAGSTER_HOME") or ".").absolute(), Path.cwd()]
    is_below = any(place.is_relative_to(_checkout()) for place in places)
    return is_below and (_checkout() / "workspace.yaml").exists()


def _checkout() -> Path:
    return Path(__file__).parents[2]


def in_object_store() -> bool:
    """Whether PIPELINE_DATA_DIR is the URL of an object store.

    Raises:
        RefusedError: the variable is a URL, but not the URL of an object store.
    """
    return is_url(os.environ.get(_VARIABLE) or "", setting=_VARIABLE)


def shared_place(name: str) -> Path | str:
    """Return the path or URL of a folder that all hosts share, such as `snapshots` or `kept`.

    A refresh saves data sources in `kept` before it replaces them.

    Raises:
        RefusedError: PIPELINE_DATA_DIR is a URL, but not the URL of an object store.
    """
    if in_object_store():
        return f"{os.environ[_VARIABLE].rstrip('/')}/{name}"
    return data_dir() / name


def work_dir(*, keep: bool) -> Path:
    """Return the folder for the files that a refresh builds.

    The folder is on the disk of this host. With `keep`, it is the data folder. Otherwise, this
    process removes the folder at its end; after a killed process, the next process removes it.
    """
    return data_dir() if keep else scratch()


def cache_bytes() -> int:
    """Return the largest total size of local copies in bytes: PIPELINE_CACHE_GB, by default 10 GB.

    Raises:
        SettingError: the variable is not a number of gigabytes.
    """
    text = os.environ.get("PIPELINE_CACHE_GB") or str(CACHE_GB)
    try:
        size = float(text)
        if 0 <= size < math.inf:
            return int(size * 1e9)
    except ValueError:
        pass
    raise SettingError(
        f"PIPELINE_CACHE_GB is {text!r}: set it to a number of gigabytes, such as 10"
    )


@cache
def local_copies(limit: int) -> LocalCopies:
    """Return the local copies of files in object stores, of at most `limit` bytes in total."""
    # Use the same object in the whole process: hyperd reads the copies by path, and the object
    # keeps the copies that this process uses.
    return LocalCopies(temporary_folder() / "copies", limit)


def journal_place() -> JournalPlace:
    """Return the store of journals in the data folder, for the deployment of this environment."""
    place = shared_place("journal")
    storage = (
        LocalStorage(place) if isinstance(place, Path) else ObjectStorage(place, local_copies(0))
    )
    return JournalPlace(storage, os.environ.get("PIPELINE_DEPLOYMENT") or MAIN)


def tableau_project_root() -> str:
    """Return the value of the variable TABLEAU_PROJECT_ROOT; "" if the variable is not set.

    Raises:
        RefusedError: the variable is not the path of a project.
    """
    return root_from(os.environ.get("TABLEAU_PROJECT_ROOT", ""))


def current_user() -> str:
    """Return the name of the user of this process."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        # In a container, the user may have no name.
        return f"user {os.getuid()}"
