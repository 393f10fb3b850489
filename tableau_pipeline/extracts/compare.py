"""Compare a published file with the snapshots that it was made from."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from tableauhyperapi import Connection, TableName

from tableau_pipeline.core.checkpoint import Checkpoint, TableContent
from tableau_pipeline.core.counting import CountWay
from tableau_pipeline.core.snapshot import Snapshot, Snapshots
from tableau_pipeline.errors import RefreshError
from tableau_pipeline.extracts.desired import table_source
from tableau_pipeline.hyper.parquet.rows import rows
from tableau_pipeline.hyper.tables import EXTRACT_SCHEMA
from tableau_pipeline.hyper.types.row_text import number_of, row_text, value_text

# The number of bytes of each hash that are summed: such sums stay exact for any number of rows.
_BYTES = 6


@dataclass(frozen=True, slots=True)
class Reconciliation:
    """How the published tables compare with the models.

    Attributes:
        problem: what differs; None if nothing that was compared does.
        skipped: why nothing was compared; None if something was.
        by: how the rows were counted, by table: in the downloaded file, or by the server.
        rows: the number of rows that were found, by table.
        checksums: the checksums of the columns that were read back, by "table.column". They do
            not depend on the order of rows.
    """

    problem: str | None = None
    skipped: str | None = None
    by: Mapping[str, CountWay | Literal["download"]] = field(default_factory=dict)
    rows: Mapping[str, int] = field(default_factory=dict)
    checksums: Mapping[str, int] = field(default_factory=dict)

    @property
    def way(self) -> str:
        """In which way something was compared, in words."""
        if self.checksums:
            return "checksums"
        return "count" if "download" in self.by.values() else "count on the server"


class ReconciliationError(RefreshError):
    """The published data differs from the models; `found` shows where."""

    def __init__(self, found: Reconciliation) -> None:
        super().__init__(
            f"What is published differs from the models: {found.problem}. The next run publishes "
            "in full. If this happens again, please report it"
        )
        self.found = found


def compare(
    connection: Connection,
    checkpoint: Checkpoint,
    snapshots: Snapshots,
    *,
    checksums: bool = False,
    by_row: bool = False,
) -> Reconciliation:
    """Compare the tables of an open, published file with a checkpoint.

    Args:
        checksums: compare the values of each column, not only the number of rows.
        by_row: compare whole rows instead, and the names of tables and columns.

    Raises:
        RefreshError: the snapshot of a model is gone, so nothing can be compared.
    """
    problems: list[str] = []
    counts, sums = {}, {}
    names = {name: checkpoint.target(name) for name in checkpoint.tables}

    existing = _tables(connection)
    if by_row and existing != set(names.values()):
        return Reconciliation(problem="it has other tables")
    for name, table in checkpoint.tables.items():
        published = names[name]
        if published not in existing:
            problems.append(f"{name} is not there")
            continue
        expected = table.content.rows
        counts[name] = _rows(connection, str(published))
        if counts[name] != expected:
            problems.append(f"{name} holds {counts[name]:,} rows, its model {expected:,}")
        elif by_row and not _same_rows(
            connection, published, table, model_rows(name, table, snapshots)
        ):
            problems.append(f"the rows of {name} differ")
        elif checksums and not by_row:
            found = _checksums(connection, str(published), table)
            sums.update({f"{name}.{column}": each for column, each in found.items()})
            wanted = _checksums(connection, model_rows(name, table, snapshots), table)
            differing = [column for column in wanted if wanted[column] != found[column]]
            problems += [f"{name}.{column} differs" for column in differing]
    return Reconciliation(
        "; ".join(problems) or None,
        by=dict.fromkeys(counts, "download"),
        rows=counts,
        checksums=sums,
    )


def model_rows(name: str, table: TableContent, snapshots: Snapshots) -> str:
    """Return SQL for the rows of a model that a table of this content holds.

    Raises:
        RefreshError: the snapshot of the model is gone.
    """
    return rows(table_source(name, _snapshot(snapshots, table), table.cutoff))


def _same_rows(
    connection: Connection, published: TableName, table: TableContent, model: str
) -> bool:
    definition = connection.catalog.get_table_definition(published)
    found = [column.name.unescaped for column in definition.columns]
    if set(found) != {column.name for column in table.columns}:
        return False
    return _row_sum(connection, str(published), table) == _row_sum(connection, model, table)


def _snapshot(snapshots: Snapshots, table: TableContent) -> Snapshot:
    snapshot = snapshots.version(table.model, table.version)
    if snapshot and snapshot.fingerprint != table.all_rows:
        # The version may contain partitions that no longer belong to the model.
        snapshot = snapshots.newest(table.model)
    if snapshot is None or snapshot.fingerprint != table.all_rows or snapshot.missing():
        raise RefreshError(f"version {table.version} of the model {table.model} is gone")
    return snapshot


def count_rows(connection: Connection) -> dict[str, int]:
    """Count the rows of each table in the extract schema, by table name."""
    return {table.name.unescaped: _rows(connection, str(table)) for table in _tables(connection)}


def _tables(connection: Connection) -> set[TableName]:
    return {
        TableName(EXTRACT_SCHEMA, table.name)
        for schema in connection.catalog.get_schema_names()
        if schema.name.unescaped == EXTRACT_SCHEMA
        for table in connection.catalog.get_table_names(schema)
    }


def _rows(connection: Connection, relation: str) -> int:
    return int(str(connection.execute_scalar_query(f"SELECT COUNT(*) FROM {relation}")))  # noqa: S608


def _sums(connection: Connection, texts: Sequence[str], relation: str) -> list[int]:
    """Return for each text the sum of the first bytes of its SHA-256 over all rows."""
    # The row hashes of the model are not published, so both sides are hashed alike here.
    hashes = [f"sha256({text}) AS h{number}" for number, text in enumerate(texts)]
    sums = [
        f"SUM(CAST({number_of(f'h{number}', _BYTES)} AS NUMERIC(38,0)))"
        for number in range(len(texts))
    ]
    (totals,) = connection.execute_list_query(
        f"SELECT {', '.join(sums)} "  # noqa: S608
        f"FROM (SELECT {', '.join(hashes)} FROM {relation} source) hashed"
    )
    # The sum over no rows is NULL.
    return [int(str(total or 0)) for total in totals]


def _checksums(connection: Connection, relation: str, table: TableContent) -> dict[str, int]:
    """Return the sum over the values of each column; NULL counts as a value."""
    # The prefix keeps an empty text apart from NULL.
    texts = [f"COALESCE('=' || {value_text(column)}, '')" for column in table.columns]
    names = [column.name for column in table.columns]
    return dict(zip(names, _sums(connection, texts, relation), strict=True))


def _row_sum(connection: Connection, relation: str, table: TableContent) -> int:
    """Return the sum over whole rows; length prefixes keep values apart."""
    (total,) = _sums(connection, [row_text(table.columns)], relation)
    return total
