"""A snapshot: one immutable, numbered version of a model."""

import hashlib
import json
from collections.abc import Collection, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Protocol, Self

from pydantic import AfterValidator, AwareDatetime, BaseModel, ConfigDict, Field, PlainSerializer

from tableau_pipeline.errors import RefusedError
from tableau_pipeline.hyper.tables import Column
from tableau_pipeline.hyper.types.type_policy import TypePolicy

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
    """A Parquet file; `name` is its path below the folder of its model, `size` in bytes."""

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


class Part(Frozen):
    """The rows of one partition; of a model without partitions, all rows.

    Attributes:
        partition: its key; of a fixed list, that is also the value that its rows have in common.
        span: of a partition by time; None for any other.
        version: the number of the version that wrote these files.
        columns: None when they are those of the snapshot.
        digest: SHA-256 of the file that the rows were read from; None for rows of a model's code.
    """

    partition: str | None = None
    span: Span | None = None
    version: int
    fingerprint: Fingerprint
    files: tuple[DataFile, ...]
    columns: tuple[Column, ...] | None = None
    digest: str | None = None


class Snapshot(Frozen):
    """One immutable, numbered version of a model.

    Versions share the files of the partitions that did not change between them.

    Attributes:
        folder: of the model; not part of the manifest, so that a data directory may move.
        asset_key: of the model, "a/b" for a key of two parts.
        number: of the version; the store counts them, for each model from 1 on.
        columns: as the newest write of the model has them.
        comments: of columns that have one; no part of the data.
        parts: one for each partition, by their keys; exactly one for a model without partitions.
    """

    folder: Path
    asset_key: str
    number: int
    created_at: datetime
    run_id: str
    columns: tuple[Column, ...]
    comments: dict[str, str] = Field(default_factory=dict)
    parts: tuple[Part, ...]

    @property
    def fingerprint(self) -> Fingerprint:
        """Of all rows."""
        return sum((part.fingerprint for part in self.parts), Fingerprint(rows=0, hash_sum=0))

    @property
    def is_partitioned(self) -> bool:
        """Whether its rows are stored by partitions."""
        return any(part.partition is not None for part in self.parts)

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(file.size for part in self.parts for file in part.files)

    @property
    def paths(self) -> tuple[str, ...]:
        """The files that hold rows."""
        return tuple(
            str(self.folder / file.name) for part in self.parts for file in part.files if file.rows
        )

    def missing(self) -> list[str]:
        """The files that hold rows and are not there."""
        return [path for path in self.paths if not Path(path).exists()]

    @property
    def data_version(self) -> str:
        """Equal for equal contents: a digest of the schema and of the fingerprints."""

        def described(columns: tuple[Column, ...] | None) -> list[list[str]] | None:
            return [[each.name, each.type] for each in columns] if columns else None

        parts = [
            [part.partition, part.fingerprint.model_dump(mode="json"), described(part.columns)]
            for part in self.parts
        ]
        content = json.dumps([described(self.columns), parts])
        return hashlib.sha256(content.encode()).hexdigest()[:16]

    def manifest(self) -> str:
        """The text that commits the version."""
        # Not without the defaults: those of a later release may be others.
        return self.model_dump_json(exclude={"folder"}, exclude_none=True)

    def declared(self, types: TypePolicy) -> Self:
        """The same rows, with what a data source makes of their columns."""

        def declared(columns: tuple[Column, ...]) -> tuple[Column, ...]:
            return tuple(map(types.declared, columns))

        parts = tuple(
            part.model_copy(update={"columns": declared(part.columns)}) if part.columns else part
            for part in self.parts
        )
        return self.model_copy(update={"columns": declared(self.columns), "parts": parts})

    def only(self, partitions: Collection[str]) -> Self:
        """The same version, with these of its partitions alone."""
        return self._of([part for part in self.parts if part.partition in partitions])

    def by_partition(self) -> dict[str, Self]:
        """The same version, partition by partition."""
        return {str(part.partition): self._of([part]) for part in self.parts}

    def _of(self, parts: Sequence[Part]) -> Self:
        """Parts that share their columns have those, whatever the newest write's are."""
        shared = {part.columns or self.columns for part in parts}
        if len(shared) != 1:
            return self.model_copy(update={"parts": tuple(parts)})
        alike = tuple(part.model_copy(update={"columns": None}) for part in parts)
        return self.model_copy(update={"columns": shared.pop(), "parts": alike})

    def check_columns(self) -> None:
        """Check that all partitions have the columns of the newest write.

        Raises:
            RefusedError: one has others; names it, and the columns.
        """
        for part in self.parts:
            if part.columns is not None and part.columns != self.columns:
                differing = set(part.columns) ^ set(self.columns)
                names = ", ".join(sorted(f"{each.name} ({each.type})" for each in differing))
                raise RefusedError(
                    f'Model "{self.asset_key}": its partition {part.partition} differs from the '
                    f"newest one in its columns: {names or 'their order'}. Materialize "
                    f"{part.partition} and the others of its age again."
                )


class Snapshots(Protocol):
    """Where a refresh reads the versions of its models."""

    def newest(self, asset_key: str) -> Snapshot | None:
        """The newest version of a model; None if it has none."""

    def version(self, asset_key: str, number: int) -> Snapshot | None:
        """A version of a model; None if it is gone."""
