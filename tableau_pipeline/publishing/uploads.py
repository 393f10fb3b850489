"""Upload a file in blocks, for the one request that will use the upload."""

import gc
import logging
import os
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, BinaryIO

import tableauserverclient as TSC

from tableau_pipeline.errors import RefusedError, SettingError, UnreachableError
from tableau_pipeline.outcome import Code
from tableau_pipeline.publishing.errors import UPLOAD_REMEDIES
from tableau_pipeline.publishing.tsc_internals import RequestFactory
from tableau_pipeline.rendering import megabytes

_VARIABLE = "TSC_CHUNK_SIZE_MB"
# TSC measures blocks in units of 2^20 bytes. In our own messages, MB means 10^6 bytes.
_CLIENT_MEGABYTE = 2**20
_MOST_BLOCKS = 1000
# The usual size of a block in units of 2^20 bytes. TSC's default is 50. We use less, because
# several copies of a block are in memory during an upload.
_USUAL_BLOCK = 16
# The largest size of a block in units of 2^20 bytes. A request may have 64 of these units, and
# needs the rest for its other parts.
_LARGEST_BLOCK = 63
# How many blocks are sent at once, and how often we try to send a block.
_AT_ONCE, _ATTEMPTS = 4, 3


def block_size(size: int) -> int:
    """Return the size of blocks for a file; both sizes are in bytes.

    Raises:
        RefusedError: the file needs larger blocks than Tableau allows, or than the variable
            TSC_CHUNK_SIZE_MB sets. Or the variable is not a positive whole number.
    """
    needed = -(-size // (_MOST_BLOCKS * _CLIENT_MEGABYTE))
    if needed > _LARGEST_BLOCK:
        raise RefusedError(
            f"The file has {megabytes(size)}; Tableau takes {_MOST_BLOCKS} blocks of "
            f"{megabytes(_LARGEST_BLOCK * _CLIENT_MEGABYTE)} at most. Publish fewer rows or "
            "columns, by `retain` for instance.",
            code=Code.TOO_LARGE,
        )
    if not (asked := os.environ.get(_VARIABLE)):
        return max(_USUAL_BLOCK, needed) * _CLIENT_MEGABYTE
    if not asked.isdecimal() or int(asked) < max(1, needed):
        raise SettingError(
            f"{_VARIABLE} is {asked!r}: Tableau takes {_MOST_BLOCKS} blocks of a file. Unset it, "
            f"or set it to a whole number of MB, {max(1, needed)} or more.",
        )
    return int(asked) * _CLIENT_MEGABYTE


def upload_file(
    file: Path, tsc: TSC.Server, ask: Callable[..., Any], log: logging.Logger, *, in_any_order: bool
) -> str:
    """Upload a file; return the id of the upload.

    Args:
        ask: a function that runs a call and translates its errors, such as `TableauSite.ask`.
        in_any_order: whether the site is known to put numbered blocks in order. If so, several
            blocks are sent at once, and a block is sent again if its answer is lost. A site that
            ignores the numbers would store the blocks in the order of arrival.
    """
    size, sent = file.stat().st_size, 0
    largest = block_size(size)
    upload = _Upload(ask(tsc.fileuploads.initiate, remedies=UPLOAD_REMEDIES), tsc, ask, log)
    with file.open("rb") as opened:
        numbered = zip(count(1), _blocks(opened, largest), strict=False)
        several = in_any_order and size > largest
        for block in upload.at_once(numbered) if several else upload.one_by_one(numbered):
            sent += block
            of_total = f" of {megabytes(size)}" if sent < size else ""
            share = {"share": sent / size}
            log.info("Uploaded %s%s", megabytes(sent), of_total, extra=share)
    return upload.id


def _blocks(file: BinaryIO, size: int) -> Iterator[bytes]:
    while block := file.read(size):
        yield block


@dataclass(frozen=True, slots=True)
class _Upload:
    id: str
    tsc: TSC.Server
    ask: Callable[..., Any]
    log: logging.Logger

    def one_by_one(self, numbered: Iterator[tuple[int, bytes]]) -> Iterator[int]:
        """Send the blocks one after the other; yield the size of each block."""
        for _, block in numbered:
            self.ask(partial(self._put, block))
            # The response and the request reference each other, so the block would stay in memory.
            gc.collect(1)
            yield len(block)

    def at_once(self, numbered: Iterator[tuple[int, bytes]]) -> Iterator[int]:
        """Send several numbered blocks at once, each in a thread; yield the size of each block."""
        with ThreadPoolExecutor(_AT_ONCE) as threads:
            under_way: set[Future[int]] = set()
            for number, block in numbered:
                under_way.add(threads.submit(self._put_again, block, number))
                # Read further blocks of the file only when a thread is free.
                while len(under_way) >= _AT_ONCE:
                    done, under_way = wait(under_way, return_when=FIRST_COMPLETED)
                    yield from (sent.result() for sent in done)
                    gc.collect(1)
            yield from (sent.result() for sent in under_way)

    def _put_again(self, block: bytes, number: int) -> int:
        """Send a block, and send it again if the answer is lost; return the size of the block."""
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                self.ask(partial(self._put, block, number))
                break
            except UnreachableError:
                if attempt == _ATTEMPTS:
                    raise
                self.log.warning("No answer to block %s of an upload: sending it again", number)
            except RefusedError:
                # If the server refuses a repetition, the first attempt may have arrived: go on. If
                # the block is missing, the server will refuse the whole file.
                if attempt == 1:
                    raise
                break
        return len(block)

    def _put(self, block: bytes, number: int | None = None) -> None:
        request, content_type = RequestFactory.Fileupload.chunk_req(block)
        endpoint = self.tsc.fileuploads
        if number is None:
            endpoint.append(self.id, request, content_type)
        else:
            url = f"{endpoint.baseurl}/{self.id}?sequenceID={number}"
            endpoint.put_request(url, request, content_type)
