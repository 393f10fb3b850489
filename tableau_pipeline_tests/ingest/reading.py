"""Functions that read files as a refresh does."""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tableau_pipeline.errors import RefusedError
from tableau_pipeline.ingest.errors import BadRows
from tableau_pipeline.ingest.options import Files, format_of
from tableau_pipeline.ingest.rows import read_rows


def read_all(path: Path, **settings: Any) -> tuple[pa.Table, BadRows]:
    """The good rows of a file, as Spark gets them, and the bad rows."""
    format_ = settings.pop("format", None) or format_of([path])
    files = Files((path,), format_, **settings)
    with TemporaryDirectory() as folder:
        rows = read_rows(files, Path(folder))
        tables = [pq.read_table(each.path) for each in rows.files]
        return pa.concat_tables(tables), rows.bad or BadRows(files, rows.columns)


def read_unless(path: Path, *reasons: str, **settings: Any) -> list[tuple] | None:
    """The rows of a file, or None if the file is refused for one of these reasons."""
    try:
        return read(path, **settings)
    except RefusedError as refused:
        if any(reason in str(refused) for reason in reasons):
            return None
        raise


def read(path: Path, **settings: Any) -> list[tuple]:
    """The rows of a file.

    Raises:
        RefusedError: the file has bad rows.
    """
    table, bad = read_all(path, **settings)
    if bad.total:
        raise RefusedError(bad.message())
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))


def written(file: Path, text: str, encoding: str = "utf-8") -> Path:
    """Write a text into a file, and return the file."""
    file.write_bytes(text.encode(encoding))
    return file
