"""Tables of lakes under any changes: what is published is the version of the table."""

from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable, write_deltalake
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table.update.schema import UpdateSchema
from pyiceberg.types import LongType

from tableau_pipeline.core.policies import Append, Diff, Replace, Retain
from tableau_pipeline.errors import RefusedError
from tableau_pipeline.refresh.plan.decide import Accept
from tableau_pipeline_tests.refresh.lakes.support import BY_ID, follow, in_order, published, rows_of
from tableau_pipeline_tests.refresh.support.pipeline import Pipeline

IDS = st.sets(st.integers(0, 12), min_size=1, max_size=5)
POLICIES = st.sampled_from([BY_ID, BY_ID, Append("id"), Replace(), Diff(("id", "word"))])
CHANGES = st.lists(
    st.tuples(
        st.sampled_from(
            [
                "append",
                "append",
                "merge",
                "merge",
                "delete",
                "overwrite",
                "optimise",
                "vacuum",
                "add",
                "drop",
                "rename",
            ]
        ),
        IDS,
    ),
    min_size=1,
    max_size=3,
)
# A window may change its column, grow or shrink, and the day of the refresh may go back.
WINDOWS = st.none() | st.builds(
    Retain,
    column=st.sampled_from(["made", "sent"]),
    days=st.integers(0, 9),
    as_of=st.sampled_from(["run", "max"]),
)
DAYS = st.integers(0, 15)
STEPS = st.lists(st.tuples(POLICIES, CHANGES, WINDOWS, DAYS), min_size=2, max_size=4)
FIRST_DAY = datetime(2024, 2, 25, tzinfo=UTC)
any_changes = settings(
    max_examples=20,
    suppress_health_check=list(HealthCheck),
    # An example takes seconds, and is short enough to be read as it was drawn.
    phases=[Phase.explicit, Phase.generate],
)


class Delta:
    """A Delta table that is changed by delta-rs."""

    format = "delta"

    def __init__(self, folder: Path) -> None:
        self.path = folder / uuid4().hex
        write_deltalake(self.path, _rows([0, 1, 2]))

    @property
    def table(self) -> DeltaTable:
        return DeltaTable(self.path)

    def rows(self) -> pa.Table:
        return self.table.to_pyarrow_table()

    def change(self, kind: str, ids: set[int], number: int) -> None:
        rows = _widened(_rows(ids, f"n{number}-"), self.rows().schema.names)
        match kind:
            case "append":
                write_deltalake(self.path, rows, mode="append")
            case "merge":
                merge = self.table.merge(rows, "s.id = t.id", source_alias="s", target_alias="t")
                merge.when_matched_update_all().when_not_matched_insert_all().execute()
            case "delete":
                self.table.delete(f"id in ({', '.join(map(str, ids))})")
            case "overwrite":
                write_deltalake(self.path, rows, mode="overwrite")
            case "optimise":
                self.table.optimize.compact()
            case "vacuum":
                self.table.vacuum(
                    retention_hours=0, enforce_retention_duration=False, dry_run=False
                )
            case "add":
                more = rows.append_column(f"c{number}", pa.array(sorted(ids), pa.int64()))
                write_deltalake(self.path, more, mode="append", schema_mode="merge")
            case "drop" | "rename" if added := _added(rows):
                # delta-rs changes names of columns with all rows only.
                left = self.rows().drop_columns([added])
                if kind == "rename":
                    left = left.append_column(f"c{number}", self.rows()[added])
                write_deltalake(self.path, left, mode="overwrite", schema_mode="overwrite")


