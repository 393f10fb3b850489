"""The files of a model in an object store."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from posixpath import commonpath

import obstore

from tableau_pipeline.hyper.types.literals import string_literal
from tableau_pipeline.objects.in_place import can_read_in_place, s3_location
from tableau_pipeline.objects.local_copies import LocalCopies
from tableau_pipeline.objects.opening import opened, store_errors

# Downloads at a time. A file is a part of a model, so that there usually are several.
_THREADS = 8


@dataclass(frozen=True, slots=True)
class ObjectFolder:
    """Objects below a key.

    Attributes:
        url: the URL of the storage.
        key: without a trailing slash.
    """

    url: str
    key: str
    copies: LocalCopies

    def uri(self, name: str) -> str:
        """Return the URL of a file or of a folder in this one."""
        return f"{self.url}/{self.key}/{name}"

    def full_name(self, name: str) -> str:
        """Return the URL of a file."""
        return self.uri(name)

    def paths(self, names: Sequence[str]) -> tuple[str, ...]:
        """Return the paths of local copies of files; what has no copy yet is fetched."""
        with ThreadPoolExecutor(_THREADS) as executor:
            paths = tuple(executor.map(self._copy, names))
        self.copies.make_room()
        return paths

    def sources(self, names: Sequence[str]) -> tuple[str, ...]:
        """Return SQL by which hyperd finds files: in place if no copies are kept, where it can."""
        if self.copies.limit == 0 and can_read_in_place(self.url):
            return tuple(s3_location(self.uri(name)) for name in names)
        return tuple(map(string_literal, self.paths(names)))

    def missing(self, names: Sequence[str]) -> list[str]:
        """Return the URLs at which there is no object."""
        if not names:
            return []
        # One listing of all files costs fewer requests than one for each file or folder.
        folder = commonpath(f"{self.key}/{name}".rpartition("/")[0] for name in names)
        with store_errors("Listing", f"{self.url}/{folder}"):
            chunks = obstore.list(opened(self.url), folder)
            found = {entry["path"] for chunk in chunks for entry in chunk}
        return [self.uri(name) for name in names if f"{self.key}/{name}" not in found]

    def _copy(self, name: str) -> str:
        return self.copies.path(self.uri(name), partial(self._fetch, name))

    def _fetch(self, name: str, target: Path) -> None:
        with store_errors("Reading", self.uri(name)), target.open("wb") as file:
            for chunk in obstore.get(opened(self.url), f"{self.key}/{name}").stream():
                file.write(chunk)
