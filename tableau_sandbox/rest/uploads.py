"""Upload sessions: a client uploads a file in blocks, and one later request uses the file."""

import math
import re
from pathlib import Path

from tableau_sandbox.errors import malformed, not_found, refusal
from tableau_sandbox.identity import new_luid
from tableau_sandbox.rest.answers import Reply, element, megabytes
from tableau_sandbox.rest.requests import Call
from tableau_sandbox.rest.router import Route
from tableau_sandbox.services import Services
from tableau_sandbox.store import files

_LIMIT_SETTING = "api.server.update_uploaded_file.max_size_in_mb"


def initiate_upload(services: Services, call: Call) -> Reply:
    """Open an upload session."""
    if not call.user.may_publish:
        raise refusal("403004", "The user is not allowed to upload files.")
    services.sweep_uploads()
    # Real servers use this form.
    luid = f"1:{new_luid().replace('-', '')}-0:0"
    ends = services.now_seconds() + services.options.upload_hours * 3600
    key = {"site": call.site.luid, "user": call.user.luid}
    services.database.add("upload", luid=luid, expires_at=ends, **key)
    return _reply(201, services, luid)


def append_to_upload(services: Services, call: Call) -> Reply:
    """Append one block. Without a sequence number, the block follows the last block."""
    luid = call.path["upload"]
    _check_is_open(services, call, luid)
    if call.body.strip():
        raise refusal("400019", "The request payload of an append must be empty.")
    if call.attachment is None:
        raise refusal("400020", "The request contains no file.")
    with services.database.transaction():
        # Another request may have ended the session since the first check.
        _check_is_open(services, call, luid)
        known = files.blocks(services.database, luid)
        most = services.options.upload_blocks
        keeps_order = services.options.block_numbers == "ignored"
        number = None if keeps_order else call.query.get("sequenceID")
        sequence = _sequence(number, known=known, most=most)
        file = services.files.keep(call.attachment.path, services.files.uploads, suffix=".block")
        block = {"sequence": sequence, "file": file, "bytes": call.attachment.size}
        services.database.add("upload_block", upload=luid, **block)
    return _reply(200, services, luid)


def consume_upload(services: Services, call: Call, luid: str, *, limit: float = math.inf) -> Path:
    """End an upload session, and return its complete file, in `incoming/`.

    Args:
        limit: the most bytes that the file may have.

    Raises:
        RestError: 404015, the user has no open session with this LUID; 400000, the session has no
            blocks, has too many bytes, or lacks a block.
    """
    # Hold the lock: a sweep must not remove the blocks between the session's end and their move.
    # Move the blocks after that end, so that a crash never leaves a session without its blocks.
    with services.database.lock:
        _check_is_open(services, call, luid)
        size = files.uploaded_bytes(services.database, luid)
        if size > limit:
            setting = f"{_LIMIT_SETTING} is set to {limit / (1 << 20):g}"
            raise malformed(f"The payload has {size} bytes; {setting}.")
        known = files.blocks(services.database, luid)
        _check_is_complete(known, luid)
        services.database.delete("upload", luid=luid)
        moved = [
            (services.files.uploads / name).replace(services.files.new_incoming())
            for name in known.values()
        ]
    return files.join(moved)


def _check_is_complete(known: dict[int, str], luid: str) -> None:
    if not known:
        raise refusal("400000", f"Nothing was uploaded to the upload session '{luid}'.")
    missing = [number for number in range(1, max(known)) if number not in known]
    if missing:
        # The session stays open, because the client may still send the missing block.
        raise refusal("400000", f"The upload session '{luid}' lacks the block {missing[0]}.")


def _sequence(text: str | None, *, known: dict[int, str], most: int) -> int:
    if text is None:
        sequence = max(known, default=0) + 1
    elif re.fullmatch(r"[0-9]{1,6}", text) and int(text) > 0:
        sequence = int(text)
    else:
        raise refusal("400000", f"'{text}' is not a sequence number.")
    if sequence in known:
        raise refusal("400000", f"The block {sequence} was uploaded already.")
    if len(known) >= most or sequence > most:
        raise refusal("400016", f"A file may have no more than {most} blocks.")
    return sequence


def _check_is_open(services: Services, call: Call, luid: str) -> None:
    """Refuse an upload session that has ended or belongs to another user.

    Raises:
        RestError: 404015, the user has no open session with this LUID.
    """
    sql = "SELECT 1 FROM upload WHERE luid = ? AND site = ? AND user = ? AND expires_at > ?"
    key = luid, call.site.luid, call.user.luid
    if services.database.row(sql, *key, services.now_seconds()) is None:
        raise not_found("File upload", luid, code="404015")


def _reply(status: int, services: Services, luid: str) -> Reply:
    size = megabytes(files.uploaded_bytes(services.database, luid))
    return Reply(status, element("fileUpload", {"uploadSessionId": luid, "fileSize": size}))


_UPLOADS = "sites/{site}/fileUploads"
_SCOPES = ("tableau:file_uploads:create",)
ROUTES = (
    Route("POST", _UPLOADS, initiate_upload, _SCOPES),
    Route("PUT", f"{_UPLOADS}/{{upload}}", append_to_upload, _SCOPES, attachment="tableau_file"),
)
