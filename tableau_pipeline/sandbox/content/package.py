"""`.tdsx` packages: zip files of one `.tds` and one `.hyper`."""

import lzma
import random
import re
import shutil
import struct
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
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


@dataclass(frozen=True)
class Packing:
    """How a package is put together; none of it changes what is in it.

    Attributes:
        date_time: of its members.
        compression: of its members.
        backwards: its members come in the other order.
    """

    date_time: tuple[int, int, int, int, int, int]
    compression: int
    backwards: bool

    def member(self, name: str) -> ZipInfo:
        """A member of this name."""
        info = ZipInfo(name, self.date_time)
        info.compress_type = self.compression
        return info


def any_packing() -> Packing:
    """Another one at every call."""
    pick = random.randrange
    date_time = (pick(1981, 2100), pick(1, 13), pick(1, 29), pick(24), pick(60), pick(30) * 2)
    compression = random.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))  # noqa: S311
    return Packing(date_time, compression=compression, backwards=bool(pick(2)))


def pack(
    members: Sequence[tuple[str, BinaryIO]], packing: Packing | None = None
) -> Iterator[bytes]:
    """The bytes of a package, made while they are read; closes the members at their end.

    Args:
        members: their paths in the package, and what they hold.
        packing: how they are put together; None makes the same bytes of them every time.
    """
    sink = _Sink()
    with (
        ExitStack() as stack,
        ZipFile(sink, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive,
    ):
        for _, content in members:
            stack.enter_context(content)
        for name, content in members[:: -1 if packing and packing.backwards else 1]:
            info = packing.member(name) if packing else name
            with archive.open(info, "w", force_zip64=True) as member:
                while block := content.read(_BLOCK):
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