class Iceberg:
    """An Iceberg table that is changed by pyiceberg."""

    format = "iceberg"

    def __init__(self, folder: Path) -> None:
        name = uuid4().hex
        uri, warehouse = f"sqlite:///{folder}/{name}.db", f"file://{folder}/{name}"
        catalog = SqlCatalog(name, uri=uri, warehouse=warehouse)
        catalog.create_namespace("db")
        self.table = catalog.create_table("db.orders", schema=_rows([]).schema)
        self.table.append(_rows([0, 1, 2]))
        self.path = Path(self.table.location().removeprefix("file://"))

    def rows(self) -> pa.Table:
        return self.table.scan().to_arrow()

    def change(self, kind: str, ids: set[int], number: int) -> None:
        rows = _widened(_rows(ids, f"n{number}-"), self.rows().schema.names)
        match kind:
            case "append":
                self.table.append(rows)
            case "merge" if len(set(held := self.rows()["id"].to_pylist())) == len(held):
                self.table.upsert(rows, join_cols=["id"])
            case "delete":
                self.table.delete(f"id in ({', '.join(map(str, ids))})")
            case "overwrite" | "optimise":
                self.table.overwrite(rows if kind == "overwrite" else self.rows())
            case "vacuum":
                known = [each.snapshot_id for each in self.table.snapshots()]
                if known[:-1]:
                    self.table.maintenance.expire_snapshots().by_id(known[-2]).commit()
            case "add":
                self._evolve(ids, lambda schema: schema.add_column(f"c{number}", LongType()))
            case "drop" if added := _added(rows):
                self._evolve(ids, lambda schema: schema.delete_column(added))
            case "rename" if added := _added(rows):
                self._evolve(ids, lambda schema: schema.rename_column(added, f"c{number}"))

    def _evolve(self, ids: set[int], change: Callable[[UpdateSchema], object]) -> None:
        with self.table.update_schema() as schema:
            change(schema)
        # pyiceberg cannot merge until a snapshot has the new schema.
        self.table.append(_widened(_rows(ids), self.table.schema().column_names))


def _added(rows: pa.Table) -> str | None:
    """The newest of the columns that were added to the table."""
    return next((name for name in reversed(rows.schema.names) if name.startswith("c")), None)


def _rows(ids: Iterable[int], word: str = "a") -> pa.Table:
    """Rows with two dates, one of which falls where the other one rises, or is missing."""
    ids = list(ids)
    made = [FIRST_DAY.date() + timedelta(days=n) for n in ids]
    sent = [FIRST_DAY.date() + timedelta(days=12 - n) if n % 4 else None for n in ids]
    rows = rows_of(ids, word).append_column("made", pa.array(made, pa.date32()))
    return rows.append_column("sent", pa.array(sent, pa.date32()))


def _kept(rows: pa.Table, window: Retain | None, today: datetime) -> pa.Table:
    """The rows that a window keeps."""
    if window is None:
        return rows
    dates = rows[window.column]
    end = pc.max(dates).as_py() if window.as_of == "max" else today.date()
    if end is None:
        return rows
    is_old = pc.less(dates, pa.scalar(end - timedelta(days=window.days)))
    return rows.filter(pc.invert(pc.fill_null(is_old, False)))


def _widened(rows: pa.Table, columns: list[str]) -> pa.Table:
    """The rows with all columns that the table has by now."""
    for name in columns:
        if name not in rows.schema.names:
            rows = rows.append_column(name, pa.array(range(rows.num_rows), pa.int64()))
    return rows


@pytest.mark.slow
@pytest.mark.parametrize("make", [Delta, Iceberg])
@any_changes
@given(steps=STEPS)
def test_any_changes(pipeline: Pipeline, tmp_path: Path, make: Callable, steps: list):
    """Prevents: a published data source that is no version of its table, under a green run."""
    lake, number = make(tmp_path), 0
    follow(pipeline, lake.format, lake.path)
    pipeline.run(full=True)
    for policy, changes, window, day in steps:
        for kind, ids in changes:
            lake.change(kind, ids, number := number + 1)
        follow(pipeline, lake.format, lake.path, policy, retain=window)
        today = FIRST_DAY + timedelta(days=day)
        try:
            _accepted(pipeline, today)
        except RefusedError as error:
            assert "is not unique" in str(error)  # noqa: PT017 - it may well be unique
        else:
            assert published(pipeline) == in_order(_kept(lake.rows(), window, today))


def _accepted(pipeline: Pipeline, today: datetime) -> None:
    """Refresh; once more with consent if the schema changed."""
    try:
        pipeline.run(around={"now": today})
    except RefusedError as error:
        if "The schema changed" not in str(error):
            raise
        pipeline.run(Accept.SCHEMA, around={"now": today})
