"""Make an archive of the Java classes that Spark loads, once for each installation.

With the archive, Spark starts faster. `python -m tableau_pipeline.snapshots.make_class_archive`
makes the archive in half a minute.
"""

import os
import sys
import tempfile
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tableau_pipeline.snapshots.spark import NO_WARNINGS, class_archive, spark_session
from tableau_pipeline.snapshots.spark_internals import end_jvm
from tableau_pipeline.snapshots.version_store import SnapshotStore
from tableau_pipeline.snapshots.write import write_partitions, write_snapshot


def make_class_archive() -> Path | None:
    """Run Spark once, and store the classes that Java has loaded.

    Returns:
        the path of the archive; None if this Java cannot make an archive. For example, some
        releases of Java lack the archive of their own classes, on which this archive builds.
    """
    archive = class_archive()
    archive.parent.mkdir(parents=True, exist_ok=True)
    # Write to a new path, and then rename the file. Java does not overwrite an archive, and crashes
    # if an archive is incomplete.
    with tempfile.TemporaryDirectory(dir=archive.parent) as scratch:
        new = Path(scratch, archive.name)
        archive.unlink(missing_ok=True)
        options = (f'-XX:ArchiveClassesAtExit="{new}"', *NO_WARNINGS)
        os.environ["SPARK_SUBMIT_OPTS"] = " ".join(options)
        session = spark_session(master="local[2]")
        _typical_work(session, Path(scratch))
        # Wait for the regular end of Java, because Java writes the archive then.
        end_jvm(session)
        if not new.exists():
            return None
        new.replace(archive)
    return archive


def _typical_work(session: SparkSession, folder: Path) -> None:
    """Do the work of a typical model: read files, join, aggregate, and store the result."""
    frame = session.range(1000).selectExpr(
        "id",
        "concat('row ', id % 7) AS name",
        "cast(id / 3 as decimal(10, 2)) AS amount",
        "date_add(date'2024-01-01', cast(id % 5 as int)) AS day",
        "timestamp_seconds(id) AS at",
        "if(id % 5 = 0, null, id / 7) AS rate",
    )
    frame.write.parquet(str(folder / "parquet"))
    frame.write.csv(str(folder / "csv"), header=True)
    rows = session.read.parquet(str(folder / "parquet"))
    texts = session.read.csv(str(folder / "csv"), header=True, schema=frame.schema)
    totals = texts.groupBy("name").agg(F.sum("amount").alias("total"), F.max("at").alias("last"))
    store = SnapshotStore(folder / "snapshots")
    write_snapshot(rows.join(totals, "name"), store, asset_key="whole", run_id="")
    write_partitions(
        rows.where("day < date'2024-01-03'").orderBy("id"),
        store,
        expression="day",
        partitions=["2024-01-01", "2024-01-02"],
        asset_key="partitions",
        run_id="",
    )


if __name__ == "__main__":
    if make_class_archive() is None:
        sys.stderr.write(
            "This Java makes no archive of classes, so Spark will take some seconds longer to "
            "start. OpenJDK 17 or newer, as Debian or Homebrew packages it, makes one.\n"
        )
