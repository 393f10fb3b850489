"""The cases of the benchmark `change`: what changes between two refreshes, and in which source."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.change import delta_table, delta_vectors, spark_sources
from benchmarks.change.pipeline import MODEL, Kind
from benchmarks.published import check_published
from tableau_pipeline.hyper.process import hyper_process
from tableau_pipeline.snapshots.retention import collect
from tableau_pipeline.snapshots.version_store import SnapshotStore


@dataclass(frozen=True)
class Case:
    """A kind of source, and a change of 1 % of its rows.

    Attributes:
        change: changes the source, and returns the partitions to write. It takes the file of
            lineitem, the source, and the number of the turn (the repetition). Only the kind
            "partitions" has partitions; other kinds return ().
    """

    title: str
    kind: Kind
    change: Callable[[Path, Path, int], Sequence[str]]

    @property
    def has_model(self) -> bool:
        """Whether Spark writes a model from the source."""
        return self.kind != "delta"


def _in_a_slot(_lineitem: Path, source: Path, turn: int) -> Sequence[str]:
    return spark_sources.change_slot(source, turn)


def _everywhere(_lineitem: Path, source: Path, _turn: int) -> Sequence[str]:
    return spark_sources.change_everywhere(source)


def _merged(lineitem: Path, source: Path, turn: int) -> Sequence[str]:
    return delta_table.merge_into_delta(lineitem, source, turn)


def _appended(lineitem: Path, source: Path, turn: int) -> Sequence[str]:
    return delta_table.append_to_delta(lineitem, source, turn)


def _deleted(_lineitem: Path, source: Path, turn: int) -> Sequence[str]:
    return delta_vectors.delete_clustered(source, turn)


def _deleted_everywhere(_lineitem: Path, source: Path, turn: int) -> Sequence[str]:
    return delta_vectors.delete_scattered(source, turn)


CASES = {
    "a": Case("1 % of the rows, in one of 30 partitions", "partitions", _in_a_slot),
    "b": Case("1 % of a Delta table, merged into few files", "delta", _merged),
    "c": Case("1 % of a Delta table, appended", "delta", _appended),
    "d": Case("1 % of the rows, scattered over all files", "whole", _everywhere),
    "e": Case("1 % of a Delta table, deleted in one file", "delta", _deleted),
    "f": Case(
        "1 % of a Delta table, deleted by vectors of all files", "delta", _deleted_everywhere
    ),
}


def write_source(kind: Kind, lineitem: Path, source: Path) -> None:
    """Create a source of this kind that holds the rows of lineitem."""
    match kind:
        case "partitions":
            spark_sources.write_slots(lineitem, source)
        case "whole":
            spark_sources.link(lineitem, source)
        case "delta":
            delta_table.write_delta(lineitem, source)


def check(
    kind: Kind, folder: Path, luid: str, *, environment: Mapping[str, str], slices: int
) -> None:
    """Compare the rows of the published data source with the newest version of its model or table.

    Raises:
        RuntimeError: the rows differ.
    """
    if kind == "delta":
        files, columns = delta_table.newest(folder / "source")
    else:
        newest = SnapshotStore(folder / "snapshots").newest(MODEL)
        assert newest
        files, columns = newest.paths, [column.name for column in newest.columns]
    check_published(
        hyper_process(),
        luid,
        files,
        columns=columns,
        environment=environment,
        folder=folder,
        slices=slices,
    )


def remove_old_files(kind: Kind, folder: Path) -> None:
    """Remove the files that only older versions of the model or table use."""
    if kind == "delta":
        delta_table.vacuum_delta(folder / "source")
        return
    store = SnapshotStore(folder / "snapshots")
    newest = store.numbers(MODEL)[-1]
    collect(store, keep_days=0, referenced={(MODEL, newest)})
