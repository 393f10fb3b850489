"""Read files exactly with Arrow, and write their rows to new Parquet files, without a JVM.

Each file is copied first, and only the copy is read. So the content cannot change during the
reading, and the recorded digest belongs to the bytes that were read.
"""

import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa

from tableau_pipeline.errors import FilesError
from tableau_pipeline.hyper.types import Column
from tableau_pipeline.ingest.columns import Columns, check_names, declared_columns, spark_schema
from tableau_pipeline.ingest.csv_files import csv_chunks, csv_names, prefetched
from tableau_pipeline.ingest.errors import BadRows, Chunk
from tableau_pipeline.ingest.json_files import check_names_seen, json_chunks, json_columns
from tableau_pipeline.ingest.options import Files, ReadOptions, ending, text_options
from tableau_pipeline.ingest.parquet_rows import new_parquet, parquet_rows
from tableau_pipeline.ingest.values import (
    Guess,
    arrow_type,
    call_arrow,
    converted,
    is_text,
    without_nulls,
)
from tableau_pipeline.objects.arrow_files import SPARK_SCHEMA
from tableau_pipeline.objects.local_files import scratch

# The number of bytes to copy at once.
_BLOCK = 1 << 20
# The most bytes of text to keep in memory between inferring types and converting values.
_MOST_KEPT = 1 << 28


@dataclass(frozen=True, slots=True)
class RowFile:
    """A file that was read (`source`), and the Parquet file with its good rows (`path`).

    Attributes:
        digest: the SHA-256 of the bytes of `source`, in hexadecimal.
    """

    source: Path
    digest: str
    path: Path


@dataclass(frozen=True, slots=True)
class Rows:
    """The good rows of files, in one Parquet file for each file, in the order of the files.

    Attributes:
        bad: the rows of text files that were left out; None if there are none.
    """

    columns: Columns
    files: tuple[RowFile, ...]
    bad: BadRows | None = None

    def check(self) -> None:
        """Refuse bad rows.

        Raises:
            FilesError: there are bad rows.
        """
        if self.bad:
            raise FilesError(self.bad.message())


