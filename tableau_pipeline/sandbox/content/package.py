"""`.tdsx` packages: zip files of one `.tds` and one `.hyper`."""

import lzma
import re
import shutil
import struct
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import BinaryIO
from zipfile import BadZipFile, ZipFile, ZipInfo

_TDS_BYTES = 16 << 20
_HYPER_BYTES = 16 << 30
_BLOCK = 1 << 20
# File systems take up to 255, the suffix included.
_FILE_NAME_BYTES = 200

# What the standard library raises, depending on where a zip file is damaged.
_DAMAGE = (
    *(BadZipFile, zipfile.LargeZipFile, zlib.error, lzma.LZMAError, struct.error),
    *(EOFError, OSError, RuntimeError, ValueError),
)


class UnreadablePackageError(ValueError):
    """It is not a package that the sandbox can publish; the message says why."""


def packaged_path(name: str) -> str:
    """Where the `.hyper` file of the data source `name` lies in its package."""
    return f"Data/Extracts/{file_name(name)}.hyper"


def file_name(name: str) -> str:
    """The name of a data source as a file name that no system takes for a path."""
    plain = re.sub(r'[\x00-\x1f\x7f/\\:*?"<>|]', "_", name)
    short = plain.encode()[:_FILE_NAME_BYTES].decode(errors="ignore")
    return short.strip(". ") or "datasource"


def unpack(package: Path, *, hyper_path: Path) -> tuple[bytes, str]:
    """Take a package apart: its `.hyper` goes to `hyper_path`.

    Returns:
        The `.tds`, and the path of the `.hyper` in the package.

    Raises:
        UnreadablePackageError: it lacks one of both, has several, or is no zip file.
    """
    try:
        with ZipFile(package) as archive:
            tds = _only_member(archive, ".tds", limit=_TDS_BYTES)
            hyper = _only_member(archive, ".hyper", limit=_HYPER_BYTES)
            with archive.open(hyper) as source, hyper_path.open("wb") as target:
                shutil.copyfileobj(source, target, _BLOCK)
            return archive.read(tds), hyper.filename
    except UnreadablePackageError:
        raise
    except _DAMAGE as error:
        raise UnreadablePackageError(f"the package cannot be read: {error}") from error


def pack(hyper: BinaryIO, *, hyper_member: str, tds: bytes, tds_member: str) -> Iterator[bytes]:
    """The bytes of a package, made while they are read; closes `hyper` at their end."""
    sink = _Sink()
    with hyper, ZipFile(sink, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        archive.writestr(tds_member, tds)
        with archive.open(hyper_member, "w", force_zip64=True) as member:
            while block := hyper.read(_BLOCK):
                member.write(block)
                yield sink.take()
    yield sink.take()


class _Sink:
    """A file that can only be written; what was written is taken out piece by piece."""

    def __init__(self) -> None:
        self._written = bytearray()

    def write(self, data: bytes) -> int:
        self._written += data
        return len(data)

    def flush(self) -> None:
        """Nothing is held back."""

    def close(self) -> None:
        """There is nothing to close."""

    def take(self) -> bytes:
        taken = bytes(self._written)
        self._written.clear()
        return taken


def _only_member(archive: ZipFile, suffix: str, *, limit: int) -> ZipInfo:
    found = [
        member
        for member in archive.infolist()
        if PurePosixPath(member.filename).suffix.lower() == suffix
    ]
    if len(found) != 1:
        raise UnreadablePackageError(f"the package holds {len(found)} {suffix} files instead of 1")
    if found[0].file_size > limit:
        raise UnreadablePackageError(f"the {suffix} file is larger than {limit} bytes")
    return found[0]
