"""Many rows are compared in little memory: all of TPC-H's lineitem, 6 million rows, in 256 MB."""

import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake
from tableauhyperapi import TableName

from tableau_pipeline.core.declaration import Diff, Table
from tableau_pipeline.core.snapshot import DataFile, Fingerprint, Part, Snapshot
from tableau_pipeline.errors import RefreshError
from tableau_pipeline.extracts.affected import NotProvedError, TableChange, TableVersion, in_slices
from tableau_pipeline.extracts.delta import RowCounts, build_delta
from tableau_pipeline.hyper.parquet import LocalFolder
from tableau_pipeline.hyper.process import Hyperd, connect
from tableau_pipeline.hyper.types import ROW_HASH, Column
from tableau_pipeline.lake.delta import read
from tableau_pipeline.objects.local import LocalCopies
from tableau_pipeline_tests.refresh.support.models import flights, spark_name
from tableau_pipeline_tests.refresh.support.pipeline import Pipeline
from tableau_pipeline_tests.refresh.support.shipping import ships

KEY = ("l_orderkey", "l_linenumber")
MB = 2**20

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def contents(tmp_path_factory: pytest.TempPathFactory) -> tuple[pa.Table, pa.Table]:
    """Every thousandth row differs."""
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
    # Products of 64 bits that wrap make a hash that is good enough here.
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
    assert snapshot
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
    """Prevents: above a certain size, every update of a data source fails."""
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
    """A query that takes some 320 MB in one piece."""
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
    """Prevents: a comparison that fails where more slices would do."""
    found: list[int] = []
    with Hyperd(memory=256 * MB, telemetry=False) as hyper:
        in_slices(partial(_aggregate, hyper, found), rows=rows, memory=hyper.memory)
    assert found == tried


def test_no_number_of_slices_is_enough():
    """Prevents: a refresh that fails every night, where the whole table could be sent."""
    found: list[int] = []
    with (
        Hyperd(memory=256 * MB, telemetry=False) as hyper,
        pytest.raises(NotProvedError, match="comparing 7 rows needs more than hyperd's memory"),
    ):
        in_slices(lambda slices: _aggregate(hyper, found, 1), rows=7, memory=hyper.memory)
    assert len(found) == 5


def test_a_refresh_without_enough_memory_to_compare(pipeline: Pipeline):
    """Prevents: a refresh that fails every night, or a table sent whole for no visible reason."""
    pipeline.policy(Diff(("flight_id",)))
    pipeline.run()
    rows = flights(9)
    with Hyperd(memory=256 * MB, telemetry=False) as hyper:
        # As for a billion rows: the smallest slice needs more than it says that it may use.
        hyper.memory = 1
        shipped = ships(pipeline, rows, hyper=lambda: hyper)
    assert shipped is not None
    assert shipped.whole == (
        "comparing 9 rows needs more than hyperd's memory of 0.00 MB; raise HYPER_MEMORY_LIMIT"
    )


@pytest.mark.parametrize("is_published", [False, True], ids=["publish", "update"])
def test_a_refresh_without_enough_memory_for_keys(pipeline: Pipeline, is_published: bool):
    """Prevents: a limit that the user has set shows as many lines of hyperd's."""
    pipeline.policy(Diff(("word",)))
    if is_published:
        pipeline.model("flights", _words(10))
        pipeline.run()
    pipeline.model("flights", _words(50_000))
    expected = r"The rows need more than hyperd's memory of 33\.55 MB; raise HYPER_MEMORY_LIMIT"
    with (
        Hyperd(memory=32 * MB, telemetry=False) as hyper,
        pytest.raises(RefreshError, match=expected),
    ):
        pipeline.run(around={"hyper": lambda: hyper})


def _words(number: int) -> pa.Table:
    return pa.table({"word": [f"{each:08}" * 50 for each in range(number)]})
