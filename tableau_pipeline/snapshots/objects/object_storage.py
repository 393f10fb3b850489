"""Keep snapshots in an object store, by conditional writes."""

import time
from collections.abc import Iterator
from dataclasses import dataclass

import obstore
from obstore.exceptions import AlreadyExistsError, GenericError

from tableau_pipeline.objects.causes import is_absent
from tableau_pipeline.objects.local_copies import LocalCopies
from tableau_pipeline.objects.object_folder import ObjectFolder
from tableau_pipeline.objects.opening import opened, store_errors
from tableau_pipeline.snapshots.storage import Entry

# Seconds before a write is sent again whose outcome is not known.
_PAUSES = (1, 2)


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
        """Create an object; return False if it exists.

        Raises:
            StoreError: the store may have created it, or may still do so.
        """
        with store_errors("Writing", f"{self.url}/{key}"):
            for pause in _PAUSES:
                # After a reset or a timeout, the library does not send it again, as it may have
                # arrived. Sent again, it fails if it has, and so its outcome is known.
                try:
                    return self._created(key, content)
                except GenericError:
                    time.sleep(pause)
            return self._created(key, content)

    def read(self, key: str) -> bytes | None:
        """Return the content of an object; None if it does not exist.

        Raises:
            StoreError: the store refused that, failed, or did not answer.
        """
        with store_errors("Reading", f"{self.url}/{key}"):
            try:
                return bytes(obstore.get(opened(self.url), key).bytes())
            except FileNotFoundError as error:
                if is_absent(error):
                    return None
                raise

    def list(self, prefix: str) -> Iterator[Entry]:
        """Yield all objects whose keys begin with a prefix.

        Raises:
            StoreError: the store refused that, failed, or did not answer.
        """
        # Object stores compare whole parts of a key, up to the next slash.
        folder = prefix.rpartition("/")[0]
        with store_errors("Listing", f"{self.url}/{folder}"):
            for chunk in obstore.list(opened(self.url), folder or None):
                for found in chunk:
                    if found["path"].startswith(prefix):
                        yield Entry(found["path"], found["last_modified"].timestamp())

    def delete(self, key: str) -> bool:
        """Delete an object; return False if it does not exist.

        Raises:
            StoreError: the store refused that, failed, or did not answer.
        """
        with store_errors("Deleting", f"{self.url}/{key}"):
            try:
                obstore.head(opened(self.url), key)
                obstore.delete(opened(self.url), key)
            except FileNotFoundError as error:
                if is_absent(error):
                    return False
                raise
        return True

    def folder(self, key: str) -> ObjectFolder:
        """Return the files of a model."""
        return ObjectFolder(self.url, key, self.copies)

    def _created(self, key: str, content: bytes) -> bool:
        try:
            obstore.put(opened(self.url), key, content, mode="create")
        except AlreadyExistsError:
            # A write that was sent again finds what it has written itself. No two writers have the
            # same content.
            return self.read(key) == content
        return True
