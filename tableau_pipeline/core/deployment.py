"""The id of a deployment, its folders in a store, and checks that the store is no copy."""

from contextlib import suppress
from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import quote, unquote
from uuid import uuid4

from pydantic import ValidationError

from tableau_pipeline.core.identity import key_below
from tableau_pipeline.core.snapshot import Frozen
from tableau_pipeline.errors import RefusedError, SettingError
from tableau_pipeline.objects.storage import LocalStorage, Storage
from tableau_pipeline.objects.stores import canonical
from tableau_pipeline.outcome import Code

# The default name of a deployment; PIPELINE_DEPLOYMENT sets another name.
MAIN = "main"
# Takes the place of the id if a deployment has not published yet.
NO_ID = "nothing was published yet"
# The folder with the files of deployments, and the name that replaces an empty project root. They
# cannot clash with other folders, because no id of a deployment and no quoted name begins with "@".
_DEPLOYMENTS = "@deployments"
_NO_ROOT = "@"
# The number of slashes in the path of a folder of records.
_DEPTH = 2


class Deployment(Frozen):
    """A deployment: all hosts and runs that share one history of each data source.

    Attributes:
        id: the id in the tags of the data sources that the deployment publishes.
        place: the folder or URL of the journals when the deployment was made.
        inode: the inode number of the folder, which differs in a copy; None for a URL.
    """

    format: Literal[1] = 1
    id: str
    place: str
    inode: int | None = None


