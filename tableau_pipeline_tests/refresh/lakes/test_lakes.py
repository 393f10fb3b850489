"""Lake tables as sources: a refresh publishes exactly the rows of the table's version."""

import json
import random
import re
import shutil
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, timedelta
from itertools import permutations
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyiceberg.catalog.sql import SqlCatalog

from tableau_pipeline.core.declaration import Retain
from tableau_pipeline.core.policies import Append, Diff, ReplaceAll
from tableau_pipeline.errors import RefusedError
from tableau_pipeline.extracts import delta
from tableau_pipeline.extracts.delta import RowCounts
from tableau_pipeline.outcome import Accept
from tableau_pipeline.refresh.decide import NoChange, UpdateTables
from tableau_pipeline.refresh.row_differences import diff
from tableau_pipeline_tests.refresh.lakes.delta_writer import DeltaWriter
from tableau_pipeline_tests.refresh.lakes.ledger import SCHEMA
from tableau_pipeline_tests.refresh.lakes.support import (
    BY_ID,
    follow,
    in_catalog,
    in_order,
    published,
    rows_of,
    table_of,
    values_of_all_types,
)
from tableau_pipeline_tests.refresh.lakes.tables import (
    FIRST_DAY,
    KINDS,
    Delta,
    Iceberg,
    dated,
)
from tableau_pipeline_tests.refresh.support.pipeline import Pipeline, session
from tableau_pipeline_tests.refresh.support.shipping import refused

LAKES = (Delta, Iceberg)
SHIPPED = [
    ("append", {40, 41}, RowCounts(deleted=0, inserted=2)),
    ("merge", {1, 99}, RowCounts(deleted=1, inserted=2)),
    ("delete", {1, 40}, RowCounts(deleted=2, inserted=0)),
    ("optimise", set(), None),
    ("append", {50}, RowCounts(deleted=0, inserted=1)),
]


@pytest.fixture(params=LAKES)
def lake(
    request: pytest.FixtureRequest, pipeline: Pipeline, catalog: SqlCatalog, tmp_path: Path
) -> Any:
    """A lake table that is published."""
    made = request.param(tmp_path, catalog)
    follow(pipeline, made.format, made.location)
    pipeline.run()
    assert published(pipeline) == in_order(made.rows())
    return made


only_delta = pytest.mark.parametrize("lake", [Delta], indirect=True)


def accepted(pipeline: Pipeline, today: datetime = FIRST_DAY) -> None:
    """Refresh. If the schema has changed, refresh again and accept the change."""
    try:
        pipeline.run(around={"now": today})
    except RefusedError as error:
        if "The schema changed" not in str(error):
            raise
        pipeline.run(Accept.SCHEMA, around={"now": today})


@pytest.mark.slow
@pytest.mark.few_variants(1)
def test_changed_rows_are_sent(pipeline: Pipeline, lake: Any):
    """Prevents: a few changed rows, or rewritten files, lead to a publish of the whole table."""
    assert isinstance(pipeline.run().plan, NoChange)
    for number, (kind, ids, shipped) in enumerate(SHIPPED):
        lake.change(kind, ids, number)
        with session(pipeline.sandbox) as site:
            layout, tables = diff(pipeline.refresh(), site, samples=1, tell=print)
        (found,) = tables.values()
        assert (layout, found.key) == ([], ("id",))
        counts = RowCounts(
            deleted=found.only_published + found.both - found.equal,
            inserted=found.only_model + found.both - found.equal,
        )
        assert counts == (shipped or RowCounts(deleted=0, inserted=0)), kind
        report = pipeline.run()
        assert report.tables == ({"flights": shipped} if shipped else {}), kind
        assert shipped or isinstance(report.plan, NoChange)
        assert published(pipeline) == in_order(lake.rows())


@pytest.mark.slow
def test_all_kinds_of_changes(pipeline: Pipeline, lake: Any):
    """Prevents: values stay published under the name, or in the place, of another column."""
    for number, kind in enumerate(KINDS[::-1] + KINDS[6:8], 100):
        lake.change(kind, {number, number + 100}, number)
        # "again" and "swap" change neither column names nor files, so each gets its own refresh.
        if number % 3 == 0 or kind in ("again", "swap"):
            accepted(pipeline)
            assert published(pipeline) == in_order(lake.rows()), kind


