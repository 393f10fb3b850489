"""Recognize the URL of an object store, and open it."""

import re
from contextlib import AbstractContextManager
from functools import cache

from obstore.store import ObjectStore

from tableau_pipeline.errors import RefreshError, RefusedError
from tableau_pipeline.objects.arrow_files import open_store
from tableau_pipeline.objects.causes import in_words
from tableau_pipeline.objects.shown_urls import scheme_and_host

_SCHEMES = ("s3://", "gs://", "abfss://")
# Hadoop's names of S3.
_CONNECTOR = re.compile("^s3[an]://")
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/")


class StoreError(RefreshError):
    """The object store refused a request, failed, or did not answer.

    If it was to write something, the store may have done so.
    """


def store_errors(doing: str, url: str) -> AbstractContextManager[None]:
    """Turn errors of the library that speaks to the store into ours.

    Args:
        doing: what may fail, such as "Reading".
        url: of what.

    Raises:
        StoreError: names the URL, the cause and the remedy.
    """
    return in_words(doing, canonical(url), kind=StoreError)


def is_url(location: str, *, setting: str) -> bool:
    """Whether a location is the URL of an object store, and not a path.

    Args:
        setting: what the location is the value of, such as PIPELINE_DATA_DIR.

    Raises:
        RefusedError: it is a URL of something else, or holds more than bucket and folder.
    """
    if not _URL.match(location):
        return False
    host = location.partition("://")[2].partition("/")[0]
    # The container of Azure stands before its account, where others have a user.
    named = host.replace("@", "", 1) if location.startswith("abfss://") else host
    # Before all else, as a refusal shows in the web UI. A secret with "/" ends in the folder.
    is_store = location.startswith(_SCHEMES)
    if "@" in named or (":" in named and (is_store or "@" in location)):
        raise RefusedError(
            f"{setting} ({scheme_and_host(location)}) holds more than a bucket and a folder: leave "
            "credentials out of it, and set the variables of the store, such as AWS_ACCESS_KEY_ID."
        )
    if not is_store:
        raise RefusedError(
            f"{setting} is not the URL of an object store ({scheme_and_host(location)}): set it "
            f"to a path, or to a URL that begins with {', '.join(_SCHEMES)}."
        )
    # Some clients would take "%" for an escape, and others not.
    if set("?#%") & set(location):
        raise RefusedError(
            f'{setting} ({scheme_and_host(location)}) holds "?", "#" or "%": set it to a bucket '
            "and a folder alone, without escapes, and credentials by the variables of the store."
        )
    return True


def canonical(url: str) -> str:
    """Return a URL with the scheme that stores have themselves, and not that of a connector."""
    return _CONNECTOR.sub("s3://", url)


def bucket_and_key(url: str) -> tuple[str, str]:
    """Split "s3://bucket/folder/file" into "s3://bucket" and "folder/file"."""
    scheme, _, rest = canonical(url).partition("://")
    bucket, _, key = rest.partition("/")
    return f"{scheme}://{bucket}", key


@cache
def opened(url: str) -> ObjectStore:
    """Return the store with the objects below a URL; it keeps its connections."""
    return open_store(url)