@dataclass
class JournalPlace:
    """The journals of one deployment in a store. A journal has the records of one data source.

    Attributes:
        storage: the store. The path of a record is
            `<deployment id>/<project root>/<asset key>/<number>.json`.
        name: the name of the deployment in this store.
    """

    storage: Storage
    name: str = MAIN
    _deployment: Deployment | None = field(default=None, repr=False)

    def deployment(self) -> Deployment | None:
        """Return the deployment; None if it has not published yet.

        Raises:
            RefusedError: the store is a copy or was moved, or the file of the deployment is
                damaged.
        """
        if self._deployment is None and (deployment := self.recorded()):
            if (problem := self.problem(deployment)) is not None:
                raise SettingError(problem)
            self._deployment = deployment
        return self._deployment

    def established(self) -> Deployment:
        """Return the deployment; create the deployment if it does not exist.

        Raises:
            RefusedError: as in `deployment`; or the store lets a second writer overwrite the first;
                or another process has removed the new file.
        """
        if deployment := self.deployment():
            return deployment
        self._probe()
        self.storage.put(self._key, self._here(str(uuid4())).model_dump_json(indent=1).encode())
        # Read the deployment again, because another process may have created it first.
        if deployment := self.deployment():
            return deployment
        raise RefusedError(f"{self._file} was removed meanwhile. Run again", code=Code.RECORD)

    def recorded(self) -> Deployment | None:
        """Return the deployment, even if the store was moved; None if it has not published yet."""
        if (text := self.storage.read(self._key)) is None:
            return None
        try:
            return Deployment.model_validate_json(text)
        except ValidationError as error:
            raise RefusedError(
                f"{self._file} is damaged, or a newer release wrote it. Restore it from a backup, "
                "or install that release",
                code=Code.RECORD,
            ) from error

    def keep(self, deployment: Deployment) -> None:
        """Record this store as the store of a deployment that was moved."""
        self._record(deployment.id)

    def make_new(self) -> None:
        """Record a new deployment in place of the deployment that was copied with the store."""
        self._record(str(uuid4()))

    def newest_numbers(self) -> dict[str, int]:
        """Map the folders of records of all deployments to the newest number in each folder."""
        newest: dict[str, int] = {}
        for entry in self.storage.list(""):
            folder, _, name = entry.key.rpartition("/")
            # Only folders of this depth have records. A file of a deployment may also have a number
            # as its name.
            is_journal = folder.count("/") == _DEPTH
            if is_journal and (number := record_number(name)) is not None:
                newest[folder] = max(number, newest.get(folder, 0))
        return newest

    def recorded_keys(self) -> set[str]:
        """Return the keys for which this deployment has records, as `key_below` returns them."""
        deployment = self.deployment()
        folders = [folder.split("/") for folder in self.newest_numbers()]
        return {
            key_below(unquote(key), "" if root == _NO_ROOT else unquote(root))
            for id_, root, key in folders
            if deployment and id_ == deployment.id
        }

    def keys_in(self, root: str) -> set[str]:
        """Return the keys, without the root, for which an environment may have records.

        The function lists only folders, so its cost does not depend on the number of records.
        """
        if (deployment := self.deployment()) is None:
            return set()
        folder = folder_of(deployment, key_below("any", root)).rpartition("/")[0]
        return {unquote(name) for name in self.storage.folders(folder)}

    @property
    def where(self) -> str:
        """The folder of the store, or its URL."""
        if isinstance(self.storage, LocalStorage):
            return str(self.storage.root.resolve())
        return canonical(self.storage.url)

    @property
    def _key(self) -> str:
        return f"{_DEPLOYMENTS}/{quote(self.name, safe='')}.json"

    @property
    def _file(self) -> str:
        return f"{self.where}/{self._key}"

    def _here(self, id_: str) -> Deployment:
        return Deployment(id=id_, place=self.where, inode=self._inode())

    def _inode(self) -> int | None:
        if isinstance(self.storage, LocalStorage):
            with suppress(FileNotFoundError):
                return self.storage.root.stat().st_ino
        return None

    def _record(self, id_: str) -> None:
        self.storage.replace(self._key, self._here(id_).model_dump_json(indent=1).encode())
        self._deployment = None

    def problem(self, deployment: Deployment) -> str | None:
        """Return the problem if the store is a copy or was moved; otherwise None.

        Two hosts may see a folder under different paths, and a mount may change inode numbers. So a
        folder counts as copied or moved only if both its path and its inode number differ. A store
        with a URL has no inode number, so it counts as copied or moved if the URL differs.
        """
        is_numbered = deployment.inode is not None and deployment.inode == self._inode()
        if deployment.place == self.where or is_numbered:
            return None
        return (
            f"The records in {self.where} were made in {deployment.place}: this is a copy, or it "
            "was moved. Two deployments must not go on with one history. If nothing uses the "
            "original any more, run `tableau-pipeline deployment --moved`. If this is to be a new "
            "deployment, run `tableau-pipeline deployment --copied`: it begins without a history, "
            "and leaves the data sources of the original alone"
        )

    def _probe(self) -> None:
        """Check that only the first of two writers of a key succeeds.

        Raises:
            RefusedError: the store ignores the condition of a write, as some gateways do.
        """
        key = f"{_DEPLOYMENTS}/.probe-{uuid4().hex}"
        # This write also creates a missing local folder, so that `_inode` can read the folder's
        # inode number afterwards.
        self.storage.put(key, b"first")
        try:
            if self.storage.put(key, b"second"):
                raise SettingError(
                    f"The store at {self.where} overwrites what another process has just written, "
                    "although it was asked not to (If-None-Match): two refreshes could not tell "
                    "which of them came first. Use a store that has conditional writes"
                )
        finally:
            self.storage.delete(key)


def folder_of(deployment: Deployment, key: str) -> str:
    """Return the folder with the records of a data source.

    Args:
        key: the asset key in its environment, see `core.identity.key_below`.
    """
    name, _, root = key.partition("@")
    return f"{deployment.id}/{_quoted(root) or _NO_ROOT}/{_quoted(name)}"


def _quoted(name: str) -> str:
    """Quote a name for a folder. `unquote` restores the name."""
    return name.replace(".", "%2E") if name in (".", "..") else quote(name, safe="")


def record_number(name: str) -> int | None:
    """Return the number in the name of a record's file; None for any other file."""
    stem = name.removesuffix(".json")
    return int(stem) if stem != name and stem.isascii() and stem.isdigit() else None
