"""Open an object store; endpoint and credentials are in the environment."""

import re
from functools import cache

from obstore.store import ObjectStore, from_url

from tableau_pipeline.errors import RefusedError

_SCHEMES = ("s3://", "gs://", "abfss://")
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/")


def is_url(location: str) -> bool:
    """Whether a location of snapshots is the URL of an object store, and not a path.

    Raises:
        RefusedError: it is a URL of something else.
    """
    if not _URL.match(location):
        return False
    if not location.startswith(_SCHEMES):
        raise RefusedError(
            f"Snapshots cannot be kept at {location!r}: set PIPELINE_DATA_DIR to a path, or to the "
            f"URL of an object store, which begins with {', '.join(_SCHEMES)}."
        )
    return True


@cache
def opened(url: str) -> ObjectStore:
    """Return the store with the objects below a URL; it keeps its connections.

    The variables are those of the store's own SDKs, such as AWS_ACCESS_KEY_ID.
    """
    return from_url(url)
