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

# Each fingerprint records the name of its hash algorithm, because fingerprints of different
# algorithms are not comparable.
ROW_HASH_ALGORITHM = "xxhash64-nulls-1"
# The "algorithm" of fingerprints for files without hashes of rows, such as files of a lake. These
# fingerprints identify the files and their layouts, not the rows.
FILES_DIGEST = "digest of the files"

# Write big integers as text, because sums of 64-bit hashes exceed 2^53. Above 2^53, JSON parsers in
# browsers lose digits.
BigInt = Annotated[int, PlainSerializer(str, return_type=str, when_used="json")]
# Convert instants to UTC. In another zone, an hour repeats when clocks go back, and an instant in
# this hour would not equal itself after a JSON round trip.
Instant = Annotated[AwareDatetime, AfterValidator(lambda moment: moment.astimezone(UTC))]


class Frozen(BaseModel):
    """An immutable value that converts to JSON and back. Unknown fields are an error."""

    # An older release must refuse the record of a newer release, rather than ignore a part of it.
    model_config = ConfigDict(frozen=True, extra="forbid")


class Fingerprint(Frozen):
    """The number of rows and the sum of their hashes. The order of the rows does not matter."""

    rows: int
    hash_sum: BigInt
    algorithm: str = ROW_HASH_ALGORITHM

    @property
    def is_additive(self) -> bool:
        """Whether the fingerprints of parts add up to the fingerprint of the whole."""
        # A sum over hashed and unhashed parts has the names of both algorithms.
        return FILES_DIGEST not in self.algorithm

    def unhashed(self) -> Self:
        """Return this fingerprint, marked as a fingerprint of files without hashes of rows."""
        return self.model_copy(update={"algorithm": FILES_DIGEST})

    def __add__(self, other: Self) -> Self:
        """Return the fingerprint of the union of two sets of rows."""
        # Join the names, because a sum over two algorithms must not equal a sum over one algorithm.
        names = dict.fromkeys((self.algorithm, other.algorithm))
        rows, hash_sum = self.rows + other.rows, self.hash_sum + other.hash_sum
        return type(self)(rows=rows, hash_sum=hash_sum, algorithm=" and ".join(names))

    def __sub__(self, part: Self) -> Self:
        """Return the fingerprint of the rows that remain after the removal of a part."""
        return self.model_copy(
            update={"rows": self.rows - part.rows, "hash_sum": self.hash_sum - part.hash_sum}
        )


class DataFile(Frozen):
    """A Parquet file.

    Attributes:
        name: the path of the file, either absolute or relative to the folder of the model.
        rows: the number of rows that count, because they were not deleted.
        size: the size of the file in bytes.
        layout: how the file stores the columns; None if the file has each column under its own name
            and type, and the hash of each row.
        kept: a bitmap of the rows that count, in which the bit `1 << n` means row n; None if all
            rows count. A lake may delete rows without rewriting the file.
    """

    name: str
    rows: int
    size: int
    layout: Layout | None = None
    kept: int | None = None

    def common(self, other: Self) -> Self:
        """Return this file with only the rows that also count in another version of the file."""
        return self if self.kept == other.kept else self._only(self._bits & other._bits)

    def without(self, other: Self | None) -> Self:
        """Return this file with only the rows that do not count in another version of the file."""
        return self._only(self._bits & ~other._bits) if other else self

    def _only(self, bits: int) -> Self:
        return self.model_copy(update={"kept": bits, "rows": bits.bit_count()})

    @property
    def _bits(self) -> int:
        return (1 << self.rows) - 1 if self.kept is None else self.kept


class Span(Frozen):
    """The time that a partition covers: `start` inclusive, `end` exclusive.

    Attributes:
        zone: the time zone by which partitions begin and end. The instants themselves are in UTC.
    """

    start: Instant
    end: Instant
    zone: str


