"""How pyiceberg reads the metadata of a table."""

import io
from typing import NoReturn, cast

from pyiceberg.io import FileIO, InputFile, InputStream, OutputFile

from tableau_pipeline.lake.locations import plain, read_bytes


class LakeIO(FileIO):
    """Reads whole files, in stores with the credentials with which all other files are read.

    pyiceberg's own ways to read have settings and errors of their own for each kind of store.
    """

    def new_input(self, location: str) -> "LakeFile":
        """Return a file."""
        return LakeFile(location)

    def new_output(self, location: str) -> NoReturn:
        """Refuse to write."""
        raise NotImplementedError(f"{location} is only read")

    def delete(self, location: str | InputFile | OutputFile) -> NoReturn:
        """Refuse to delete."""
        raise NotImplementedError(f"{location} is only read")


class LakeFile(InputFile):
    """A file of a lake."""

    def __len__(self) -> int:
        return len(self._content())

    def exists(self) -> bool:
        """Whether there is such a file."""
        return read_bytes(plain(self.location)) is not None

    def open(self, seekable: bool = True) -> InputStream:
        """Return its content; files of metadata are small."""
        return cast("InputStream", io.BytesIO(self._content()))

    def _content(self) -> bytes:
        content = read_bytes(plain(self.location))
        if content is None:
            raise FileNotFoundError(f"there is no file {self.location}")
        return content
