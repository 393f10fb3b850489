"""The files of a sandbox, and the upload sessions whose blocks are among them."""

import os
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO

from tableau_sandbox.identity import new_luid
from tableau_sandbox.store.database import Database


class Files:
    """The files of a sandbox. Their names are generated, never taken from a request.

    `incoming/` has the files of current requests and jobs, and is emptied at every start.
    `uploads/` has the blocks of upload sessions, and `content/` has the published files. Other
    users of the machine can read none of them.
    """

    def __init__(self, data_dir: Path):
        self.incoming = data_dir / "incoming"
        self.uploads = data_dir / "uploads"
        self.content = data_dir / "content"
        shutil.rmtree(self.incoming, ignore_errors=True)
        for folder in (self.incoming, self.uploads, self.content):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def new_incoming(self) -> Path:
        """Return the path of a new file to work on."""
        return self.incoming / f"{new_luid()}.upload"

    def keep(self, file: Path, folder: Path, *, suffix: str) -> str:
        """Move a complete file into a permanent folder; return its name there.

        The file is complete before it gets its name, so no name ever refers to a partial file.
        """
        # hyperd creates files that others may read.
        file.chmod(0o600)
        return file.replace(folder / f"{file.stem}{suffix}").name

    def sweep(self, folder: Path, keep: Iterable[str]) -> None:
        """Remove all files of a folder except those to keep."""
        kept = set(keep)
        for file in folder.iterdir():
            if file.name not in kept:
                file.unlink(missing_ok=True)


def open_private(path: Path) -> BinaryIO:
    """Open a new file to write, which other users of the machine cannot read."""
    return open(path, "wb", opener=lambda name, flags: os.open(name, flags, 0o600))


def join(blocks: list[Path]) -> Path:
    """Append all blocks to the first one, and return it; the others are removed."""
    first, *others = blocks
    with first.open("ab") as whole:
        for block in others:
            with block.open("rb") as part:
                shutil.copyfileobj(part, whole, 1 << 20)
            block.unlink()
    return first


def blocks(database: Database, luid: str) -> dict[int, str]:
    """Return the files of the blocks so far, by sequence number and in order."""
    rows = database.rows(
        "SELECT sequence, file FROM upload_block WHERE upload = ? ORDER BY sequence", luid
    )
    return {row["sequence"]: row["file"] for row in rows}


def uploaded_bytes(database: Database, luid: str) -> int:
    """Return the size of all blocks so far, in bytes."""
    rows = database.rows("SELECT bytes FROM upload_block WHERE upload = ?", luid)
    return sum(row["bytes"] for row in rows)
