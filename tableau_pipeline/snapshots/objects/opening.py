"""Recognize the URL of an object store, and open it."""

import re
from functools import cache
from urllib.parse import urlsplit

from obstore.exceptions import BaseError
from obstore.store import ObjectStore

from tableau_pipeline.errors import RefusedError
from tableau_pipeline.snapshots.objects.arrow_files import open_store

# What a store answers, or that it did not answer.
StoreError = BaseError
_SCHEMES = ("s3://", "gs://", "abfss://")
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/")


def is_url(location: str) -> bool:
    """Whether a location of snapshots is the URL of an object store, and not a path.

    Raises:
        RefusedError: it is a URL of something else, or holds more than bucket and folder.
    """
    if not _URL.match(location):
        return False
    if not location.startswith(_SCHEMES):
        raise RefusedError(
            f"Snapshots cannot be kept at {location!r}: set PIPELINE_DATA_DIR to a path, or to the "
            f"URL of an object store, which begins with {', '.join(_SCHEMES)}."
        )
    parts = urlsplit(location)
    # The URL shows in the web UI, and what it says beyond bucket and folder would have no effect.
    if parts.password or (parts.username and parts.scheme != "abfss"):
        raise RefusedError(
            "The URL of the object store holds credentials: leave them out of PIPELINE_DATA_DIR, "
            "and set the variables of the store, such as AWS_ACCESS_KEY_ID."
        )
    if parts.query or parts.fragment:
        raise RefusedError(
            'The URL of the object store holds "?" or "#": set PIPELINE_DATA_DIR to a bucket and a '
            "folder alone, and credentials by the variables of the store."
        )
    return True


@cache
def opened(url: str) -> ObjectStore:
    """Return the store with the objects below a URL; it keeps its connections."""
    return open_store(url)