class Part(Frozen):
    """The rows of one partition; for a model without partitions, all rows.

    Attributes:
        partition: the partition key; None without partitions. For a static partition, all rows
            have the key as the value of the partition column.
        span: the time that the partition covers; None if the partition is no time partition.
        version: the number of the snapshot that wrote the files.
        columns: the columns of the rows; None if they are the columns of the snapshot.
        digest: the SHA-256 of the file from which the rows come; None if the rows come from a
            model's code.
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

    If a partition did not change between two versions, both versions share its files.

    Attributes:
        folder: the folder of the files. The manifest, which is the stored JSON of this version,
            does not contain the folder, so that users can move the data folder.
        asset_key: the asset key of the model, "a/b" for a key of two parts.
        number: the number of the version. For each model, the store counts from 1.
        columns: the columns of the model at the newest write.
        comments: maps names of columns to comments, which are not part of the data.
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
        """Whether the rows are stored by partitions."""
        return any(part.partition is not None for part in self.parts)

    @property
    def size(self) -> int:
        """The size of all files together, in bytes."""
        return sum(file.size for part in self.parts for file in part.files)

    @property
    def files(self) -> tuple[DataFile, ...]:
        """The files of this version that have rows."""
        # Leave out empty files, which Spark writes for empty partitions, so that hyperd does not
        # open them.
        return tuple(file for part in self.parts for file in part.files if file.rows)

    @property
    def paths(self) -> tuple[str, ...]:
        """The paths at which hyperd finds the files that have rows."""
        return self.paths_of(self.files)

    def paths_of(self, files: Iterable[DataFile]) -> tuple[str, ...]:
        """Return local paths of files of this version; fetch files that are not on this machine."""
        files = tuple(files)
        return self.folder_of(files).paths([file.name for file in files])

    def folder_of(
        self, files: Iterable[DataFile], columns: Collection[str] | None = None
    ) -> Folder:
        """Return the folder of files, prepared so that a read returns only the rows that count.

        Args:
            columns: the columns to read; None for all columns.
        """
        kept = {file.name: file.kept for file in files if file.kept is not None}
        if not kept:
            return self.folder
        if not isinstance(self.folder, LakeFolder):
            # Only files of lake tables can contain deleted rows.
            raise TypeError(
                f"{self.asset_key} has deleted rows, but its folder cannot leave them out"
            )
        return replace(self.folder, kept=kept, columns=columns)

    def missing(self) -> list[str]:
        """Return the full names of the files that have rows but do not exist."""
        return self.folder.missing([file.name for file in self.files])

    @property
    def data_version(self) -> str:
        """A digest of the schema and the fingerprints, which is equal for equal contents."""

        def described(columns: tuple[Column, ...] | None) -> list[list[str]] | None:
            return [[column.name, column.type] for column in columns] if columns else None

        # Leave out the number of the version and the names of its files. Otherwise, a model that
        # writes the same rows again would trigger downstream assets.
        parts = [
            [part.partition, part.fingerprint.model_dump(mode="json"), described(part.columns)]
            for part in self.parts
        ]
        content = json.dumps([described(self.columns), parts])
        return hashlib.sha256(content.encode()).hexdigest()[:16]

    def manifest(self) -> str:
        """Return the text of the manifest. The version exists once its manifest is written."""
        # Include default values, because a later release may have other defaults.
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
        """Return this version as if its files had no hashes of rows.

        When hyperd reads the files of the returned version, it computes the hashes itself. Two
        versions are comparable only if their hashes are of the same kind.
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
        """Return this version with only these parts.

        If all these parts have the same columns, these become the columns of the returned version.
        """
        # Old partitions with equal columns are consistent, even if the newest write has other
        # columns.
        shared = {part.columns or self.columns for part in parts}
        if len(shared) != 1:
            return self.model_copy(update={"parts": tuple(parts)})
        alike = tuple(part.model_copy(update={"columns": None}) for part in parts)
        return self.model_copy(update={"columns": shared.pop(), "parts": alike})

    def column_problem(self) -> str | None:
        """Return a problem if a partition has other columns than the newest write, or else None."""
        for part in self.parts:
            if part.columns is not None and part.columns != self.columns:
                differing = set(part.columns) ^ set(self.columns)
                names = ", ".join(sorted(f"{column.name} ({column.type})" for column in differing))
                return (
                    f'Model "{self.asset_key}": its partition {part.partition} differs from the '
                    f"newest one in its columns: {names or 'their order'}. Materialize "
                    f"{part.partition} again, and all other partitions with its old columns."
                )
        return None

    def check_columns(self) -> None:
        """Check that all partitions have the columns of the newest write.

        Raises:
            RefusedError: a partition has other columns; the message names the partition and the
                columns.
        """
        if problem := self.column_problem():
            raise RefusedError(problem, code=Code.MODEL)


class Snapshots(Protocol):
    """The versions of models that a refresh reads."""

    def newest(self, asset_key: str) -> Snapshot | None:
        """Return the newest version of a model; None if the model has no version."""

    def version(self, asset_key: str, number: int) -> Snapshot | None:
        """Return a version of a model; None if the version was removed."""
