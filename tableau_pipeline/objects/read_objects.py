"""Read objects by their URLs."""

from collections.abc import Iterator
from errno import ENOENT

import obstore

from tableau_pipeline.objects.causes import is_absent
from tableau_pipeline.objects.opening import bucket_and_key, opened, store_errors

# A footer rarely is larger, and a request costs more than its bytes.
_FOOTER = 64 << 10


def read_object(url: str) -> bytes | None:
    """Return the content of an object; None if it does not exist."""
    bucket, key = bucket_and_key(url)
    with store_errors("Reading", url):
        try:
            return bytes(obstore.get(opened(bucket), key).bytes())
        except FileNotFoundError as error:
            if is_absent(error):
                return None
            raise


def list_folder(url: str) -> Iterator[str]:
    """Yield the names of the objects in a folder, without those of folders in it."""
    bucket, key = bucket_and_key(url)
    with store_errors("Listing", url):
        objects = obstore.list_with_delimiter(opened(bucket), key)["objects"]
    for found in objects:
        yield found["path"].rpartition("/")[2]


def read_footer(url: str) -> tuple[bytes, int]:
    """Return the end of a Parquet file, with its whole footer, and the bytes of the file.

    Raises:
        FileNotFoundError: there is no such object.
        StoreError: the store failed.
    """
    end, size = _end(url, _FOOTER)
    # A Parquet file ends with the length of its footer, and four bytes that say what it is.
    footer = int.from_bytes(end[-8:-4], "little") + 8
    return _end(url, footer) if len(end) < min(footer, size) else (end, size)


def _end(url: str, count: int) -> tuple[bytes, int]:
    bucket, key = bucket_and_key(url)
    with store_errors("Reading", url):
        try:
            store = opened(bucket)
            # Azure takes no range that counts from the end.
            size = obstore.head(store, key)["size"]
            start = max(0, size - count)
            return bytes(obstore.get_range(store, key, start=start, end=size)), size
        except FileNotFoundError as error:
            if is_absent(error):
                raise FileNotFoundError(ENOENT, "there is no such object", url) from None
            raise
