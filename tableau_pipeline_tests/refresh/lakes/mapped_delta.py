"""A Delta table whose columns are mapped by name: delta-rs reads such tables, but writes none."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable, QueryBuilder

_MAPPING = "delta.columnMapping"
_TYPES = {"long": pa.int64(), "string": pa.string(), "date": pa.date32()}


class MappedDelta:
    """Writes the log by hand.

    Attributes:
        physical: the name of each column in the files, in the order of the table.
    """

    def __init__(
        self, path: Path, types: Mapping[str, str], *, partition_by: tuple[str, ...] = ()
    ) -> None:
        self.path, self.types, self.partition_by = path, dict(types), partition_by
        self.physical = {name: f"col-{number}" for number, name in enumerate(types)}
        self._columns = len(types)
        self._version = 0
        self._files: list[dict[str, Any]] = []
        (path / "_delta_log").mkdir(parents=True)
        self._commit([{"protocol": {"minReaderVersion": 2, "minWriterVersion": 5}}, self._meta()])

    def rows(self) -> pa.Table:
        """The rows as delta-rs reads them; of its two ways to read, only this one maps columns."""
        query = QueryBuilder().register("t", DeltaTable(self.path)).execute("SELECT * FROM t")
        found = pa.table(query.read_all())
        return found.cast(pa.schema({name: _TYPES[kind] for name, kind in self.types.items()}))

    def append(self, rows: pa.Table) -> None:
        """Add a file for each combination of partition values."""
        self._commit(self._added(rows))

    def overwrite(self, rows: pa.Table) -> None:
        """Put these rows in the place of all others."""
        removed = [{"remove": {**each, "deletionTimestamp": 0}} for each in self._files]
        self._files = []
        self._commit([*removed, *self._added(rows)])

    def add(self, name: str, type_: str) -> None:
        """Add a column, last."""
        self.types[name], self.physical[name] = type_, f"col-{self._columns}"
        self._columns += 1
        self._commit([self._meta()])

    def drop(self, name: str) -> None:
        """Drop a column."""
        del self.types[name], self.physical[name]
        self._commit([self._meta()])

    def rename(self, names: Mapping[str, str]) -> None:
        """Rename columns, all at once."""
        self.types = {names.get(name, name): type_ for name, type_ in self.types.items()}
        self.physical = {names.get(name, name): each for name, each in self.physical.items()}
        self.partition_by = tuple(names.get(name, name) for name in self.partition_by)
        self._commit([self._meta()])

    def reorder(self, names: Iterable[str]) -> None:
        """Bring the columns into another order."""
        self.types = {name: self.types[name] for name in names}
        self._commit([self._meta()])

    def _added(self, rows: pa.Table) -> list[dict[str, Any]]:
        parts = rows.select(self.partition_by).to_pylist() if self.partition_by else []
        whole = [({}, rows)] if not self.partition_by else []
        for part in list({str(part): part for part in parts}.values()):
            inside = [n for n, each in enumerate(parts) if each == part]
            whole.append((part, rows.take(inside)))
        return [self._file(part, inside) for part, inside in whole]

    def _file(self, part: Mapping[str, Any], rows: pa.Table) -> dict[str, Any]:
        name = f"{uuid4()}.parquet"
        stored = rows.drop_columns([*part])
        names = [self.physical[each] for each in stored.schema.names]
        pq.write_table(stored.rename_columns(names), self.path / name)
        values = {
            self.physical[column]: None if value is None else str(value)
            for column, value in part.items()
        }
        size = (self.path / name).stat().st_size
        add = {"path": name, "partitionValues": values, "size": size, "dataChange": True}
        self._files.append(add)
        return {"add": {**add, "modificationTime": 0}}

    def _meta(self) -> dict[str, Any]:
        fields = [
            {
                "name": name,
                "type": type_,
                "nullable": True,
                "metadata": {
                    f"{_MAPPING}.id": int(self.physical[name].removeprefix("col-")) + 1,
                    f"{_MAPPING}.physicalName": self.physical[name],
                },
            }
            for name, type_ in self.types.items()
        ]
        return {
            "metaData": {
                "id": "6f1c1d2e-0000-4000-8000-000000000000",
                "format": {"provider": "parquet", "options": {}},
                "schemaString": json.dumps({"type": "struct", "fields": fields}),
                "partitionColumns": [*self.partition_by],
                "configuration": {
                    f"{_MAPPING}.mode": "name",
                    f"{_MAPPING}.maxColumnId": str(self._columns),
                },
            }
        }

    def _commit(self, actions: list[dict[str, Any]]) -> None:
        text = "\n".join(map(json.dumps, actions))
        (self.path / "_delta_log" / f"{self._version:020}.json").write_text(text)
        self._version += 1
