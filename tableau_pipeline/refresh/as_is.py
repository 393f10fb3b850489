"""Publish a Parquet file unread: the server makes the extract from it."""

import shutil
from pathlib import Path

from tableau_pipeline.extracts.parquet_file import parquet_file
from tableau_pipeline.refresh.attempt import Attempt
from tableau_pipeline.refresh.plan.decide import Options
from tableau_pipeline.refresh.recover.history import read_history
from tableau_pipeline.refresh.refresh import Refresh
from tableau_pipeline.refresh.report import Report


def refresh_as_is(refresh: Refresh, file: Path, options: Options) -> Report:
    """Make a published data source of one table equal to a file, or report why not.

    It is planned like every refresh: ownership, guards, schema changes and analysts' work count.

    Raises:
        RefusedError: publishing would be wrong or unsafe; nothing was sent or overwritten.
        RefreshError: publishing failed; the next run finds out what became of it.
    """
    return refresh.summarized(options, lambda: _refreshed(refresh, file, options))


def _refreshed(refresh: Refresh, file: Path, options: Options) -> Report:
    bare = refresh.content({})
    if options.dry_run:
        history = read_history(refresh.journal.records())
        with refresh.server() as server:
            content = parquet_file(file, bare)
            return Attempt(refresh, server, content, history, options).dry_run()
    with refresh.claimed() as claim:
        # What is sent must be what was checked, even if somebody writes the file meanwhile.
        bare.folder.mkdir(parents=True, exist_ok=True)
        copy = bare.folder / f"{refresh.run_id}.parquet"
        shutil.copyfile(file, copy)
        try:
            content = parquet_file(copy, bare)
            with refresh.server() as server:
                return Attempt(refresh, server, content, claim.history, options).run(claim)
        finally:
            copy.unlink()
