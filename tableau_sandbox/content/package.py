"""Read and write `.tdsx` packages: zip files with one `.tds` and one `.hyper` file."""

import lzma
import re
import shutil
import struct
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path, PurePosixPath
from typing import BinaryIO
from zipfile import BadZipFile, ZipFile, ZipInfo

_TDS_BYTES = 16 << 20
_HYPER_BYTES = 16 << 30
_BLOCK = 1 << 20
# File systems allow names of up to 255 bytes, with the suffix.
_FILE_NAME_BYTES = 200

# The standard library raises one of these errors for a damaged zip file.
_DAMAGE = (
    *(BadZipFile, zipfile.LargeZipFile, zlib.error, lzma.LZMAError, struct.error),
    *(EOFError, OSError, RuntimeError, ValueError),
)


class NotPublishableError(ValueError):
    """The content cannot be published; the message states why."""


def packaged_path(name: str) -> str:
    """Return the path of the `.hyper` file in the package of the data source `name`."""
    return f"Data/Extracts/{file_name(name)}.hyper"


def file_name(name: str) -> str:
    """Return the name of a data source as a file name that is valid on all systems."""
    plain = re.sub(r'[\x00-\x1f\x7f/\\:*?"<>|]', "_", name)
    # The cut may fall inside a character, and Windows drops dots and blanks at the end of a name.
    short = plain.encode()[:_FILE_NAME_BYTES].decode(errors="ignore")
    return short.strip(". ") or "datasource"


def unpack(package: Path, *, hyper_path: Path) -> tuple[bytes, str]:
    """Unpack a package, and write its `.hyper` file to `hyper_path`.

    Returns:
        The `.tds`, and the path of the `.hyper` file in the package.

    Raises:
        NotPublishableError: the package is not a zip file, has a file that is too large, or does
            not have exactly one `.tds` and one `.hyper` file.
    """
    try:
        with ZipFile(package) as archive:
            tds = _only_member(archive, ".tds", limit=_TDS_BYTES)
            hyper = _only_member(archive, ".hyper", limit=_HYPER_BYTES)
            with archive.open(hyper) as source, hyper_path.open("wb") as target:
                shutil.copyfileobj(source, target, _BLOCK)
            return archive.read(tds), hyper.filename
    except NotPublishableError:
        # A NotPublishableError is a ValueError as well, but its message already states the problem.
        raise
    except _DAMAGE as error:
        # The full text of a system error may contain a path of the sandbox, so take only the
        # reason.
        reason = getattr(error, "strerror", None) or error
        raise NotPublishableError(f"the package cannot be read: {reason}") from error


def pack(members: Sequence[tuple[str, BinaryIO]]) -> Iterator[bytes]:
    """Yield the bytes of a package; close the members at the end.

    Equal members always make equal bytes.

    Args:
        members: pairs of a path in the package and the content at this path.
    """
    sink = _Sink()
    with (
        ExitStack() as stack,
        ZipFile(sink, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive,
    ):
        for _, content in members:
            stack.enter_context(content)
        for name, content in members:
            # A stream has no known size, and zipfile would fail once the member exceeds 2 GiB.
            with archive.open(name, "w", force_zip64=True) as member:
                while block := content.read(_BLOCK):
                    member.write(block)
                    yield sink.take()
    yield sink.take()


class _Sink:
    """A write-only file whose content the caller takes out piece by piece."""

    def __init__(self) -> None:
        self._written = bytearray()

    # Without tell(), zipfile never goes back to fill in a size.
    def write(self, data: bytes) -> int:
        self._written += data
        return len(data)

    def flush(self) -> None:
        """Do nothing: nothing is buffered."""

    def close(self) -> None:
        """Do nothing: there is nothing to close."""

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
        raise NotPublishableError(f"the package holds {len(found)} {suffix} files instead of 1")
    if found[0].file_size > limit:
        raise NotPublishableError(f"the {suffix} file is larger than {limit} bytes")
    return found[0]