IDS = st.sets(st.integers(0, 12), min_size=1, max_size=5)
POLICIES = st.sampled_from([BY_ID, BY_ID, Append("id"), ReplaceAll(), Diff(("id", "word"))])
CHANGES = st.lists(st.tuples(st.sampled_from(KINDS[:6] + KINDS), IDS), min_size=1, max_size=3)
# The columns by which the table is partitioned at first.
PARTITIONS = st.sampled_from([(), (), ("word",), ("made",), ("made", "word")])
# From step to step, a window may have another column or length, and the day may go back.
WINDOWS = st.none() | st.builds(
    Retain,
    column=st.sampled_from(["made", "sent"]),
    days=st.integers(1, 9),
    as_of=st.sampled_from(["run", "max"]),
)
STEPS = st.lists(st.tuples(POLICIES, CHANGES, WINDOWS, st.integers(0, 15)), min_size=2, max_size=4)


@pytest.mark.slow
@pytest.mark.parametrize("make", LAKES)
@settings(
    max_examples=10,
    suppress_health_check=list(HealthCheck),
    # An example takes seconds, so it is not shrunk. It is short enough to be readable.
    phases=[Phase.explicit, Phase.generate],
)
@given(by=PARTITIONS, steps=STEPS)
def test_any_changes(
    pipeline: Pipeline,
    catalog: SqlCatalog,
    tmp_path: Path,
    make: Callable,
    by: tuple[str, ...],
    steps: list,
):
    """Prevents: a successful run publishes rows that are no version of the lake table."""
    lake, number = make(tmp_path, catalog, by), 0
    follow(pipeline, lake.format, lake.location)
    pipeline.run(full=True)
    for policy, changes, window, day in steps:
        for kind, ids in changes:
            lake.change(kind, ids, number := number + 1)
        follow(pipeline, lake.format, lake.location, policy, retain=window)
        today = FIRST_DAY + timedelta(days=day)
        try:
            accepted(pipeline, today)
        except RefusedError as error:
            assert re.search("is not unique|is NULL", str(error))  # noqa: PT017 - it may well be
        else:
            assert published(pipeline) == in_order(_kept(lake.rows(), window, today))


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


@pytest.mark.slow
@pytest.mark.parametrize("lake", [Delta, Iceberg], indirect=True)
def test_a_base_that_is_gone_costs_a_whole_publish(pipeline: Pipeline, lake: Any):
    """Prevents: refreshes fail for ever after the published files or snapshots are gone."""
    lake.change("append" if isinstance(lake, Iceberg) else "overwrite", {20, 21}, 1)
    lake.change("vacuum", set(), 2)
    report = pipeline.run()
    assert "gone" in report.plan.reason
    assert published(pipeline) == in_order(lake.rows())


@pytest.mark.slow
def test_columns_that_are_mapped(pipeline: Pipeline, catalog: SqlCatalog, tmp_path: Path):
    """Prevents: values are published under the name that their column has in older files."""
    lake = Delta(tmp_path, catalog, by=("word",))
    follow(pipeline, "delta", lake.location)
    pipeline.run()
    log, schema = lake.location / "_delta_log", json.loads(lake.table.schema().to_json())
    meta = lake.table.metadata()
    names = {"made": "sent", "sent": "made", "word": "text"}
    for number, field in enumerate(schema["fields"], 1):
        mapping = {"id": number, "physicalName": field["name"]}
        field["metadata"] = {f"delta.columnMapping.{key}": value for key, value in mapping.items()}
        field["name"] = names.get(field["name"], field["name"])
    changed = {
        "id": str(meta.id),
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps(schema),
        "partitionColumns": ["text"],
        "configuration": {
            "delta.columnMapping.mode": "name",
            "delta.columnMapping.maxColumnId": str(len(schema["fields"])),
        },
    }
    actions = ({"protocol": {"minReaderVersion": 2, "minWriterVersion": 5}}, {"metaData": changed})
    rows = lake.rows().rename_columns(names | {"id": "id"})
    (log / f"{1:020}.json").write_text("\n".join(map(json.dumps, actions)))
    accepted(pipeline)
    assert published(pipeline) == in_order(rows)


@pytest.mark.parametrize("has_ids", [True, False])
def test_columns_that_field_ids_identify(pipeline: Pipeline, tmp_path: Path, *, has_ids: bool):
    """Prevents: all values become NULL because the files have other names for the columns."""
    writer = DeltaWriter(tmp_path / "lake", random.Random(1), is_mapped=True)
    writer.mapped_by = "id"
    writer.describe({})
    row = {"id": 1, "word": "a", "day": date(2024, 2, 29), "at": None, "price": None}
    writer.add([row])
    (name,) = writer.ledger.held
    stored = pq.read_table(writer.location / name)
    fields = [
        field.with_name(f"old {at}").with_metadata(
            {"PARQUET:field_id": str(at)} if has_ids else None
        )
        for at, field in enumerate(stored.schema, 1)
    ]
    renamed = pa.Table.from_arrays(stored.columns, schema=pa.schema(fields))
    pq.write_table(renamed, writer.location / name)
    writer.commit()
    follow(pipeline, "delta", writer.location)
    if has_ids:
        pipeline.run()
        assert published(pipeline) == in_order(pa.Table.from_pylist([row], SCHEMA))
    else:
        refused(pipeline.run, "by field ids", f"its file {name} names none", "a Spark model")


