"""Upload a file in blocks."""

import gc
import os
from collections.abc import Iterator
from pathlib import Path

import tableauserverclient as TSC
from tableauserverclient.server import RequestFactory

from tableau_pipeline.core.units import megabytes
from tableau_pipeline.errors import RefusedError

_VARIABLE = "TSC_CHUNK_SIZE_MB"
# The client's megabyte, for TSC_CHUNK_SIZE_MB, _USUAL and _LARGEST. All other MB are 10^6 bytes.
_MEGABYTE = 2**20
_MOST_BLOCKS = 1000
# A block is in memory several times while it is sent; TSC's own blocks have 50.
_USUAL = 16
# A request may have 64, which includes more than the block.
_LARGEST = 63


def blocks(file: Path, size: int) -> Iterator[bytes]:
    """Yield a file in blocks of `size` bytes; the last one may be smaller."""
    with file.open("rb") as opened:
        while block := opened.read(size):
            yield block


def block_size(size: int) -> int:
    """Return the block size in bytes for a file of this many bytes.

    Raises:
        RefusedError: the file needs larger blocks than are allowed, or than TSC_CHUNK_SIZE_MB
            sets.
    """
    needed = -(-size // (_MOST_BLOCKS * _MEGABYTE))
    if needed > _LARGEST:
        raise RefusedError(
            f"The file has {megabytes(size)}; Tableau takes {_MOST_BLOCKS} blocks of "
            f"{megabytes(_LARGEST * _MEGABYTE)} at most. Publish fewer rows or columns, by "
            "`retain` for instance."
        )
    chosen = _asked_for() or max(_USUAL, needed)
    if chosen < needed:
        raise RefusedError(
            f"{_VARIABLE} is {chosen}: the file would need more than the {_MOST_BLOCKS} blocks "
            f"that Tableau takes. Unset it, or set it to {needed} or more."
        )
    return chosen * _MEGABYTE


def send_block(server: TSC.Server, upload: str, block: bytes) -> None:
    """Append one block to an upload."""
    request, content_type = RequestFactory.Fileupload.chunk_req(block)
    server.fileuploads.append(upload, request, content_type)
    # The answer and its request refer to each other, which keeps the block in memory.
    gc.collect(1)


def _asked_for() -> int | None:
    value = os.environ.get(_VARIABLE)
    if not value:
        return None
    if not value.isdecimal() or int(value) < 1:
        raise RefusedError(
            f"{_VARIABLE} is {value!r}: set it to a whole number of MB, or unset it."
        )
    return int(value)
