"""Many rows: comparison in little memory, split updates, and models written by a cluster."""

import logging
import os
import random
import re
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake
from tableauhyperapi import TableName

from tableau_pipeline.core.declaration import Table
from tableau_pipeline.core.policies import Append, Diff, Partitions, Policy
from tableau_pipeline.core.snapshot import DataFile, Fingerprint, Part, Snapshot
from tableau_pipeline.errors import RefreshError, RefusedError
from tableau_pipeline.extracts.affected_rows import (
    NotProvedError,
    TableChange,
    TableVersion,
    in_slices,
)
from tableau_pipeline.extracts.builder import Builder
from tableau_pipeline.extracts.delta import RowCounts, build_delta
from tableau_pipeline.hyper.parquet import LocalFolder
from tableau_pipeline.hyper.process import Hyperd, connect
from tableau_pipeline.hyper.types import ROW_HASH, Column
from tableau_pipeline.lake.delta import read
from tableau_pipeline.objects.local_files import LocalCopies
from tableau_pipeline.refresh.decide import NoChange, Publish
from tableau_pipeline.snapshots.version_store import SnapshotStore
from tableau_pipeline_tests.cluster.deployment import alone, can_be_hidden
from tableau_pipeline_tests.refresh.support.models import flights, spark_name
from tableau_pipeline_tests.refresh.support.partitioned import materialize
from tableau_pipeline_tests.refresh.support.pipeline import Pipeline
from tableau_pipeline_tests.refresh.support.proxies import At
from tableau_pipeline_tests.refresh.support.shipping import refused, ships
from tableau_pipeline_tests.spark_cluster import DRIVER, spark_cluster

KEY = ("l_orderkey", "l_linenumber")
MB = 2**20

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def contents(tmp_path_factory: pytest.TempPathFactory) -> tuple[pa.Table, pa.Table]:
    """Return two tables of the same length; one row in 1,024 differs."""
    folder = tmp_path_factory.mktemp("lineitem")
    program = str(Path(sys.executable).with_name("tpchgen-cli"))
    subprocess.run(
        [program, "parquet", "-q", "-s", "1", "-T", "lineitem", "-o", str(folder)], check=True
    )
    rows = pq.read_table(folder / "lineitem.parquet", columns=[*KEY, "l_partkey"])
    number = pa.array(range(rows.num_rows))
    is_changed = pc.equal(pc.bit_wise_and(number, 1023), 0)
    more = pc.add(rows["l_partkey"], pc.cast(is_changed, pa.int64()))
    return rows, rows.set_column(2, "l_partkey", more)


def _hashed(folder: Path, number: int, rows: pa.Table) -> TableVersion:
    # The products overflow 64 bits; the resulting hash is good enough for these tests.
    factors = (0x9E3779B97F4A7C15 - 2**64, 0x2545F4914F6CDD1D, 0x632BE59BD9B4E019)
    hashes = pa.array([0] * rows.num_rows, pa.int64())
    for name, factor in zip(rows.column_names, factors, strict=True):
        mixed = pc.multiply(pc.bit_wise_xor(hashes, pc.cast(rows[name], pa.int64())), factor)
        hashes = pc.bit_wise_xor(mixed, pc.shift_right(mixed, 29))
    path = folder / f"{number}.parquet"
    pq.write_table(rows.append_column(ROW_HASH, hashes), path)
    total = pc.call_function("sum", [pc.cast(hashes, pa.decimal128(38, 0))]).as_py()
    content = Fingerprint(rows=rows.num_rows, hash_sum=int(total))
    file = DataFile(name=path.name, rows=rows.num_rows, size=path.stat().st_size)
    snapshot = Snapshot(
        folder=LocalFolder(folder),
        asset_key="lineitem",
        number=number,
        created_at=datetime.now(UTC),
        run_id="test",
        columns=tuple(Column(field.name, spark_name(field.type)) for field in rows.schema),
        parts=(Part(version=number, fingerprint=content, files=(file,)),),
    )
    return TableVersion(snapshot, content, None)


def _of_lake(folder: Path, number: int, rows: pa.Table) -> TableVersion:
    lake = folder / str(number)
    write_deltalake(lake, rows)
    copies = LocalCopies(folder / "copies", limit=0)
    snapshot = read(str(lake), asset_key="lineitem", number=0, copies=copies)
    return TableVersion(snapshot, snapshot.fingerprint, None)