def read_rows(files: Files, folder: Path, *, nested: bool = False) -> Rows:
    """Read files, and write the good rows of each to a Parquet file in a folder.

    Args:
        folder: a new or empty folder.
        nested: whether to store arrays, maps and structs of Parquet files as JSON text. If not, the
            Parquet files lack these columns, but `Rows.columns` lists them.

    Raises:
        RefusedError: a file cannot be read exactly, or lacks required columns.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix="files ", dir=scratch()) as copies:
        pairs = [_copied(path, Path(copies, str(at))) for at, path in enumerate(files.paths)]
        copied = replace(files, paths=tuple(copy for copy, _ in pairs))
        targets = [folder / f"{at:05}.parquet" for at, _ in enumerate(pairs)]
        if files.format == "parquet":
            columns, bad = parquet_rows(copied, targets, nested=nested), None
        else:
            columns, bad = _text_rows(copied, targets)
    read = zip(files.paths, pairs, targets, strict=True)
    row_files = tuple(RowFile(source, digest, path) for source, (_, digest), path in read)
    return Rows(columns, row_files, bad)


def _copied(path: Path, folder: Path) -> tuple[Path, str]:
    """Copy a file into a new folder under its own name; return the copy and its SHA-256.

    Raises:
        FilesError: the file changed during the copy, so the copy may mix two versions of the file.
    """
    folder.mkdir()
    copy, digest = folder / path.name, hashlib.sha256()
    with path.open("rb") as source, copy.open("xb") as target:
        before = _stamp(source.fileno())
        for block in iter(partial(source.read, _BLOCK), b""):
            digest.update(block)
            target.write(block)
        if _stamp(source.fileno()) != before or _stamp(path) != before:
            raise FilesError(
                f"{path} changed while it was read: publish it again once it is complete"
            )
    return copy, digest.hexdigest()


def _stamp(file: int | Path) -> tuple[int, ...]:
    """Return values that change if the file is changed or replaced."""
    status = os.fstat(file) if isinstance(file, int) else file.stat()
    return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def _text_rows(files: Files, targets: Sequence[Path]) -> tuple[Columns, BadRows | None]:
    """Write the good rows of text files to Parquet files; return the columns and the bad rows."""
    tabs = all(ending(path) == ".tsv" for path in files.paths)
    options = text_options(files.reader, files.format, tabs=tabs)
    columns = declared_columns(files.columns) if files.columns else None
    kept: dict[Path, Sequence[Chunk]] = {}
    if files.format == "csv":
        columns = _csv_columns(files, options, columns, kept)
    else:
        columns = columns or json_columns(files.paths, options)
    for column in columns.columns:
        if arrow_type(column.type) is None:
            raise FilesError(
                f'column "{column.name}": {"text" if files.format == "csv" else "JSON"} cannot '
                f"hold {column.type}: declare it as string",
            )
    # Drop the lengths and collations of texts, because a snapshot has only plain texts.
    kinds = ["string" if is_text(column.type) else column.type for column in columns.columns]
    stored = replace(columns, columns=tuple(map(Column, columns.names, kinds)))
    metadata = {SPARK_SCHEMA: spark_schema(stored).encode()}
    bad, seen = BadRows(files, columns), set[str]()
    for path, target in zip(files.paths, targets, strict=True):
        if path in kept:
            chunks = iter(kept.pop(path))
        elif files.format == "csv":
            chunks = csv_chunks(path, options, len(columns.columns))
        else:
            chunks = json_chunks(path, options, columns.columns, seen)
        _write_rows(path, chunks, target, options=options, bad=bad, metadata=metadata)
    # Check names after the last file, because any object may omit a name.
    check_names_seen(seen, columns.names)
    return stored, bad if bad.total else None


def _write_rows(
    path: Path,
    chunks: Iterator[Chunk],
    target: Path,
    *,
    options: ReadOptions,
    bad: BadRows,
    metadata: Mapping[bytes, bytes],
) -> None:
    """Write the good rows of a file to `target`; count the bad rows in `bad`."""
    columns = bad.columns.columns
    schema = pa.schema([pa.field(column.name, arrow_type(column.type)) for column in columns])

    def values(texts: pa.Array, column: Column) -> tuple[pa.Array, pa.Array]:
        if bad.files.format == "csv":
            texts = without_nulls(texts, column.type, options)
        values = converted(texts, column.type, options)
        return values, call_arrow("and_", texts.is_valid(), values.is_null())

    with new_parquet(target, schema) as parquet, ThreadPoolExecutor() as pool:
        # While threads convert a chunk, other threads split the next chunk and write the previous
        # chunk.
        written = pool.submit(lambda: None)
        for chunk in prefetched(chunks):
            arrays, wrong = zip(*pool.map(values, chunk.columns, columns), strict=True)
            rows = pa.RecordBatch.from_arrays([*arrays], schema=schema)
            if chunk.problems or any(misfits.true_count for misfits in wrong):
                rows = rows.filter(bad.add(path, chunk, wrong))
            written.result()
            written = pool.submit(parquet.write_batch, rows)
        written.result()
        parquet.add_key_value_metadata(metadata)


def _csv_columns(
    files: Files,
    options: ReadOptions,
    declared: Columns | None,
    kept: dict[Path, Sequence[Chunk]],
) -> Columns:
    """Return the columns of CSV files.

    Args:
        kept: receives the chunks of small files, so that these files are split into values only
            once.

    Raises:
        FilesError: a header differs from the declared columns, or from the header of the first
            file.
    """
    check_sep = "sep" not in map(str.lower, files.reader)
    headers = [csv_names(path, options, check_sep=check_sep) for path in files.paths]
    names, where = (declared.names, "columns") if declared else (headers[0], files.paths[0].name)
    for path, header in zip(files.paths, headers, strict=True):
        is_bare = not options.header and len(header) == len(names)
        if not is_bare and [*map(str.casefold, header)] != [*map(str.casefold, names)]:
            raise FilesError(
                f"The {'header' if options.header else 'first line'} of {path.name} has "
                f"{len(header)} columns ({', '.join(header)}), but {where} has "
                f"{', '.join(names)}: declare all columns, in the order of the file, and publish "
                "files with other columns one by one",
            )
    if declared:
        return declared
    check_names(names, where)
    guesses = [Guess(options) for _ in names]
    free = _MOST_KEPT
    for path in files.paths:
        chunks = list[Chunk]()
        # Ignore bad rows here: they are reported when their values are converted.
        for chunk in csv_chunks(path, options, len(names)):
            for guess, texts in zip(guesses, chunk.columns, strict=True):
                guess.see(without_nulls(texts, "bigint", options))
            free -= sum(texts.nbytes for texts in chunk.columns)
            chunks.append(chunk)
            if free <= 0:
                chunks.clear()
        if free > 0:
            kept[path] = chunks
    return Columns(
        tuple(Column(name, guess.type) for name, guess in zip(names, guesses, strict=True))
    )
