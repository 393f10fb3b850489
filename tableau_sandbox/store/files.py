"""The files of a sandbox, with the blocks of upload sessions."""

import os
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO

from tableau_sandbox.identity import new_luid
from tableau_sandbox.store.database import Database


class Files:
    """The files of a sandbox. The sandbox generates all names, and takes no name from a request.

    `incoming/` has the files of current requests and jobs; every start empties this folder.
    `uploads/` has the blocks of upload sessions, and `content/` has the published files. Other
    users of the machine cannot read the files.
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
        """Move a complete file into a permanent folder; return the name of the file there.

        The file is complete before it gets this name, so the name never refers to a partial file.
        """
        # hyperd may have created the file, and then other users of the machine may read it.
        file.chmod(0o600)
        return file.replace(folder / f"{file.stem}{suffix}").name

    def sweep(self, folder: Path, keep: Iterable[str]) -> None:
        """Remove the files of a folder, except the files to keep."""
        kept = set(keep)
        for file in folder.iterdir():
            if file.name not in kept:
                file.unlink(missing_ok=True)


def open_private(path: Path) -> BinaryIO:
    """Open a new file for writing; other users of the machine cannot read the file."""
    return open(path, "wb", opener=lambda name, flags: os.open(name, flags, 0o600))


def join(blocks: list[Path]) -> Path:
    """Append all blocks to the first block, remove the others, and return the path of the first."""
    first, *others = blocks
    with first.open("ab") as whole:
        for block in others:
            with block.open("rb") as part:
                shutil.copyfileobj(part, whole, 1 << 20)
            block.unlink()
    return first


def blocks(database: Database, luid: str) -> dict[int, str]:
    """Return the files of an upload's blocks by sequence number, in this order."""
    rows = database.rows(
        "SELECT sequence, file FROM upload_block WHERE upload = ? ORDER BY sequence", luid
    )
    return {row["sequence"]: row["file"] for row in rows}


def uploaded_bytes(database: Database, luid: str) -> int:
    """Return the size of an upload's blocks in bytes."""
    rows = database.rows("SELECT bytes FROM upload_block WHERE upload = ?", luid)
    return sum(row["bytes"] for row in rows)
