"""The store of snapshots. Arrow writes the snapshots as Spark would."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa

from tableau_pipeline.core.snapshot import Part, Snapshot
from tableau_pipeline.errors import DamagedSnapshotError
from tableau_pipeline.hyper.parquet import LocalFolder
from tableau_pipeline.hyper.types import Column
from tableau_pipeline_tests.refresh.stateful.models.tables import ARROW, Content, Model
from tableau_pipeline_tests.refresh.support.models import written

_WRITTEN_AT = datetime(2025, 3, 30, tzinfo=UTC)


@dataclass
class Store:
    """Implements `Snapshots`, and remembers the content of each version.

    Attributes:
        contents: the content of each version, by model and number.
        damaged: the paths of files and manifests that are damaged or removed.
    """

    folder: Path
    contents: dict[tuple[str, int], Content] = field(default_factory=dict)
    damaged: set[str] = field(default_factory=set)
    _versions: dict[str, dict[int, Snapshot]] = field(default_factory=dict)
    _written: dict[str, dict[str | None, tuple[object, Part]]] = field(default_factory=dict)

    def newest(self, asset_key: str) -> Snapshot | None:
        return self.version(asset_key, self.number(asset_key))

    def version(self, asset_key: str, number: int) -> Snapshot | None:
        """A version of a model; None if it was removed.

        Raises:
            DamagedSnapshotError: its manifest cannot be read.
        """
        manifest = self._manifest(asset_key, number)
        if manifest in self.damaged:
            raise DamagedSnapshotError(
                f'Version {number} of the model "{asset_key}" cannot be read: {manifest} is damaged'
            )
        return self._versions.get(asset_key, {}).get(number)

    def damage(self, asset_key: str, number: int, what: str, *, file: int) -> None:
        """Cut or remove a file of a version, or its manifest."""
        snapshot = self._versions.get(asset_key, {}).get(number)
        if snapshot is None:
            return
        if what == "manifest" or not snapshot.paths:
            self.damaged.add(self._manifest(asset_key, number))
            return
        path = Path(snapshot.paths[file % len(snapshot.paths)])
        self.damaged.add(str(path))
        if what == "removed":
            path.unlink(missing_ok=True)
        elif path.exists():
            path.write_bytes(path.read_bytes()[:-20])

    def paths(self, asset_key: str, number: int) -> set[str]:
        """The paths of all files of a version."""
        snapshot = self._versions.get(asset_key, {}).get(number)
        return {self._manifest(asset_key, number), *(snapshot.paths if snapshot else ())}

    def store(self, model: Model, *, again: bool = False) -> None:
        """Write a new version of a model.

        Args:
            again: write all partitions, not only the changed partitions.
        """
        number, before = self._next(model.name), self._written.get(model.name, {})
        after: dict[str | None, tuple[object, Part]] = {}
        for key, part in model.parts().items():
            schema, rows = part.schema, [row.values for row in part.rows]
            stale = key is not None and key == part.stale
            if stale:
                schema, rows = {**schema, "old": "int"}, [(*row, 1) for row in rows]
            span = model.partitioning.span(key) if model.partitioning and key else None
            content = (list(schema.items()), repr(rows), span)
            written_before = before.get(key)
            is_same = bool(written_before) and written_before[0] == content
            if key is not None and is_same and not again:
                after[key] = written_before
                continue
            new = self._part(model.name, number, schema, rows, partition=key)
            columns = _columns(schema) if stale else None
            after[key] = content, new.model_copy(update={"span": span, "columns": columns})
        self._written[model.name] = after
        self.contents[model.name, number] = model.content
        self._commit(model.name, number, model.content.schema, [part for _, part in after.values()])

    def store_rows(self, name: str, schema: Mapping[str, str], rows: Sequence[tuple]) -> None:
        """Write a new version of a model that is no table of the data source, such as a feed."""
        number = self._next(name)
        self._commit(name, number, schema, [self._part(name, number, schema, rows)])

    def number(self, name: str) -> int:
        return max(self._versions.get(name, {}), default=0)

    def collect(self) -> None:
        """Keep only the newest version of each model, and the files that this version needs."""
        for name, versions in self._versions.items():
            newest = versions[max(versions)]
            needed = set(newest.paths_of(file for part in newest.parts for file in part.files))
            for path in self._folder(name).rglob("*.parquet"):
                if str(path) not in needed:
                    path.unlink()
            self._versions[name] = {newest.number: newest}

    def _part(
        self,
        name: str,
        number: int,
        schema: Mapping[str, str],
        rows: Sequence[tuple],
        partition: str | None = None,
    ) -> Part:
        # A partition has a folder of its own, and the name of a folder has no ":".
        folder = self._folder(name) / f"v{number}" / str(partition).replace(":", "-")
        content, files = written(_table(schema, rows), folder, below=self._folder(name))
        return Part(partition=partition, version=number, fingerprint=content, files=files)

    def _next(self, name: str) -> int:
        self._folder(name).mkdir(parents=True, exist_ok=True)
        return self.number(name) + 1

    def _manifest(self, name: str, number: int) -> str:
        return str(self._folder(name) / "@versions" / f"{number:09}.json")

    def _folder(self, name: str) -> Path:
        return self.folder / name

    def _commit(
        self, name: str, number: int, schema: Mapping[str, str], parts: Sequence[Part]
    ) -> None:
        snapshot = Snapshot(
            folder=LocalFolder(self._folder(name)),
            asset_key=name,
            number=number,
            created_at=_WRITTEN_AT,
            run_id="spark",
            columns=_columns(schema),
            parts=tuple(parts),
        )
        self._versions.setdefault(name, {})[number] = snapshot


def _columns(schema: Mapping[str, str]) -> tuple[Column, ...]:
    return tuple(Column(name, type_) for name, type_ in schema.items())


def _table(schema: Mapping[str, str], rows: Sequence[tuple]) -> pa.Table:
    return pa.table(
        {
            name: pa.array([row[n] for row in rows], ARROW[type_])
            for n, (name, type_) in enumerate(schema.items())
        }
    )