OLD, NEW = date(1582, 10, 14), date(1582, 10, 15)
THEN = datetime(1899, 12, 31, tzinfo=UTC)


@pytest.mark.parametrize(
    ("version", "values", "is_read"),
    [
        ("2.4.8", {"day": OLD, "at": None}, False),
        ("2.4.8", {"day": NEW, "at": None}, True),
        ("2.4.8", {"day": None, "at": THEN}, False),
        ("2.4.8", {"day": None, "at": datetime(1900, 1, 1, tzinfo=UTC)}, True),
        ("3.0.3", {"day": OLD, "at": None}, True),
        ("3.0.3", {"day": None, "at": THEN}, False),
        ("3.5.0", {"day": OLD, "at": THEN}, True),
        ("", {"day": OLD, "at": THEN}, True),
    ],
)
def test_times_of_an_older_calendar(
    pipeline: Pipeline, tmp_path: Path, version: str, values: dict[str, Any], *, is_read: bool
):
    """Prevents: old dates are published some days off because of an older calendar."""
    row = {"id": 1, "word": "a", "price": None, **values}
    writer = DeltaWriter(tmp_path / "lake", random.Random(1))
    writer.add([row])
    (name,) = writer.ledger.held
    footer = {"org.apache.spark.version": version} if version else {}
    stored = pa.Table.from_pylist([row], SCHEMA).replace_schema_metadata(footer)
    pq.write_table(stored, writer.location / name, use_deprecated_int96_timestamps=True)
    writer.commit()
    follow(pipeline, "delta", writer.location)
    if is_read:
        pipeline.run()
        assert published(pipeline) == in_order(pa.Table.from_pylist([row], SCHEMA))
    else:
        column = "day" if values["day"] else "at"
        refused(pipeline.run, f'column "{column}" has times before', "older calendar", name)


@pytest.mark.slow
@only_delta
def test_another_table_in_its_place(pipeline: Pipeline, lake: Delta):
    """Prevents: an update builds on a former table's version that has the same number."""
    shutil.rmtree(lake.location)
    for number in range(2):
        write_deltalake(lake.location, dated([number, number + 100], "other"), mode="append")
    report = pipeline.run()
    assert "replaced by another one" in report.plan.reason
    assert published(pipeline) == in_order(lake.rows())


@pytest.mark.slow
@only_delta
def test_a_restored_table(pipeline: Pipeline, lake: Delta):
    """Prevents: a refresh after a restore publishes the wrong rows, or the whole table."""
    lake.change("append", {20}, 1)
    lake.change("delete", {1}, 2)
    pipeline.run()
    lake.table.restore(1)
    assert isinstance(pipeline.run().plan, UpdateTables)
    assert published(pipeline) == in_order(lake.rows())


@pytest.mark.slow
@pytest.mark.few_variants(1)
@pytest.mark.parametrize("lost", [True, False], ids=["a key is lost", "rows were not compared"])
@only_delta
def test_an_update_is_proved(
    pipeline: Pipeline, lake: Delta, monkeypatch: pytest.MonkeyPatch, *, lost: bool
):
    """Prevents: a run succeeds although its comparison has lost a changed row."""
    real = delta.find_affected

    def find_affected(connection: Any, change: Any, *args: Any, **more: Any) -> Any:
        keys, equal = real(connection, change, *args, **more)
        if lost:
            table = delta.in_payload("keys", change)
            connection.execute_command(f"DELETE FROM {table} WHERE id = 1")
        return keys, equal if lost else equal - 1

    monkeypatch.setattr(delta, "find_affected", find_affected)
    lake.change("merge", {1, 99}, 1)
    report = pipeline.run()
    assert str(report.tables["flights"].whole).startswith("rows changed beyond those")
    assert published(pipeline) == in_order(lake.rows())


ROWS = values_of_all_types()


def write_delta(rows: pa.Table, by: Sequence[str], folder: Path, _: SqlCatalog) -> Any:
    write_deltalake(folder, rows, partition_by=[*by] or None)
    if "word" in by:
        # In a partition column of Delta, an empty text is NULL.
        texts = pa.array([text or None for text in rows["word"].to_pylist()], pa.string())
        rows = rows.set_column(rows.schema.get_field_index("word"), "word", texts)
    return folder, rows


