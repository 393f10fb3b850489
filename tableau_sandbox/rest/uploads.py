"""Upload sessions: a file in blocks, to be used by one later request."""

import re
from pathlib import Path

from tableau_sandbox.errors import not_found, refusal
from tableau_sandbox.rest.answers import Element, Reply, megabytes
from tableau_sandbox.rest.requests import Call
from tableau_sandbox.rest.router import Route
from tableau_sandbox.services import Services
from tableau_sandbox.store import files

_SCOPES = ("tableau:file_uploads:create",)


def initiate_upload(services: Services, call: Call) -> Reply:
    """Open an upload session."""
    if not call.user.may_publish:
        raise refusal("403004", "The user is not allowed to upload files.")
    services.sweep_uploads()
    luid = files.open_upload(
        services.database,
        site=call.site.luid,
        user=call.user.luid,
        expires_at=services.now_seconds() + services.options.upload_hours * 3600,
    )
    return Reply(201, (_upload_element(services, luid),))


def append_to_upload(services: Services, call: Call) -> Reply:
    """Append one block; without a sequence number, it is the next one."""
    luid = call.path["upload"]
    check_is_open(services, call, luid)
    if call.body.strip():
        raise refusal("400019", "The request payload of an append must be empty.")
    if call.attachment is None:
        raise refusal("400020", "The request contains no file.")
    with services.database.transaction():
        # Another request may have ended the session since.
        check_is_open(services, call, luid)
        known = files.blocks(services.database, luid)
        most = services.options.upload_blocks
        sequence = _sequence(call.query.get("sequenceID"), known=known, most=most)
        file = services.files.keep(call.attachment.path, services.files.uploads, suffix=".block")
        files.add_block(
            services.database, luid, sequence=sequence, file=file, size=call.attachment.size
        )
    return Reply(200, (_upload_element(services, luid),))


def consume_upload(services: Services, call: Call, luid: str) -> Path:
    """End an upload session; return its complete file, in `incoming/`.

    Raises:
        RestError: 404015, this user has no such session; 400000, it is empty, or lacks a block.
    """
    # The lock keeps the blocks from being swept between the end of their session and their move.
    # They are moved after it, so that a crash never leaves a session without its blocks.
    with services.database.lock:
        check_is_open(services, call, luid)
        known = files.blocks(services.database, luid)
        _check_is_complete(known, luid)
        files.close_upload(services.database, luid)
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
        # The session stays open: its client may still send what is missing.
        raise refusal("400000", f"The upload session '{luid}' lacks the block {missing[0]}.")


def _sequence(text: str | None, *, known: dict[int, str], most: int) -> int:
    if text is None:
        sequence = max(known, default=0) + 1
    elif re.fullmatch(r"[0-9]{1,6}", text) and int(text) > 0:
        sequence = int(text)
    else:
        raise refusal("400000", f"'{text}' is no sequence number.")
    if sequence in known:
        raise refusal("400000", f"The block {sequence} was uploaded already.")
    if len(known) >= most or sequence > most:
        raise refusal("400016", f"A file may have no more than {most} blocks.")
    return sequence


def check_is_open(services: Services, call: Call, luid: str) -> None:
    """Refuse an upload session that has ended, or belongs to another user.

    Raises:
        RestError: 404015.
    """
    is_open = files.upload_is_open(
        services.database,
        luid,
        site=call.site.luid,
        user=call.user.luid,
        now=services.now_seconds(),
    )
    if not is_open:
        raise not_found("File upload", luid, code="404015")


def _upload_element(services: Services, luid: str) -> Element:
    size = megabytes(files.uploaded_bytes(services.database, luid))
    return Element("fileUpload", {"uploadSessionId": luid, "fileSize": size})


ROUTES = (
    Route("POST", "sites/{site}/fileUploads", initiate_upload, scopes=_SCOPES),
    Route(
        "PUT",
        "sites/{site}/fileUploads/{upload}",
        append_to_upload,
        attachment="tableau_file",
        scopes=_SCOPES,
    ),
)
