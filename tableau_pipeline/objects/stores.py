"""Open object stores at URLs, and copy their objects to the local disk for hyperd."""

import re
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from posixpath import commonpath

import obstore
from obstore.store import LocalStore, ObjectStore

from tableau_pipeline.errors import RefreshError, SettingError
from tableau_pipeline.objects.arrow_files import open_store
from tableau_pipeline.objects.errors import translate_errors
from tableau_pipeline.objects.lent import lent_store, names_for_messages
from tableau_pipeline.objects.local_files import LocalCopies

_SCHEMES = ("s3://", "gs://", "abfss://")
# The schemes of Hadoop for S3.
_CONNECTOR = re.compile("^s3[an]://")
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/")


class StoreError(RefreshError):
    """The object store refused a request, failed, or did not answer.

    A failed write may still have taken effect.
    """


def store_errors(doing: str, url: str, *, may_lack: bool = False) -> AbstractContextManager[None]:
    """Within the block, turn errors of obstore into `StoreError`.

    Args:
        doing: the action that may fail, such as "Reading".
        url: the URL of the object or folder.
        may_lack: whether to raise `FileNotFoundError` for a missing object.

    Raises:
        StoreError: a request failed; the message names the URL, the cause and the remedy.
    """
    place = canonical(url)
    names = names_for_messages(place)
    return translate_errors(doing, place, kind=StoreError, may_lack=may_lack, names=names)


def is_url(location: str, *, setting: str) -> bool:
    """Return true for the URL of an object store, and false for a path.

    Args:
        setting: the setting with this location, such as PIPELINE_DATA_DIR.

    Raises:
        RefusedError: the location is another kind of URL, or contains more than a bucket and a
            folder.
    """
    if not _URL.match(location):
        return False
    host = location.partition("://")[2].partition("/")[0]
    # In a URL of Azure, the container is before the "@"; in other URLs, a user is before the "@".
    host_part = host.replace("@", "", 1) if location.startswith("abfss://") else host
    is_store = location.startswith(_SCHEMES)
    # Refuse credentials, because messages and the web UI show the URL. A secret may contain "/", so
    # an "@" in the folder may end a secret. Refuse "%", which only some clients take for an escape.
    holds_more = "@" in host_part or (":" in host_part and (is_store or "@" in location))
    if holds_more or (is_store and set("?#%") & set(location)):
        raise SettingError(
            f"{setting} ({scheme_and_host(location)}) holds more than a bucket and a folder: leave "
            'out credentials, "?", "#" and "%", and set the variables of the store, such '
            "as AWS_ACCESS_KEY_ID.",
        )
    if not is_store:
        raise SettingError(
            f"{setting} is not the URL of an object store ({scheme_and_host(location)}): set it "
            f"to a path, or to a URL that begins with {', '.join(_SCHEMES)}.",
        )
    return True


_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*(?=:/)")
_BEFORE_HOST = re.compile(r"^([A-Za-z][A-Za-z0-9+.-]*:)?/*")


def scheme_and_host(url: str) -> str:
    """Return the scheme and host of a URL, as "https://host"; the URL may be invalid."""
    scheme = _SCHEME.match(url)
    # Show nothing before the last "@", because a secret may contain any character, even "/".
    rest = url.rpartition("@")[2] if "@" in url else _BEFORE_HOST.sub("", url)
    return f"{scheme[0].lower() + '://' if scheme else ''}{re.split('[/?#;:]', rest)[0]}"


def canonical(url: str) -> str:
    """Return a URL with the scheme "s3" in place of "s3a" or "s3n"; leave other URLs unchanged."""
    return _CONNECTOR.sub("s3://", url)


def bucket_and_key(url: str) -> tuple[str, str]:
    """Split "s3://bucket/folder/file" into "s3://bucket" and "folder/file"."""
    scheme, _, rest = canonical(url).partition("://")
    bucket, _, key = rest.partition("/")
    return f"{scheme}://{bucket}", key


