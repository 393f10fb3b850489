"""Read and edit the `.tds` of a data source."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path as File

from tableau_pipeline.metadata.merge import Path, Values

# The columns of each table by its name in the file: (name, Hyper's SQL type), in order.
Tables = Mapping[str, Sequence[tuple[str, str]]]


@dataclass(frozen=True, slots=True)
class Metadata:
    """The content of a data source's `.tds`.

    Attributes:
        digest: changes when a user edits calculated fields, captions or folders. Equal
            metadata has equal digests, however it is written or packed.
        columns: pairs (table, column) of the published file; None if the `.tds` lists none.
        work: the names of what people made in it, by kind, such as "calculated fields".
        tds: the file itself; b"" where it is not known.
    """

    digest: str
    columns: frozenset[tuple[str, str]] | None
    work: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    tds: bytes = field(default=b"", repr=False, compare=False)


def read_metadata(tds: bytes) -> Metadata:
    """Read a `.tds` (`publishing.rest.tds_of` takes it out of a download).

    Raises:
        ValueError: it is none; the message states why.
    """
    raise NotImplementedError


class Tds:
    """A `.tds`.

    Raises:
        ValueError: it is none, or has an entity or DTD, or is too large or deep.
    """

    def __init__(self, content: bytes) -> None:
        raise NotImplementedError

    def values(self, calculations: Collection[str] = ()) -> Values:
        """Return the values of all fields and hierarchies that differ from the products' defaults.

        Args:
            calculations: the names of those that are or were ours: `calculations_in(wanted,
                *written)`. Those that people made have no values, unless one has such a name.
        """
        raise NotImplementedError

    def edited(self, changes: Mapping[Path, str | None], tables: Tables) -> bytes:
        """Return the file with these changes and columns; all else stays as it is.

        Args:
            changes: as in `Merge.changes`. Those of columns that `tables` lacks say nothing.
            tables: the columns that the published file will have.

        Raises:
            ValueError: it has other tables, so that nothing can be merged.
        """
        raise NotImplementedError

    def used_by(self, *name: str) -> tuple[str, ...]:
        """Return what names a field: calculated fields, hierarchies, groups, sets, filters.

        Args:
            name: table and column, or the name of a declared calculation.
        """
        raise NotImplementedError


def calculations_in(*values: Values) -> frozenset[str]:
    """Return the names of the calculations in some values."""
    return frozenset(path[1] for each in values for path in each if path[0] == "calculation")


def pack(tds: bytes, hyper: File, into: File) -> None:
    """Write a `.tdsx`, with the `.hyper` file where the `.tds` expects it."""
    raise NotImplementedError


def shown(path: Path) -> str:
    """Return a path in words: "caption of flights.net_amount", "hierarchy Route"."""
    raise NotImplementedError
