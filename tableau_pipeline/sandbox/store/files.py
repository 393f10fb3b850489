import shutil
from collections.abc import Iterable
from pathlib import Path

from tableau_pipeline.sandbox.identity import new_luid


class Files:
    """The files of a sandbox. Their names are made here, never taken from a request.

    `incoming/` holds what requests and jobs work on and is emptied at every start, `uploads/` the
    blocks of upload sessions, `content/` what is published.
    """

    def __init__(self, data_dir: Path):
        self.incoming = data_dir / "incoming"
        self.uploads = data_dir / "uploads"
        self.content = data_dir / "content"
        shutil.rmtree(self.incoming, ignore_errors=True)
        for folder in (self.incoming, self.uploads, self.content):
            folder.mkdir(parents=True, exist_ok=True)

    def new_incoming(self) -> Path:
        """A path for a new file to work on."""
        return self.incoming / f"{new_luid()}.upload"

    def keep(self, file: Path, folder: Path, *, suffix: str) -> str:
        """Move a finished file into a lasting folder; returns its name there.

        It is complete before it gets its name, so a name never leads to half a file.
        """
        return file.replace(folder / f"{file.stem}{suffix}").name

    def sweep(self, folder: Path, keep: Iterable[str]) -> None:
        """Remove all files of a folder but those to keep."""
        kept = set(keep)
        for file in folder.iterdir():
            if file.name not in kept:
                file.unlink(missing_ok=True)


def join(blocks: list[Path]) -> Path:
    """Append all blocks to the first one, which is returned; the others are removed."""
    first, *others = blocks
    with first.open("ab") as whole:
        for block in others:
            with block.open("rb") as part:
                shutil.copyfileobj(part, whole, 1 << 20)
            block.unlink()
    return first
