"""Publish a Parquet file unread: the server makes the extract from it."""

import shutil
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from tableau_pipeline.extracts.parquet_file import ParquetFile, parquet_file
from tableau_pipeline.refresh.plan.decide import Options
from tableau_pipeline.refresh.refresh import Refresh
from tableau_pipeline.refresh.report import Report


def refresh_as_is(refresh: Refresh, file: Path, options: Options) -> Report:
    """Make a published data source of one table equal to a file, or report why not.

    It is planned like every refresh: ownership, guards, schema changes and analysts' work count.

    Raises:
        RefusedError: publishing would be wrong or unsafe; nothing was sent or overwritten.
        RefreshError: publishing failed; the next run finds out what became of it.
    """
    return refresh.run_with(_content(refresh, file, options), options)


@contextmanager
def _content(refresh: Refresh, file: Path, options: Options) -> Generator[ParquetFile]:
    bare = refresh.builder({})
    if options.dry_run:
        yield parquet_file(file, bare)
        return
    # What is sent must be what was checked, even if somebody writes the file meanwhile.
    bare.folder.mkdir(parents=True, exist_ok=True)
    copy = bare.folder / f"{refresh.journal.owner.run_id}.parquet"
    shutil.copyfile(file, copy)
    try:
        yield parquet_file(copy, bare)
    finally:
        copy.unlink()