@pytest.mark.parametrize(
    ("write", "share"), [(_hashed, 1), (_of_lake, 4)], ids=["stored hashes", "lake"]
)
def test_more_rows_than_memory(
    contents: tuple[pa.Table, pa.Table],
    tmp_path: Path,
    write: Callable[..., TableVersion],
    share: int,
):
    """Prevents: an update fails if its rows need more memory than hyperd may use."""
    old, new = (
        write(tmp_path, number, rows.slice(0, rows.num_rows // share))
        for number, rows in enumerate(contents)
    )
    change = TableChange(
        table=Table("lineitem", "lineitem", policy=Diff(KEY)),
        columns=new.snapshot.columns,
        new=new,
        old=old,
        published_rows=old.content.rows,
    )
    with Hyperd(memory=256 * MB // share, telemetry=False) as hyper:
        delta = build_delta(
            hyper,
            tmp_path / "payload.hyper",
            changes=[change],
            targets={"lineitem": TableName("Extract", "Extract")},
            models={},
        )
    changed = -(-change.published_rows // 1024)
    assert delta.counts == {"lineitem": RowCounts(deleted=changed, inserted=changed)}


def _aggregate(hyper: Hyperd, tried: list[int], slices: int) -> int:
    """Run a query that needs about 320 MB in one slice; record the number of slices."""
    tried.append(slices)
    with connect(hyper) as connection:
        connection.execute_list_query(
            "SELECT LENGTH(STRING_AGG(REPEAT('x', 10000000), '')) "
            f"FROM GENERATE_SERIES(1, {32 // slices})"
        )
    return slices


@pytest.mark.parametrize(
    ("rows", "tried"), [(1, [1, 4]), (64 * MB, [32])], ids=["failure", "estimate"]
)
def test_more_slices(rows: int, tried: list[int]):
    """Prevents: a comparison fails although it would succeed with more slices."""
    found: list[int] = []
    with Hyperd(memory=256 * MB, telemetry=False) as hyper:
        in_slices(partial(_aggregate, hyper, found), rows=rows, memory=hyper.memory)
    assert found == tried


def test_no_number_of_slices_is_enough():
    """Prevents: a comparison that always needs too much memory is tried without end."""
    found: list[int] = []
    with (
        Hyperd(memory=256 * MB, telemetry=False) as hyper,
        pytest.raises(NotProvedError, match="comparing 7 rows needs more than hyperd's memory"),
    ):
        in_slices(lambda slices: _aggregate(hyper, found, 1), rows=7, memory=hyper.memory)
    assert len(found) == 5


def test_a_refresh_without_enough_memory_to_compare(pipeline: Pipeline):
    """Prevents: a refresh that lacks memory fails, or sends the whole table and gives no reason."""
    pipeline.policy(Diff(("flight_id",)))
    pipeline.run()
    with Hyperd(memory=256 * MB, telemetry=False) as hyper:
        # This simulates a billion rows: even the smallest slice needs more memory than hyperd may
        # use.
        hyper.memory = 1
        shipped = ships(pipeline, flights(9), hyper=lambda: hyper)
    why = "comparing 9 rows needs more than hyperd's memory of 0.00 MB; raise HYPER_MEMORY_LIMIT"
    assert shipped.whole == why


def test_recorded_rows_without_enough_memory(pipeline: Pipeline, tmp_path: Path):
    """Prevents: a rollback that lacks memory shows a long error of hyperd."""
    with Hyperd(memory=32 * MB, telemetry=False) as hyper:
        builder = Builder(
            declaration=pipeline.declaration,
            models={},
            snapshots=SnapshotStore(tmp_path),
            hyper=lambda: hyper,
            folder=tmp_path,
            now=lambda: datetime.now(UTC),
            log=logging.getLogger(__name__),
            pinned_for=("It cannot go back", "Choose another version"),
        )
        lacks_memory = pytest.raises(RefreshError, match="raise HYPER_MEMORY_LIMIT")
        with connect(hyper) as connection, lacks_memory, builder.reading():
            connection.execute_list_query(
                "SELECT word FROM GENERATE_SERIES(1, 50000000) words(word) GROUP BY word"
            )


@pytest.mark.parametrize("is_published", [False, True], ids=["publish", "update"])
def test_a_refresh_without_enough_memory_for_keys(pipeline: Pipeline, is_published: bool):
    """Prevents: a memory limit that a user has set shows as a long error of hyperd."""
    pipeline.policy(Diff(("word",)))
    if is_published:
        pipeline.model("flights", _words(10))
        pipeline.run()
    pipeline.model("flights", _words(50_000))
    expected = "The rows need more than hyperd's memory of 33.55 MB; raise HYPER_MEMORY_LIMIT"
    with Hyperd(memory=32 * MB, telemetry=False) as hyper:
        around = {"hyper": lambda: hyper}
        refused(lambda: pipeline.run(around=around), expected, error=RefreshError)


def _words(number: int) -> pa.Table:
    return pa.table({"word": [f"{each:08}" * 50 for each in range(number)]})


LIMIT = 400_000
DAY_ROWS = 2000
KIND_ROWS = 5000
POLICIES: dict[str, Policy] = {
    "diff": Diff(("id",)),
    "composite": Diff(("day", "id")),
    "append": Append("id", 5),
    "dates": Append("day", "2 days"),
    "partitions": Partitions("kind"),
}


def notes(rows: int, *, seed: int = 1) -> pa.Table:
    """Return rows that hardly compress, 2,000 a day; another seed changes every tenth row."""
    first, other = random.Random(1), random.Random(seed)
    texts = [f"{first.random()}" for _ in range(rows)]
    texts[::10] = [f"{other.random()}" for _ in texts[::10]]
    days = [date(2020, 1, 1) + timedelta(days=number // DAY_ROWS) for number in range(rows)]
    return pa.table(
        {
            "id": pa.array(range(rows), pa.int64()),
            "day": pa.array(days, pa.date32()),
            "kind": pa.array([f"kind {number // KIND_ROWS}" for number in range(rows)]),
            "text": pa.array(texts),
        }
    )


def give(pipeline: Pipeline, rows: pa.Table) -> None:
    (table,) = pipeline.declaration.tables
    if isinstance(table.policy, Partitions):
        kinds = rows["kind"].unique().to_pylist()
        parts = {kind: rows.filter(pc.equal(rows["kind"], kind)) for kind in kinds}
        materialize(pipeline, parts)
    else:
        pipeline.model("flights", rows)


@pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)
def test_pieces_add_up(new_pipeline: Callable[..., Pipeline], policy: Policy):
    """Prevents: a split update loses or repeats rows, or one of its pieces is too large."""
    pipeline = new_pipeline(on_oversize="split", payload_limit_mb=LIMIT / 1e6)
    pipeline.policy(policy)
    give(pipeline, notes(50_000))
    pipeline.run()
    give(pipeline, notes(75_000, seed=2 if isinstance(policy, Diff) else 1))
    before = set(pipeline.extract_files())
    report = pipeline.run()
    assert pipeline.wrong() == []
    sizes = [each.stat().st_size for each in pipeline.extract_files() if each not in before]
    assert len(sizes) == report.plan.pieces > 1
    assert max(sizes) <= LIMIT
    assert report.extract.size == sum(sizes)
    assert report.extract.rows == {"flights": report.tables["flights"].inserted}
    assert "split, because the update of" in report.plan.reason
    assert isinstance(pipeline.run().plan, NoChange)


@pytest.mark.slow
def test_a_later_piece_is_refused(new_pipeline: Callable[..., Pipeline]):
    """Prevents: a refresh that has sent half of its rows counts as refused and is not retried."""
    pipeline = new_pipeline(on_oversize="split", payload_limit_mb=LIMIT / 1e6)
    pipeline.policy(POLICIES["diff"])
    give(pipeline, notes(50_000))
    pipeline.run()
    give(pipeline, notes(75_000, seed=2))

    def refuse() -> None:
        raise RefusedError("You may not write.")

    with pytest.raises(RefreshError, match="after part 1 took effect: You may not") as caught:
        pipeline.run(around={"around_server": lambda server: At(server, "update", refuse, nth=2)})
    assert not isinstance(caught.value, RefusedError)
    assert isinstance(pipeline.run().plan, Publish)
    assert pipeline.wrong() == []


MODEL = """
import sys
from pathlib import Path
from tableau_pipeline.resources import resources_from_env
from tableau_pipeline.snapshots.version_store import SnapshotStore
from tableau_pipeline.snapshots.write import write_snapshot

spark = resources_from_env()["spark"].spark_session
spark.udf.register("carrier", lambda number: ("AA", "UA")[number % 2])
frame = spark.sql("SELECT id AS flight_id, carrier(id) AS carrier FROM range(0, 1000, 1, 4)")
write_snapshot(frame, SnapshotStore(Path(sys.argv[1])), asset_key="flights", run_id="cluster")
"""


@pytest.mark.skipif(not can_be_hidden(), reason="mount namespaces are not allowed here")
@pytest.mark.long
def test_files_on_the_disks_of_workers(tmp_path: Path):
    """Prevents: a run is green although workers have written its rows to their own disks."""
    # `lost` is next to the folders of the workers, and each worker sees an empty folder there.
    conf, lost = tmp_path / "conf", tmp_path / "cluster" / "lost"
    for folder in (conf, lost):
        folder.mkdir(parents=True)
    kept = {key: value for key, value in os.environ.items() if not key.startswith("SPARK_")}
    with spark_cluster(lost.parent, start=alone) as cluster:
        (conf / "spark-defaults.conf").write_text(f"{DRIVER}\nspark.master {cluster.url}\n")
        done = subprocess.run(
            [sys.executable, "-c", MODEL, str(lost / "snapshots")],
            # Driver and workers run on this host, so the workers can use this Python.
            env={**kept, "SPARK_CONF_DIR": str(conf), "PYSPARK_PYTHON": sys.executable},
            capture_output=True, text=True, check=False, timeout=900,
        )  # fmt: skip
    problem = 'Model "flights": Spark counted 1,000 rows, but the files in .* hold 0. Does every'
    assert re.search(problem, done.stderr), done.stderr
    assert not list(lost.rglob("*.json"))
