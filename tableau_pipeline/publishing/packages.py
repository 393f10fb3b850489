"""Download published data sources as packages (`.tdsx`), and unpack them."""

import shutil
import zlib
from collections.abc import Generator
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, Protocol
from zipfile import ZIP_DEFLATED, ZIP_STORED, BadZipFile, ZipFile

import requests
import tableauserverclient as TSC

from tableau_pipeline.core.drift import RemoteDatasource
from tableau_pipeline.errors import RefreshError
from tableau_pipeline.objects.local_files import scratch
from tableau_pipeline.publishing.deadlines import downloads_up_to
from tableau_pipeline.publishing.rest import items_named
from tableau_pipeline.rendering import megabytes

# The most bytes of a package besides its extract: of the `.tds`, and of images that users added.
_OTHER_BYTES = 10**7
# A `.hyper` file may be at most this many times as large as its package. Packing shrinks it little,
# because its pages are already compressed.
_MOST_EXPANSION = 50
# Bytes of a download that are in memory at a time.
_PIECE = 2**16
_PACKAGE = b"PK\x03\x04"


@contextmanager
def open_content(
    server: TSC.Server,
    luid: str,
    *,
    limit: int,
    extract: bool = True,
    revision: int | None = None,
) -> Generator[requests.Response]:
    """Open the content of a data source, to be read by `iter_content` of the response.

    Use it within `TableauSite.ask`, which translates the errors of opening and of reading.

    Args:
        limit: the most bytes to read; reading more raises an error.
        extract: whether to include the rows.
        revision: the number of an earlier revision; None for the current content.
    """
    endpoint = server.datasources
    place = luid if revision is None else f"{luid}/revisions/{revision}"
    url = f"{endpoint.baseurl}/{place}/content" + ("" if extract else "?includeExtract=False")
    # Avoid TSC's own call, which writes a file under a name from the server, or fails at that name.
    with downloads_up_to(limit):
        answer = endpoint.get_request(url, parameters={"stream": True})
    with closing(answer):
        yield answer


def save_content(answer: requests.Response, file: Path) -> Path:
    """Write an opened content to a file; return its path, with the suffix of its format."""
    with file.open("wb") as opened:
        for piece in answer.iter_content(_PIECE):
            opened.write(piece)
    with file.open("rb") as opened:
        is_package = opened.read(len(_PACKAGE)) == _PACKAGE
    return file.rename(file.with_suffix(".tdsx" if is_package else ".tds"))


def unpack(package: Path, suffix: str, into: IO[bytes], *, limit: int) -> None:
    """Unpack the only file with this suffix, such as ".hyper", into an open file.

    Raises:
        ValueError: there is no such file, or there are several, or the package is damaged.
        RefreshError: the file unpacks to more than `limit` bytes.
    """
    try:
        with ZipFile(package) as opened:
            members = [item for item in opened.infolist() if item.filename.lower().endswith(suffix)]
            if len(members) != 1:
                raise ValueError(f"the package holds {len(members)} {suffix} files, not one")
            # Accept only Tableau's methods: with others, zipfile may unpack any size at once.
            if members[0].compress_type not in (ZIP_STORED, ZIP_DEFLATED):
                raise ValueError(
                    f"its {suffix} file is compressed in another way than Tableau's are"
                )
            # zipfile never unpacks more than the announced size, and does so in small pieces.
            if (size := members[0].file_size) > limit:
                raise RefreshError(
                    f"its {suffix} file unpacks to {megabytes(size)}, more than {megabytes(limit)}"
                )
            with opened.open(members[0]) as file:
                shutil.copyfileobj(file, into)
    # zipfile raises RuntimeError if a package has a password, and its subclass NotImplementedError
    # if a package uses a feature that zipfile lacks.
    except (BadZipFile, EOFError, RuntimeError, zlib.error) as error:
        raise ValueError(f"the package is damaged: {error}") from error


def megabytes_of(server: TSC.Server, luid: str) -> int | None:
    """Return the size in units of 2^20 bytes, as listed; None if the server hides it."""
    item = server.datasources.get_by_id(luid)
    if item.size is not None:
        return item.size
    # Look at the list of data sources, because Tableau documents the size only for lists.
    matches = items_named(server.datasources, str(item.name), in_full=True)
    return next((listed.size for listed in matches if str(listed.id) == luid), None)


class Downloads(Protocol):
    """Downloads data sources, as `TableauSite` does."""

    def download(self, luid: str, folder: Path, *, limit: int | None = None) -> Path:
        """Write a package into a folder; return its path."""
        ...


@contextmanager
def published_file(
    server: Downloads, remote: RemoteDatasource, *, limit: int | None = None
) -> Generator[Path]:
    """Download a data source; yield its `.hyper` file, of at most `limit` bytes.

    Raises:
        RefreshError: the data source cannot be downloaded, or its file is larger.
        ValueError: the package has no `.hyper` file or several, or is damaged.
    """
    with TemporaryDirectory(prefix="read back ", dir=scratch()) as folder:
        most = None if limit is None else limit + _OTHER_BYTES
        package = server.download(remote.luid, Path(folder), limit=most)
        yield unpacked(package, Path(folder) / "published.hyper", limit=limit)


def unpacked(package: Path, extract: Path, *, limit: int | None = None) -> Path:
    """Write the `.hyper` file of a package, of at most `limit` bytes; return its path.

    Raises:
        RefreshError: the file is larger.
        ValueError: there is no `.hyper` file, or there are several, or the package is damaged.
    """
    with extract.open("wb") as file:
        unpack(package, ".hyper", file, limit=limit or _MOST_EXPANSION * package.stat().st_size)
    return extract
