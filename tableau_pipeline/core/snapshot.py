"""The snapshot: an immutable, numbered version of the rows of a model."""

import hashlib
import json
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import reduce
from operator import add
from typing import Annotated, Protocol, Self

from pydantic import AfterValidator, AwareDatetime, BaseModel, ConfigDict, Field, PlainSerializer

from tableau_pipeline.errors import RefusedError
from tableau_pipeline.hyper.parquet import Folder, Layout, plain_layout
from tableau_pipeline.hyper.types import Column, TypePolicy
from tableau_pipeline.objects.kept_rows import LakeFolder
from tableau_pipeline.outcome import Code

# The name of the hash algorithm: fingerprints of different algorithms cannot be compared.
ROW_HASH_ALGORITHM = "xxhash64-nulls-1"
# Names the "algorithm" of files without hashes of rows, as in a lake: such a fingerprint identifies
# the files and their layouts, not the rows.
FILES_DIGEST = "digest of the files"

# Sums of 64-bit hashes exceed 2^53, where JSON parsers in browsers lose digits.
BigInt = Annotated[int, PlainSerializer(str, return_type=str, when_used="json")]
# An instant is converted to UTC. In another zone, an instant in the repeated hour would not equal
# itself after a JSON round trip.
Instant = Annotated[AwareDatetime, AfterValidator(lambda moment: moment.astimezone(UTC))]


class Frozen(BaseModel):
    """An immutable value that converts to JSON and back; unknown fields are an error."""

    # An older release must refuse the record of a newer one, not ignore a part of it.
    model_config = ConfigDict(frozen=True, extra="forbid")


class Fingerprint(Frozen):
    """The number of rows and the sum of their hashes; the order of the rows does not matter."""

    rows: int
    hash_sum: BigInt
    algorithm: str = ROW_HASH_ALGORITHM

    @property
    def is_additive(self) -> bool:
        """Whether the fingerprints of parts add up to the fingerprint of the whole."""
        # A sum over parts of both kinds has the names of both algorithms.
        return FILES_DIGEST not in self.algorithm

    def unhashed(self) -> Self:
        """Return the fingerprint that the rows would have without stored hashes."""
        return self.model_copy(update={"algorithm": FILES_DIGEST})

    def __add__(self, other: Self) -> Self:
        """Return the fingerprint of both sets of rows together."""
        # Join the names, as a sum over several algorithms must not equal a sum over one of them.
        names = dict.fromkeys((self.algorithm, other.algorithm))
        rows, hash_sum = self.rows + other.rows, self.hash_sum + other.hash_sum
        return type(self)(rows=rows, hash_sum=hash_sum, algorithm=" and ".join(names))

    def __sub__(self, part: Self) -> Self:
        """Return the fingerprint of the rows that remain without a part of them."""
        return self.model_copy(
            update={"rows": self.rows - part.rows, "hash_sum": self.hash_sum - part.hash_sum}
        )


class DataFile(Frozen):
    """A Parquet file.

    Attributes:
        name: the path of the file, either absolute or relative to the folder of the model.
        rows: the number of rows that count.
        size: in bytes.
        layout: how the file stores the columns of the table; None if it stores each column under
            its own name and type, and stores the hash of each row.
        kept: a bitmap of the rows that count, if others were deleted without rewriting the file:
            the bit `1 << n` stands for row n. None if all rows count.
    """

    name: str
    rows: int
    size: int
    layout: Layout | None = None
    kept: int | None = None

    def common(self, other: Self) -> Self:
        """Return the rows that also count in another version of this file."""
        return self if self.kept == other.kept else self._only(self._bits & other._bits)

    def without(self, other: Self | None) -> Self:
        """Return the rows that do not count in another version of this file."""
        return self._only(self._bits & ~other._bits) if other else self

    def _only(self, bits: int) -> Self:
        return self.model_copy(update={"kept": bits, "rows": bits.bit_count()})

    @property
    def _bits(self) -> int:
        return (1 << self.rows) - 1 if self.kept is None else self.kept


class Span(Frozen):
    """The time that a partition covers: `start` inclusive, `end` exclusive.

    Attributes:
        zone: the time zone in which partitions begin and end; the instants are in UTC.
    """

    start: Instant
    end: Instant
    zone: str


