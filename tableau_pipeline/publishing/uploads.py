"""Uploads in blocks, with their progress in the log."""

import logging
from typing import Any

import tableauserverclient as TSC
from tableauserverclient.server.endpoint.fileuploads_endpoint import Fileuploads


class ReportedUploads(Fileuploads):
    """TSC's uploads, which tell after each block how far they are."""

    def __init__(self, server: TSC.Server, log: logging.Logger) -> None:
        super().__init__(server)
        self._log = log

    def append(self, upload_id: str, data: Any, content_type: str) -> Any:
        """Send a block."""
        item = super().append(upload_id, data, content_type)
        self._log.info("Uploaded %s MB", item.file_size)
        return item
