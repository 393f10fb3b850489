"""A Delta table and an Iceberg table that take the same kinds of changes."""

from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import uuid4

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table
from pyiceberg.table.update.schema import UpdateSchema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import IntegerType, LongType, NestedField

from tableau_pipeline_tests.refresh.lakes.support import add_hive_files, in_catalog, rows_of

KINDS = (
    *("append", "merge", "delete", "overwrite", "optimise", "vacuum"),
    # Changes to the columns, and to the partitioning of the table.
    *("add", "drop", "rename", "again", "swap", "reorder", "widen", "partition", "hive"),
)
FIRST_DAY = datetime(2024, 2, 25, tzinfo=UTC)


class Delta:
    """A Delta table that is changed by delta-rs."""

    format = "delta"

    def __init__(self, folder: Path, _: SqlCatalog, by: tuple[str, ...] = ()) -> None:
        self.location = folder / uuid4().hex
        self.by = [*by] or None
        write_deltalake(self.location, dated([0, 1, 2]), partition_by=self.by)

    @property
    def table(self) -> DeltaTable:
        return DeltaTable(self.location)

    def rows(self) -> pa.Table:
        return self.table.to_pyarrow_table()

    def change(self, kind: str, ids: set[int], number: int) -> None:
        rows = _like(dated(ids, f"n{number}-"), self.rows().schema)
        match kind:
            case "append":
                write_deltalake(self.location, rows, mode="append")
            case "merge":
                merge = self.table.merge(rows, "s.id = t.id", source_alias="s", target_alias="t")
                merge.when_matched_update_all().when_not_matched_insert_all().execute()
            case "delete":
                self.table.delete(f"id in ({', '.join(map(str, ids))})")
            case "overwrite":
                write_deltalake(self.location, rows, mode="overwrite")
            case "optimise":
                self.table.optimize.compact()
            case "vacuum":
                self.table.vacuum(
                    retention_hours=0, enforce_retention_duration=False, dry_run=False
                )
            case "add":
                more = rows.append_column(f"c{number}", pa.array(sorted(ids), pa.int64()))
                write_deltalake(self.location, more, mode="append", schema_mode="merge")
            case _:
                self._evolve(kind, number)

    def _evolve(self, kind: str, number: int) -> None:
        """Change columns by a rewrite of all rows, which is the only way in delta-rs."""
        held = changed = self.rows()
        match kind:
            case "drop" if added := _added(held):
                changed = held.drop_columns([added])
            case "rename" if added := _added(held):
                changed = held.rename_columns({added: f"c{number}"})
            case "reorder":
                changed = held.select(held.schema.names[::-1])
        if changed is not held:
            write_deltalake(
                self.location,
                changed,
                mode="overwrite",
                schema_mode="overwrite",
                partition_by=self.by,
            )


