"""Build the file as a run of this pipeline does: store the model's snapshot, then the extract."""

import logging
from datetime import UTC, datetime
from pathlib import Path

from pyspark.sql import DataFrame

from benchmarks.peers.protocol import contend
from tableau_pipeline.core.declaration import Declaration, Table
from tableau_pipeline.extracts.builder import Builder
from tableau_pipeline.hyper.process import hyper_process
from tableau_pipeline.snapshots.version_store import SnapshotStore
from tableau_pipeline.snapshots.write import write_snapshot


def _build(frame: DataFrame, folder: Path) -> Path:
    store = SnapshotStore(folder / "snapshots")
    snapshot = write_snapshot(frame, store, asset_key="rows", run_id="bench")
    files = Builder(
        declaration=Declaration(
            key="rows", name="Rows", project="Default", tables=(Table("rows", "rows"),)
        ),
        models={"rows": snapshot},
        snapshots=store,
        hyper=hyper_process,
        folder=folder / "extracts",
        now=lambda: datetime.now(UTC),
        log=logging.getLogger(__name__),
    )
    return files.file(files.desired(None)).path


if __name__ == "__main__":
    contend(_build)