class Part(Frozen):
    """The rows of one partition; for a model without partitions, all rows.

    Attributes:
        partition: the partition key; for a static partition, also the value that its rows share.
        span: the time that the partition covers; None if it is not a time partition.
        version: the number of the version that wrote these files.
        columns: the columns of these rows; None if the snapshot has the same columns.
        digest: SHA-256 of the file from which the rows were read; None if the code of a model
            returned the rows.
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

    Versions share the files of partitions that did not change between them.

    Attributes:
        folder: the folder of the files. It is not in the manifest, so that the data folder can
            move.
        asset_key: the asset key of the model, "a/b" for a key of two parts.
        number: the number of the version; the store counts from 1 for each model.
        columns: the columns that the model had when it was last written.
        comments: the comments on columns, which are not part of the data; the keys are names of
            columns.
        parts: one part for each partition, sorted by key; exactly one part for a model without
            partitions.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True)

    folder: Folder
    asset_key: str
    number: int
    created_at: datetime
    run_id: str
    columns: tuple[Column, ...]
    comments: dict[str, str] = Field(default_factory=dict)
    parts: tuple[Part, ...]

    @property
    def fingerprint(self) -> Fingerprint:
        """The fingerprint of all rows."""
        if not self.parts:
            return Fingerprint(rows=0, hash_sum=0)
        return reduce(add, (part.fingerprint for part in self.parts))

    @property
    def row_count(self) -> int:
        """The number of rows."""
        return self.fingerprint.rows

    @property
    def is_partitioned(self) -> bool:
        """Whether its rows are stored by partitions."""
        return any(part.partition is not None for part in self.parts)

    @property
    def size(self) -> int:
        """The size of all files together, in bytes."""
        return sum(file.size for part in self.parts for file in part.files)

    @property
    def files(self) -> tuple[DataFile, ...]:
        """The files that have rows."""
        # Leave out empty files, which Spark writes for empty partitions: hyperd need not open them.
        return tuple(file for part in self.parts for file in part.files if file.rows)

    @property
    def paths(self) -> tuple[str, ...]:
        """The paths at which hyperd finds the files that have rows."""
        return self.paths_of(self.files)

    def paths_of(self, files: Iterable[DataFile]) -> tuple[str, ...]:
        """Return the paths at which hyperd finds files of this version; fetch them if necessary."""
        files = tuple(files)
        return self.folder_of(files).paths([file.name for file in files])

    def folder_of(
        self, files: Iterable[DataFile], columns: Collection[str] | None = None
    ) -> Folder:
        """Return the folder of files, such that reading them returns only the rows that count.

        Args:
            columns: the columns of the files that are read; None for all.
        """
        kept = {file.name: file.kept for file in files if file.kept is not None}
        if not kept:
            return self.folder
        if not isinstance(self.folder, LakeFolder):
            # Only the tables of lakes have deleted rows in their files.
            raise TypeError(
                f"{self.asset_key} has deleted rows, but its folder cannot leave them out"
            )
        return replace(self.folder, kept=kept, columns=columns)

    def missing(self) -> list[str]:
        """Return the full names of the files that have rows but do not exist."""
        return self.folder.missing([file.name for file in self.files])

    @property
    def data_version(self) -> str:
        """A digest of the schema and the fingerprints; equal for equal contents."""

        def described(columns: tuple[Column, ...] | None) -> list[list[str]] | None:
            return [[column.name, column.type] for column in columns] if columns else None

        # Leave out the version and the names of files: writing the same rows again must not trigger
        # anything downstream.
        parts = [
            [part.partition, part.fingerprint.model_dump(mode="json"), described(part.columns)]
            for part in self.parts
        ]
        content = json.dumps([described(self.columns), parts])
        return hashlib.sha256(content.encode()).hexdigest()[:16]

    def manifest(self) -> str:
        """Return the text of the manifest, which commits the version."""
        # Default values are included, as a later release may have other defaults.
        return self.model_dump_json(exclude={"folder"}, exclude_none=True)

    def with_types(self, types: TypePolicy) -> Self:
        """Return this version with the column types that a data source declares."""

        def declared(columns: tuple[Column, ...]) -> tuple[Column, ...]:
            return tuple(map(types.apply, columns))

        parts = tuple(
            part.model_copy(update={"columns": declared(part.columns)}) if part.columns else part
            for part in self.parts
        )
        return self.model_copy(update={"columns": declared(self.columns), "parts": parts})

    def unhashed(self) -> Self:
        """Return this version as if its files had no hashes of rows, so that hyperd computes them.

        Two versions can only be compared if the hashes of both are of one kind.
        """
        parts = []
        for part in self.parts:
            layout = plain_layout(part.columns or self.columns)
            files = tuple(
                file if file.layout else file.model_copy(update={"layout": layout})
                for file in part.files
            )
            update = {"files": files, "fingerprint": part.fingerprint.unhashed()}
            parts.append(part.model_copy(update=update))
        return self.model_copy(update={"parts": tuple(parts)})

    def only(self, partitions: Collection[str]) -> Self:
        """Return this version with only these partitions."""
        return self._of([part for part in self.parts if part.partition in partitions])

    def by_partition(self) -> dict[str, Self]:
        """Return this version split by partition key."""
        return {str(part.partition): self._of([part]) for part in self.parts}

    def _of(self, parts: Sequence[Part]) -> Self:
        """Return this version with only these parts, and with their columns if they share them."""
        # Old partitions that share their columns are consistent, even if the newest write has
        # other columns.
        shared = {part.columns or self.columns for part in parts}
        if len(shared) != 1:
            return self.model_copy(update={"parts": tuple(parts)})
        alike = tuple(part.model_copy(update={"columns": None}) for part in parts)
        return self.model_copy(update={"columns": shared.pop(), "parts": alike})

    def column_problem(self) -> str | None:
        """Describe a partition with other columns than the newest write; None if all match."""
        for part in self.parts:
            if part.columns is not None and part.columns != self.columns:
                differing = set(part.columns) ^ set(self.columns)
                names = ", ".join(sorted(f"{column.name} ({column.type})" for column in differing))
                return (
                    f'Model "{self.asset_key}": its partition {part.partition} differs from the '
                    f"newest one in its columns: {names or 'their order'}. Materialize "
                    f"{part.partition} again, and the other partitions that are as old."
                )
        return None

    def check_columns(self) -> None:
        """Check that all partitions have the columns of the newest write.

        Raises:
            RefusedError: a partition has other columns; the message names the partition and these
                columns.
        """
        if problem := self.column_problem():
            raise RefusedError(problem, code=Code.MODEL)


class Snapshots(Protocol):
    """The versions of models that a refresh reads."""

    def newest(self, asset_key: str) -> Snapshot | None:
        """Return the newest version of a model; None if it has none."""

    def version(self, asset_key: str, number: int) -> Snapshot | None:
        """Return a version of a model; None if it was removed."""
