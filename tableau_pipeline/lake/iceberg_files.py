"""How pyiceberg reads the metadata of a table in an object store."""

import io
from typing import NoReturn, cast

from pyiceberg.io import FileIO, InputFile, InputStream, OutputFile

from tableau_pipeline.objects.read_objects import read_object


class StoreIO(FileIO):
    """Reads whole objects, with the credentials with which all other files are read.

    pyiceberg's own ways to read have settings and errors of their own for each kind of store.
    """

    def new_input(self, location: str) -> "StoredFile":
        """Return an object."""
        return StoredFile(location)

    def new_output(self, location: str) -> NoReturn:
        """Refuse to write."""
        raise NotImplementedError(f"{location} is only read")

    def delete(self, location: str | InputFile | OutputFile) -> NoReturn:
        """Refuse to delete."""
        raise NotImplementedError(f"{location} is only read")


class StoredFile(InputFile):
    """An object of a store."""

    def __len__(self) -> int:
        return len(self._content())

    def exists(self) -> bool:
        """Whether there is such an object."""
        return read_object(self.location) is not None

    def open(self, seekable: bool = True) -> InputStream:
        """Return its content; files of metadata are small."""
        return cast("InputStream", io.BytesIO(self._content()))

    def _content(self) -> bytes:
        content = read_object(self.location)
        if content is None:
            raise FileNotFoundError(self.location)
        return content
