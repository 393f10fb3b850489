"""A Delta table whose columns are mapped by name: delta-rs reads such tables, but writes none."""

import json
from collections.abc import Mapping
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
        columns: the number of each column, which names it in the files, and its type; in the
            order of the table.
    """

    def __init__(self, path: Path, types: Mapping[str, str], *, by: tuple[str, ...] = ()) -> None:
        self.path, self.by = path, by
        self.columns = {name: (number, type_) for number, (name, type_) in enumerate(types.items())}
        self._version = 0
        self._files: list[dict[str, Any]] = []
        (path / "_delta_log").mkdir(parents=True)
        self._commit({"protocol": {"minReaderVersion": 2, "minWriterVersion": 5}}, self._meta())

    def rows(self) -> pa.Table:
        """The rows as delta-rs reads them; of its two ways to read, only this one maps columns."""
        query = QueryBuilder().register("t", DeltaTable(self.path)).execute("SELECT * FROM t")
        schema = pa.schema({name: _TYPES[type_] for name, (_, type_) in self.columns.items()})
        return pa.table(query.read_all()).cast(schema)

    def write(self, rows: pa.Table, *, overwrite: bool = False) -> None:
        """Add a file for each combination of partition values, perhaps in the place of all."""
        removed = [{"remove": {**each, "deletionTimestamp": 0}} for each in self._files]
        self._files = [] if overwrite else self._files
        parts = rows.select(self.by).to_pylist() if self.by else [{}] * rows.num_rows
        added = [
            self._file(part, rows.take([n for n, each in enumerate(parts) if each == part]))
            for part in {str(part): part for part in parts}.values()
        ]
        self._commit(*(removed if overwrite else []), *added)

    def alter(self, columns: Mapping[str, tuple[int, str]]) -> None:
        """Let the table have these columns, which may be new or have other names."""
        names = {number: name for name, (number, _) in columns.items()}
        self.by = tuple(names[self.columns[name][0]] for name in self.by)
        self.columns = dict(columns)
        self._commit(self._meta())

    def _file(self, part: Mapping[str, Any], rows: pa.Table) -> dict[str, Any]:
        name, stored = f"{uuid4()}.parquet", rows.drop_columns([*part])
        names = [self._physical(each) for each in stored.schema.names]
        pq.write_table(stored.rename_columns(names), self.path / name)
        values = {
            self._physical(column): None if value is None else str(value)
            for column, value in part.items()
        }
        size = (self.path / name).stat().st_size
        add = {"path": name, "partitionValues": values, "size": size, "dataChange": True}
        self._files.append(add)
        return {"add": {**add, "modificationTime": 0}}

    def _physical(self, column: str) -> str:
        return f"col-{self.columns[column][0]}"

    def _meta(self) -> dict[str, Any]:
        fields = [
            {
                "name": name,
                "type": type_,
                "nullable": True,
                "metadata": {
                    f"{_MAPPING}.id": number + 1,
                    f"{_MAPPING}.physicalName": self._physical(name),
                },
            }
            for name, (number, type_) in self.columns.items()
        ]
        most = max(number for number, _ in self.columns.values()) + 1
        return {
            "metaData": {
                "id": "6f1c1d2e-0000-4000-8000-000000000000",
                "format": {"provider": "parquet", "options": {}},
                "schemaString": json.dumps({"type": "struct", "fields": fields}),
                "partitionColumns": [*self.by],
                "configuration": {f"{_MAPPING}.mode": "name", f"{_MAPPING}.maxColumnId": f"{most}"},
            }
        }

    def _commit(self, *actions: dict[str, Any]) -> None:
        text = "\n".join(map(json.dumps, actions))
        (self.path / "_delta_log" / f"{self._version:020}.json").write_text(text)
        self._version += 1
