"""Keep snapshots in an object store, by conditional writes."""

from collections.abc import Iterator
from dataclasses import dataclass

import obstore
from obstore.exceptions import AlreadyExistsError

from tableau_pipeline.objects.local_copies import LocalCopies
from tableau_pipeline.objects.object_folder import ObjectFolder
from tableau_pipeline.objects.opening import opened
from tableau_pipeline.snapshots.storage import Entry


@dataclass(frozen=True, slots=True)
class ObjectStorage:
    """The objects below a URL.

    Endpoint and credentials come from the environment, by the variables of the store's own SDKs.

    Attributes:
        url: such as "s3://bucket/folder", without a trailing slash.
        copies: where copies are kept for hyperd.
    """

    url: str
    copies: LocalCopies

    def put(self, key: str, content: bytes) -> bool:
        """Create an object; return False if it exists."""
        try:
            obstore.put(opened(self.url), key, content, mode="create")
        except AlreadyExistsError:
            # A request whose answer was lost is sent again, and then finds what it has written
            # itself. No two writers have the same content.
            return self.read(key) == content
        return True

    def read(self, key: str) -> bytes | None:
        """Return the content of an object; None if it does not exist."""
        try:
            return bytes(obstore.get(opened(self.url), key).bytes())
        except FileNotFoundError:
            return None

    def list(self, prefix: str) -> Iterator[Entry]:
        """Yield all objects whose keys begin with a prefix."""
        # Object stores compare whole parts of a key, up to the next slash.
        folder = prefix.rpartition("/")[0]
        for chunk in obstore.list(opened(self.url), folder or None):
            for found in chunk:
                if found["path"].startswith(prefix):
                    yield Entry(found["path"], found["last_modified"].timestamp())

    def delete(self, key: str) -> bool:
        """Delete an object; return False if it does not exist."""
        try:
            obstore.head(opened(self.url), key)
            obstore.delete(opened(self.url), key)
        except FileNotFoundError:
            return False
        return True

    def folder(self, key: str) -> ObjectFolder:
        """Return the files of a model."""
        return ObjectFolder(self.url, key, self.copies)
