"""Download published data sources, and unpack the `.hyper` files in them."""

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from tableau_pipeline.core.drift import RemoteDatasource
from tableau_pipeline.objects.stores import scratch
from tableau_pipeline.publishing.rest import unpack
from tableau_pipeline.publishing.site import TableauSite

# Bytes of a package beside its extract: the `.tds`, and what images people put into it.
_AROUND = 10**7
# How many times the size of its package a file may unpack to: its pages are compressed already.
_LARGEST = 50


@contextmanager
def published_file(
    server: TableauSite, remote: RemoteDatasource, *, limit: int | None = None
) -> Generator[Path]:
    """Download a data source; yield its `.hyper` file, of at most `limit` bytes.

    Raises:
        RefreshError: it cannot be downloaded, or is larger.
        ValueError: it has no such file, or is damaged.
    """
    with TemporaryDirectory(prefix="read back ", dir=scratch()) as folder:
        most = None if limit is None else limit + _AROUND
        package = server.download(remote.luid, Path(folder), limit=most)
        yield unpacked(package, Path(folder) / "published.hyper", limit=limit)


def unpacked(package: Path, extract: Path, *, limit: int | None = None) -> Path:
    """Write the `.hyper` file of a package, of at most `limit` bytes; return its path.

    Raises:
        RefreshError: it is larger.
        ValueError: there is no such file, or it is damaged.
    """
    with extract.open("wb") as file:
        unpack(package, ".hyper", file, limit=limit or _LARGEST * package.stat().st_size)
    return extract