def write_iceberg(rows: pa.Table, by: Sequence[str], folder: Path, catalog: SqlCatalog) -> Any:
    # Iceberg has no whole numbers of fewer than 32 bits.
    rows = rows.drop_columns([name for name in ("tiny", "small") if name in rows.schema.names])
    made = table_of(catalog, rows.slice(0, 0), folder.name)
    with made.update_spec() as change:
        for column in by:
            change.add_identity(column)
    made.append(rows)
    return in_catalog(made), rows


@pytest.mark.slow
@pytest.mark.parametrize(("format_", "write"), [("delta", write_delta), ("iceberg", write_iceberg)])
def test_types_and_partitions(
    pipeline: Pipeline, catalog: SqlCatalog, tmp_path: Path, format_: Any, write: Callable
):
    """Prevents: values of some type, or of partition columns, are published as other values."""
    partitions = [[], ["word"], ["day", "flag"]]
    # delta-rs cannot write all decimals into the names of folders.
    others = {"delta": [["plain", "tiny"], ["at", "local"], ["single"]]}
    partitions += others.get(format_, [["price", "plain"]])
    for number, by in enumerate(partitions):
        location, written = write(ROWS, by, tmp_path / f"types{number}", catalog)
        follow(pipeline, format_, location)
        pipeline.run(full=True)
        assert published(pipeline) == in_order(written), by


@pytest.mark.slow
def test_a_change_of_any_column(pipeline: Pipeline, tmp_path: Path):
    """Prevents: the comparison of columns overlooks a changed value."""
    values = ROWS.drop_columns("id")
    usual, *_ = values.to_pylist()
    # In each row, one column changes. The rows cover all pairs of the values of every column.
    pairs = [
        ({**usual, name: before}, {**usual, name: after})
        for name in values.schema.names
        for before, after in permutations({None, *values[name].to_pylist()}, 2)
    ]
    path = tmp_path / "lake"
    follow(pipeline, "delta", path)
    for rows in zip((usual, usual), *pairs, strict=True):
        numbered = [{"id": id_, **row} for id_, row in enumerate(rows)]
        write_deltalake(path, pa.Table.from_pylist(numbered, ROWS.schema), mode="overwrite")
        report = pipeline.run()
    assert report.tables == {"flights": RowCounts(deleted=len(pairs), inserted=len(pairs))}
    assert published(pipeline) == in_order(DeltaTable(path).to_pyarrow_table())


@pytest.mark.parametrize("name", ["a b", "100%", "ä#?x"])
def test_name_of_a_folder(pipeline: Pipeline, tmp_path: Path, name: str):
    """Prevents: a folder is not found, because its name looks like the escapes of a URL."""
    write_deltalake(tmp_path / name, rows_of([1]))
    follow(pipeline, "delta", tmp_path / name)
    pipeline.run()
    assert published(pipeline) == in_order(rows_of([1]))


def test_binary_partitions_of_delta(pipeline: Pipeline, tmp_path: Path):
    """Prevents: a binary value is published as the escapes that the log of a table has for it."""
    rows = rows_of([1]).append_column("raw", pa.array([b"\x01\xff"], pa.binary()))
    write_deltalake(tmp_path / "lake", rows, partition_by=["raw"])
    follow(pipeline, "delta", tmp_path / "lake")
    refused(pipeline.run, 'by the binary column "raw"', "through a Spark model")


@pytest.mark.parametrize(
    ("column", "values", "why"),
    [
        ("tags", [["a"]], 'column "tags" is of the type array'),
        ("_row_hash", [1], 'column "_row_hash" has the name of the hashes'),
    ],
)
def test_columns_that_are_refused(
    pipeline: Pipeline, tmp_path: Path, column: str, values: list, why: str
):
    """Prevents: an unusable column ends in an error of hyperd, which does not name the column."""
    write_deltalake(tmp_path / "lake", rows_of([1]).append_column(column, pa.array(values)))
    follow(pipeline, "delta", tmp_path / "lake")
    pipeline.declare(nested="json")
    refused(pipeline.run, why)


@pytest.mark.slow
def test_instants_in_a_zone(pipeline: Pipeline, tmp_path: Path):
    """Prevents: a declared time zone does not shift a lake table's instants, or stops updates."""
    lake, winter = tmp_path / "lake", datetime(2024, 1, 1, 12, tzinfo=UTC)
    at = pa.array([winter], pa.timestamp("us", "UTC"))
    write_deltalake(lake, rows_of([1]).append_column("at", at))
    follow(pipeline, "delta", lake)
    pipeline.declare(timestamps=ZoneInfo("Europe/Paris"))
    pipeline.run()
    write_deltalake(lake, rows_of([2]).append_column("at", at), mode="append")
    assert pipeline.run().tables == {"flights": RowCounts(deleted=0, inserted=1)}
    shown = winter.replace(hour=13, tzinfo=None)
    assert published(pipeline) == [str([shown, 1, "a1"]), str([shown, 2, "a2"])]
