"""Find files, and their format."""

import glob
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Literal

from tableau_pipeline.errors import RefusedError

Format = Literal["csv", "json", "parquet"]
FORMATS: Mapping[str, Format] = MappingProxyType(
    {".csv": "csv", ".tsv": "csv", ".json": "json", ".jsonl": "json", ".parquet": "parquet"}
)
COMPRESSED = (".gz", ".bz2")


@dataclass(frozen=True, slots=True)
class Files:
    """Files of one format and schema.

    Attributes:
        reader: options, such as "sep" or "dateFormat"; `options.py` lists them.
        columns: their types as Spark's DDL, "id bigint, day date"; None to infer them, which
            reads the files twice.
    """

    paths: tuple[Path, ...]
    format: Format
    reader: Mapping[str, str] = field(default_factory=dict)
    columns: str | None = None


def found_files(pattern: str) -> tuple[Path, ...]:
    """Return the files that match a path or pattern; for a folder, the files in it.

    Raises:
        RefusedError: no file matches.
    """
    path = Path(pattern)
    found = sorted(path.iterdir()) if path.is_dir() else map(Path, sorted(glob.glob(pattern)))  # noqa: PTH207
    # Like Spark, this passes over hidden files and markers such as _SUCCESS.
    files = tuple(each.absolute() for each in found if each.is_file() and each.name[0] not in "._")
    # A file's own name may contain brackets or stars, which the pattern would interpret.
    if path.is_file():
        files = (path.absolute(),)
    if not files:
        raise RefusedError(f'"{pattern}" matches no file; it is relative to {Path.cwd()}')
    return files


def files_version(pattern: str) -> str:
    """Return a text that changes whenever a file is added, removed or written again.

    It tells files apart by path, size and time of the last change, and reads none. It covers the
    files that `read_files` reads.

    Raises:
        RefusedError: no file matches.
    """
    files = [(str(path), path.stat()) for path in found_files(pattern)]
    known = [[path, stat.st_size, stat.st_mtime_ns] for path, stat in files]
    digest = hashlib.sha256(json.dumps(known).encode()).hexdigest()[:16]
    return f"{len(files):,} file{'s' * (len(files) > 1)}, {digest}"


def format_of(paths: Sequence[Path]) -> Format:
    """Return the format by the file name suffixes; `x.csv.gz` is CSV.

    Raises:
        RefusedError: the suffixes are unknown, or of several formats.
    """
    first, *others = {FORMATS.get(ending(path)) for path in paths}
    if first is None or others:
        endings = ", ".join(sorted({path.suffix or path.name for path in paths}))
        raise RefusedError(
            f"The suffixes {endings} do not determine one format: set format: csv, json or parquet"
        )
    return first


def ending(path: Path) -> str:
    """Return the last suffix that determines a file's format, in lower case."""
    endings = [each.lower() for each in path.suffixes]
    if endings and endings[-1] in COMPRESSED:
        endings.pop()
    return endings[-1] if endings else ""


def digests(paths: Sequence[Path]) -> dict[Path, str]:
    """Return the SHA-256 of each file's bytes, in hexadecimal."""
    found = {}
    for path in paths:
        with path.open("rb") as file:
            found[path] = hashlib.file_digest(file, "sha256").hexdigest()
    return found