@cache
def store_at(place: Path | str) -> ObjectStore:
    """Return the store for a folder or URL; the same store in each call, to reuse connections."""
    return open_store(place) if isinstance(place, str) else LocalStore(place, mkdir=True)


def _store_of(place: str, key: str) -> ObjectStore:
    """Return the store at a place, with the credentials for the object or folder at a key."""
    return lent_store(place, f"{place}/{key}") or store_at(place)


# The most downloads at a time; a model usually has several files.
_THREADS = 8


@dataclass(frozen=True, slots=True)
class ObjectFolder:
    """A folder in an object store.

    Attributes:
        url: the URL of the storage.
        key: the key of the folder, without a trailing slash; "" for the whole bucket.
    """

    url: str
    key: str
    copies: LocalCopies

    def uri(self, name: str) -> str:
        """Return the URL of a file or folder in this folder."""
        return f"{self.url}/{self._key(name)}"

    def full_name(self, name: str) -> str:
        """Return the URL of a file."""
        return self.uri(name)

    def paths(self, names: Sequence[str]) -> tuple[str, ...]:
        """Return the paths of local copies of files; download files without a copy."""
        with ThreadPoolExecutor(_THREADS) as executor:
            paths = tuple(executor.map(self._copy, names))
        self.copies.make_room()
        return paths

    def missing(self, names: Sequence[str]) -> list[str]:
        """Return the URLs of the files that do not exist."""
        if not names:
            return []
        # List all files together, which takes fewer requests than a request for each file or
        # folder.
        folder = commonpath(self._key(name).rpartition("/")[0] for name in names)
        with store_errors("Listing", f"{self.url}/{folder}"):
            chunks = obstore.list(_store_of(self.url, folder), folder)
            existing = {entry["path"] for chunk in chunks for entry in chunk}
        return [self.uri(name) for name in names if self._key(name) not in existing]

    def _key(self, name: str) -> str:
        return f"{self.key}/{name}" if self.key else name

    def _copy(self, name: str) -> str:
        def fetch(target: Path) -> None:
            key = self._key(name)
            with store_errors("Reading", self.uri(name)), target.open("wb") as file:
                for chunk in obstore.get(_store_of(self.url, key), key).stream():
                    file.write(chunk)

        return self.copies.path(self.uri(name), fetch)


def read_object(url: str) -> bytes | None:
    """Return the content of an object; None if the object does not exist."""
    bucket, key = bucket_and_key(url)
    with suppress(FileNotFoundError), store_errors("Reading", url, may_lack=True):
        return bytes(obstore.get(_store_of(bucket, key), key).bytes())
    return None


# The bytes to read at first. A footer is rarely larger, and reading too many bytes costs less than
# a second request.
_FOOTER = 64 << 10


def list_folder(url: str) -> Iterator[str]:
    """Yield the names of the objects that are directly in a folder, not in a subfolder."""
    bucket, key = bucket_and_key(url)
    with store_errors("Listing", url):
        objects = obstore.list_with_delimiter(_store_of(bucket, key), key)["objects"]
    for entry in objects:
        yield entry["path"].rpartition("/")[2]


def read_footer(url: str) -> tuple[bytes, int]:
    """Return the end of a Parquet file, with the whole footer; and the file's size in bytes.

    Raises:
        FileNotFoundError: the object does not exist.
        StoreError: the store failed, or did not answer.
    """
    bucket, key = bucket_and_key(url)
    with store_errors("Reading", url, may_lack=True):
        store = _store_of(bucket, key)
        # Ask for the size first, because Azure accepts no range that counts from the end.
        size = obstore.head(store, key)["size"]
        start = max(0, size - _FOOTER)
        end = bytes(obstore.get_range(store, key, start=start, end=size))
        # A Parquet file ends with the length of its footer, and four bytes that mark the format.
        footer = int.from_bytes(end[-8:-4], "little") + 8
        if len(end) < min(footer, size):
            end = bytes(obstore.get_range(store, key, start=max(0, size - footer), end=size))
        return end, size