class Iceberg:
    """An Iceberg table that pyiceberg changes, sometimes as other engines would."""

    format = "iceberg"

    def __init__(self, _: Path, catalog: SqlCatalog, by: tuple[str, ...] = ()) -> None:
        self.table = catalog.create_table(f"db.t{uuid4().hex}", schema=dated([]).schema)
        self._partition(*by)
        self.table.append(dated([0, 1, 2]))
        self.location = in_catalog(self.table)

    def rows(self) -> pa.Table:
        return self.table.scan().to_arrow()

    def change(self, kind: str, ids: set[int], number: int) -> None:
        table, held = self.table, self.rows()
        rows = _like(dated(ids, f"n{number}-"), held.schema)
        match kind:
            case "append":
                table.append(rows)
            case "merge" if len({*held["id"].to_pylist()}) == held.num_rows:
                # pyiceberg cannot merge until a snapshot has the new schema.
                table.append(rows.slice(0, 0))
                table.upsert(rows, join_cols=["id"])
            case "delete":
                table.delete(f"id in ({', '.join(map(str, ids))})")
            case "overwrite" | "optimise":
                table.overwrite(rows if kind == "overwrite" else held)
            case "vacuum":
                known = [each.snapshot_id for each in table.snapshots()]
                if known[:-1]:
                    table.maintenance.expire_snapshots().by_id(known[-2]).commit()
            case "partition":
                self._partition(*((), ("word",), ("sent",), ("sent", "word"))[number % 4])
            case "hive":
                add_hive_files(table, rows)
            case _:
                self._evolve(kind, ids, number, held)

    def _evolve(self, kind: str, ids: set[int], number: int, held: pa.Table) -> None:
        """Change only the schema, without a snapshot."""
        table, added = self.table, _added(held)
        match kind:
            case "add":
                _schema(table, lambda schema: schema.add_column(f"c{number}", IntegerType()))
            case "drop" if added:
                _schema(table, lambda schema: schema.delete_column(added))
            case "rename" if added:
                _schema(table, lambda schema: schema.rename_column(added, f"c{number}"))
            case "widen" if added:
                _schema(table, lambda schema: schema.update_column(added, LongType()))
            case "again" if self._free:
                field = self._free[number % len(self._free)]
                _schema(table, lambda schema: schema.delete_column(field.name))
                _schema(table, lambda schema: schema.add_column(field.name, field.field_type))
                _in_place(ids, held, self._reorder)
            case "swap":
                for old, new in (("made", "x"), ("sent", "made"), ("x", "sent")):
                    _schema(table, lambda schema, o=old, n=new: schema.rename_column(o, n))
                _in_place(ids, held, self._reorder)
            case "reorder":
                self._reorder(held.schema.names[::-1])

    @property
    def _free(self) -> list[NestedField]:
        """The columns that are neither the key nor have ever partitioned the table.

        pyiceberg does not write to a table that has dropped its key or a partition column.
        """
        used = {each.source_id for spec in self.table.specs().values() for each in spec.fields}
        _, *fields = sorted(self.table.schema().fields, key=lambda field: field.name != "id")
        return [field for field in fields if field.field_id not in used]

    def _partition(self, *by: str) -> None:
        """Partition the rows that are written from now on."""
        with self.table.update_spec() as change:
            for field in self.table.spec().fields:
                change.remove_field(field.name)
        with self.table.update_spec() as change:
            for name in by:
                change.add_field(name, IdentityTransform(), f"p{uuid4().hex}")

    def _reorder(self, names: list[str]) -> None:
        for name in reversed(names):
            _schema(self.table, lambda schema, n=name: schema.move_first(n))


def _schema(table: Table, change: Callable[[UpdateSchema], object]) -> None:
    with table.update_schema() as schema:
        change(schema)


def _in_place(ids: set[int], held: pa.Table, reorder: Callable[[list[str]], None]) -> None:
    """Restore the order of column names, except if the number of ids is a multiple of 4."""
    if len(ids) % 4:
        reorder(held.schema.names)


def _added(rows: pa.Table) -> str | None:
    """The newest of the columns that were added to the table."""
    return next((name for name in reversed(rows.schema.names) if name.startswith("c")), None)


def dated(ids: Iterable[int], word: str = "a") -> pa.Table:
    """Rows with two dates. Where "made" rises, "sent" falls or is missing."""
    ids = list(ids)
    made = [FIRST_DAY.date() + timedelta(days=n) for n in ids]
    sent = [FIRST_DAY.date() + timedelta(days=12 - n) if n % 4 else None for n in ids]
    rows = rows_of(ids, word).append_column("made", pa.array(made, pa.date32()))
    return rows.append_column("sent", pa.array(sent, pa.date32()))


def _like(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """The rows with all columns of the schema. Missing columns get numbers."""
    columns = {
        field.name: rows[field.name].cast(field.type)
        if field.name in rows.schema.names
        else pa.array(range(rows.num_rows), field.type)
        for field in schema
    }
    return pa.table(columns)
