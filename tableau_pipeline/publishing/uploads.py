"""Uploads in blocks, with their progress in the log."""

import gc
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import tableauserverclient as TSC
from tableauserverclient.server.endpoint.fileuploads_endpoint import Fileuploads

# A block is in memory several times while it is sent. TSC's own blocks are of 50 MB.
_BLOCK_MB = 16


class ReportedUploads(Fileuploads):
    """TSC's uploads in smaller blocks, which tell after each how far they are."""

    def __init__(self, server: TSC.Server, log: logging.Logger) -> None:
        super().__init__(server)
        self._log = log

    def _read_chunks(self, file: Path | str) -> Iterator[bytes]:
        size = int(os.environ.get("TSC_CHUNK_SIZE_MB", _BLOCK_MB)) * 2**20
        with Path(file).open("rb") as opened:
            while block := opened.read(size):
                yield block

    def append(self, upload_id: str, data: Any, content_type: str) -> Any:
        """Send a block."""
        item = super().append(upload_id, data, content_type)
        # The answer and its request hold each other, and with them the block.
        gc.collect(1)
        self._log.info("Uploaded %s MB", item.file_size)
        return item
