"""Where the Parquet files of a model are."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

from tableau_pipeline.hyper.types.literals import string_literal


@runtime_checkable
class Folder(Protocol):
    """The files of a model, each named by its path below the folder."""

    def uri(self, name: str) -> str:
        """Return the URI of a file or of a folder in this one."""

    def full_name(self, name: str) -> str:
        """Return where a file is, for people: its path or URL."""

    def paths(self, names: Sequence[str]) -> tuple[str, ...]:
        """Return the paths of files; those that are not on this machine are fetched."""

    def sources(self, names: Sequence[str]) -> tuple[str, ...]:
        """Return SQL by which hyperd finds files. It may hold credentials: never log it."""

    def missing(self, names: Sequence[str]) -> list[str]:
        """Return those of these files that do not exist, by their full names."""


@dataclass(frozen=True, slots=True)
class LocalFolder:
    """A folder of a disk; `path` is absolute. A file elsewhere is named by its absolute path."""

    path: Path

    def uri(self, name: str) -> str:
        """Return the URI of a file or of a folder in this one."""
        return (self.path / name).as_uri()

    def full_name(self, name: str) -> str:
        """Return the path of a file."""
        return str(self.path / name)

    def paths(self, names: Sequence[str]) -> tuple[str, ...]:
        """Return the paths of files."""
        folder = str(self.path)
        return tuple(name if name.startswith("/") else f"{folder}/{name}" for name in names)

    def sources(self, names: Sequence[str]) -> tuple[str, ...]:
        """Return the paths of files as SQL."""
        return tuple(map(string_literal, self.paths(names)))

    def missing(self, names: Sequence[str]) -> list[str]:
        """Return the paths at which there is no file."""
        return [path for path in self.paths(names) if not Path(path).exists()]
