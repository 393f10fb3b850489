"""Files in blocks: how large these are, and sending one."""

import gc
import os
from collections.abc import Iterator
from pathlib import Path

import tableauserverclient as TSC
from tableauserverclient.server import RequestFactory

from tableau_pipeline.errors import RefusedError

_VARIABLE = "TSC_CHUNK_SIZE_MB"
_MEGABYTE = 2**20
_MOST_BLOCKS = 1000
# A block is in memory several times while it is sent. TSC's own blocks are of 50 MB.
_USUAL = 16
# A request may have 64 MB, and there is more in it than the block.
_LARGEST = 63


def blocks(file: Path, size: int) -> Iterator[bytes]:
    """A file in blocks of `size` bytes; the last one may be smaller."""
    with file.open("rb") as opened:
        while block := opened.read(size):
            yield block


def block_size(size: int) -> int:
    """How many bytes the blocks of a file of this many bytes have.

    Raises:
        RefusedError: no block may be so large, or those that TSC_CHUNK_SIZE_MB asks for are too
            small.
    """
    needed = -(-size // (_MOST_BLOCKS * _MEGABYTE))
    if needed > _LARGEST:
        raise RefusedError(
            f"The file has {size / 2**30:.0f} GB; Tableau takes {_MOST_BLOCKS} blocks of "
            f"{_LARGEST} MB at most. Publish fewer rows or columns, by `retain` for instance."
        )
    megabytes = _asked_for() or max(_USUAL, needed)
    if megabytes < needed:
        raise RefusedError(
            f"{_VARIABLE} is {megabytes}: the file would need more than the {_MOST_BLOCKS} blocks "
            f"that Tableau takes. Unset it, or set it to {needed} or more."
        )
    return megabytes * _MEGABYTE


def send_block(server: TSC.Server, upload: str, block: bytes) -> None:
    """Add one block to an upload."""
    request, content_type = RequestFactory.Fileupload.chunk_req(block)
    server.fileuploads.append(upload, request, content_type)
    # The answer and its request hold each other, and with them the block.
    gc.collect(1)


def _asked_for() -> int | None:
    said = os.environ.get(_VARIABLE)
    if not said:
        return None
    if not said.isdecimal() or int(said) < 1:
        raise RefusedError(f"{_VARIABLE} is {said!r}: set it to a whole number of MB, or unset it.")
    return int(said)
