"""A snapshot: one immutable write of a model, and the manifest that commits it."""

import hashlib
import json
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Self

from pydantic import AfterValidator, AwareDatetime, BaseModel, ConfigDict, Field, PlainSerializer

from tableau_pipeline.errors import RefusedError
from tableau_pipeline.hyper.tables import Column
from tableau_pipeline.hyper.type_policy import TypePolicy

MANIFEST = "manifest.json"
ROW_HASH = "_row_hash"
# The name of the algorithm: fingerprints of another one prove nothing about ours.
ROW_HASH_ALGORITHM = "xxhash64-nulls-1"

# Sums of 64-bit hashes pass 2^53, where JSON's readers in browsers lose digits.
BigInt = Annotated[int, PlainSerializer(str, return_type=str, when_used="json")]
# In a zone, the hour that comes twice is not even equal to itself once it was read from JSON.
Instant = Annotated[AwareDatetime, AfterValidator(lambda moment: moment.astimezone(UTC))]


class Frozen(BaseModel):
    """A plain value that goes to JSON and back; unknown fields are a fault of the file."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Fingerprint(Frozen):
    """What a set of rows adds up to, whatever their order: their number and their hashes' sum."""

    rows: int
    hash_sum: BigInt
    algorithm: str = ROW_HASH_ALGORITHM

    def __add__(self, other: Self) -> Self:
        """The fingerprint of both sets of rows together."""
        return self.model_copy(
            update={"rows": self.rows + other.rows, "hash_sum": self.hash_sum + other.hash_sum}
        )

    def __sub__(self, part: Self) -> Self:
        """The fingerprint of the rows that are left without a part of them."""
        return self.model_copy(
            update={"rows": self.rows - part.rows, "hash_sum": self.hash_sum - part.hash_sum}
        )


class DataFile(Frozen):
    """A Parquet file of a snapshot; `size` in bytes."""

    name: str
    rows: int
    size: int


class Span(Frozen):
    """The time that a partition covers: `start` included, `end` not.

    Attributes:
        zone: the partitions' time zone, whose clock cuts them; the instants themselves are in UTC.
    """

    start: Instant
    end: Instant
    zone: str


class Snapshot(Frozen):
    """One immutable write of a model, or of one partition of it.

    Attributes:
        folder: where the files and the manifest lie; not part of the manifest, so that a data
            directory may move.
        asset_key: of the model, "a/b" for a key of two parts.
        partition: its key; of a fixed list, that is also the value that its rows have in common.
        span: of a partition by time; None for any other snapshot.
        comments: of columns that have one; no part of the data.
    """

    folder: Path
    asset_key: str
    partition: str | None = None
    span: Span | None = None
    created_at: datetime
    run_id: str
    columns: tuple[Column, ...]
    fingerprint: Fingerprint
    files: tuple[DataFile, ...]
    comments: dict[str, str] = Field(default_factory=dict)

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(file.size for file in self.files)

    @property
    def paths(self) -> tuple[str, ...]:
        """The files that hold rows."""
        return tuple(str(self.folder / file.name) for file in self.files if file.rows)

    def missing(self) -> list[str]:
        """The files that hold rows and are not there."""
        return [path for path in self.paths if not Path(path).exists()]

    @property
    def data_version(self) -> str:
        """Equal for equal contents: a digest of the schema and of the fingerprint."""
        schema = [[column.name, column.type] for column in self.columns]
        content = json.dumps([schema, self.fingerprint.model_dump(mode="json")])
        return hashlib.sha256(content.encode()).hexdigest()[:16]

    def manifest(self) -> str:
        """The text whose presence in `folder` commits the snapshot."""
        return self.model_dump_json(exclude={"folder"}, indent=1)

    def declared(self, types: TypePolicy) -> Self:
        """The same, with what a data source makes of its columns."""
        return self.model_copy(update={"columns": tuple(map(types.declared, self.columns))})

    @classmethod
    def read(cls, folder: Path) -> Self:
        """The snapshot in a folder.

        Raises:
            FileNotFoundError: it was never committed, or it is gone.
        """
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        return cls.model_validate({**manifest, "folder": folder})


def latest(snapshots: Sequence[Snapshot]) -> Snapshot:
    """The one that was written last."""
    return max(snapshots, key=lambda snapshot: snapshot.created_at)


def common_columns(snapshots: Sequence[Snapshot]) -> tuple[Column, ...]:
    """The columns of a model, which all its partitions must have.

    Raises:
        RefusedError: two partitions differ; names both, and the columns.
    """
    last = latest(snapshots)
    for snapshot in snapshots:
        if snapshot.columns != last.columns:
            differing = set(snapshot.columns) ^ set(last.columns)
            names = ", ".join(sorted(f"{each.name} ({each.type})" for each in differing))
            raise RefusedError(
                f'Model "{snapshot.asset_key}": its partitions {snapshot.partition} and '
                f"{last.partition} differ in their columns: {names or 'their order'}. "
                f"Materialize {snapshot.partition} and the others of its age again."
            )
    return last.columns


def combined_version(snapshots: Sequence[Snapshot]) -> str:
    """One data version for several partitions; of a single snapshot, its own."""
    versions = [snapshot.data_version for snapshot in snapshots]
    if len(versions) == 1:
        return versions[0]
    return hashlib.sha256(json.dumps(versions).encode()).hexdigest()[:16]
