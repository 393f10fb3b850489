"""Lake tables with deletes that the tests write themselves, and a ledger of their rows.

delta-rs and pyiceberg cannot write most of these tables. The tests compare the rows that the
pipeline reads with the ledger.
"""

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from tableau_pipeline.core.lake_table import LakeFormat

Row = dict[str, Any]
SCHEMA = pa.schema(
    {
        "id": pa.int64(),
        "word": pa.string(),
        "day": pa.date32(),
        "at": pa.timestamp("us", "UTC"),
        "price": pa.decimal128(10, 2),
    }
)
# Instants that 64 bits cannot hold in nanoseconds.
_MOMENTS = (datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, 999_999, UTC))


def drawn_rows(draw: random.Random, ids: Iterable[int]) -> list[Row]:
    """Draw rows with these ids."""
    moment = datetime(2024, 2, 28, 23, 59, 59, 999_999, UTC)
    return [
        {
            "id": id_,
            "word": draw.choice(["a", "b c", "ü/%=", "", None, f"w{id_}"]),
            "day": draw.choice([None, date(2024, 2, 28) + timedelta(draw.randrange(3))]),
            "at": draw.choice([None, *_MOMENTS, moment + timedelta(days=draw.randrange(9))]),
            "price": draw.choice(
                [None, Decimal("-0.01"), Decimal(draw.randrange(10**10)).scaleb(-2)]
            ),
        }
        for id_ in ids
    ]


@dataclass
class Ledger:
    """The rows of a table by file, and the positions of the deleted rows.

    Attributes:
        held: the rows of each file, by the name of the file.
        deleted: the positions of the deleted rows of each file.
    """

    held: dict[str, list[Row]] = field(default_factory=dict)
    deleted: dict[str, frozenset[int]] = field(default_factory=dict)

    def kept_at(self, name: str) -> set[int]:
        """The positions of the rows of a file that are not deleted."""
        return {*range(len(self.held.get(name, ())))} - self.deleted.get(name, frozenset())

    def kept(self, name: str) -> list[Row]:
        """The rows of a file that are not deleted."""
        return [self.held[name][number] for number in sorted(self.kept_at(name))]

    def rows(self) -> list[Row]:
        """The rows of the table."""
        return [row for name in self.held for row in self.kept(name)]

    def copy(self) -> "Ledger":
        """A copy of the ledger in its present state."""
        return Ledger({**self.held}, {**self.deleted})


class Writer(Protocol):
    """Writes a table: collects changes, and then commits all changes together."""

    format: LakeFormat
    location: Path
    ledger: Ledger

    def add(self, rows: Sequence[Row]) -> None:
        """Add rows in new files."""

    def delete(self, name: str, positions: frozenset[int]) -> None:
        """Set the deleted rows of a file to exactly these positions."""

    def remove(self, name: str) -> None:
        """Remove a file."""

    def commit(self) -> None:
        """Commit the collected changes as the next version."""


def change(draw: random.Random, writer: Writer, *, first_id: int) -> None:
    """Draw changes to files and new rows, and commit them as a version."""
    ledger = writer.ledger
    for name in [*ledger.held]:
        deleted, count = ledger.deleted.get(name, frozenset()), len(ledger.held[name])
        match draw.choice(["keep", "keep", "more", "more", "all", "other", "remove", "rewrite"]):
            case "more":
                more = frozenset(draw.sample(range(count), draw.randint(1, count)))
                writer.delete(name, deleted | more)
            case "all":
                writer.delete(name, frozenset(range(count)))
            case "other":  # A restored version has such deletes.
                writer.delete(name, frozenset(draw.sample(range(count), draw.randint(0, count))))
            case "remove":
                writer.remove(name)
            case "rewrite":
                rows = ledger.kept(name)
                writer.remove(name)
                writer.add(rows)
    writer.add(drawn_rows(draw, range(first_id, first_id + draw.randint(0, 9))))
    writer.commit()


def write_parquet(draw: random.Random, path: Path, rows: Sequence[Row], schema: pa.Schema) -> None:
    """Write rows as other engines may: in several row groups, with INT96 or INT64 time stamps."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(
        pa.Table.from_pylist([*rows], schema),
        path,
        row_group_size=draw.choice([1, 3, 100]),
        use_deprecated_int96_timestamps=draw.random() < 0.3,
        use_dictionary=draw.random() < 0.5,
    )


def parted(rows: Sequence[Row], by: Sequence[str]) -> dict[tuple[Any, ...], list[Row]]:
    """Group rows by the values of the partition columns."""
    parts: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        parts.setdefault(tuple(row[name] for name in by), []).append(row)
    return parts
