"""Compare what is published with the models: its tables and columns, its rows, its values."""

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

from tableauhyperapi import Connection, TableName

from tableau_pipeline.core.checkpoint import Checkpoint, TableContent
from tableau_pipeline.core.declaration import Declaration, SchemaPolicy
from tableau_pipeline.core.drift import RemoteDatasource
from tableau_pipeline.core.snapshot import Snapshots
from tableau_pipeline.errors import RefreshError
from tableau_pipeline.extracts.desired import table_source
from tableau_pipeline.hyper.build import rows_in, table_names
from tableau_pipeline.hyper.hyper_file import HyperFileError, table_columns
from tableau_pipeline.hyper.parquet import number_of, row_text, select_sql
from tableau_pipeline.hyper.process import Hyperd
from tableau_pipeline.hyper.types import EXTRACT_SCHEMA, Column, hyper_type
from tableau_pipeline.objects.stores import scratch
from tableau_pipeline.outcome import Accept, Check, Code, Refusal
from tableau_pipeline.publishing.rest import unpack
from tableau_pipeline.publishing.site import TableauSite

# Bytes of a package beside its extract: the `.tds`, and what images people put into it.
_AROUND = 10**7
# How many times the size of its package a file may unpack to: its pages are compressed already.
_LARGEST = 50

Tables = Mapping[str, TableContent]


@contextmanager
def published_file(
    server: TableauSite, remote: RemoteDatasource, *, limit: int | None = None
) -> Generator[Path]:
    """Download a data source; yield its `.hyper` file, of at most `limit` bytes.

    Raises:
        RefreshError: it cannot be downloaded, or is larger.
        ValueError: it has no such file, or is damaged.
    """
    with TemporaryDirectory(prefix="read back ", dir=scratch()) as folder:
        most = None if limit is None else limit + _AROUND
        package = server.download(remote.luid, Path(folder), limit=most)
        yield unpacked(package, Path(folder) / "published.hyper", limit=limit)


def unpacked(package: Path, extract: Path, *, limit: int | None = None) -> Path:
    """Write the `.hyper` file of a package, of at most `limit` bytes; return its path.

    Raises:
        RefreshError: it is larger.
        ValueError: there is no such file, or it is damaged.
    """
    with extract.open("wb") as file:
        unpack(package, ".hyper", file, limit=limit or _LARGEST * package.stat().st_size)
    return extract


def layout_differences(
    server: TableauSite,
    remote: RemoteDatasource,
    hyper: Callable[[], Hyperd],
    declaration: Declaration,
    desired: Mapping[str, Sequence[Column]],
) -> Sequence[str]:
    """In what the tables of a data source differ from those to publish, as phrases."""
    try:
        with published_file(server, remote) as extract:
            found = table_columns(hyper(), extract)
    except (HyperFileError, ValueError) as error:
        return [f"its tables cannot be read ({error})"]
    schemas = {table.schema_name.name.unescaped for table in found if table.schema_name}
    if others := schemas - {EXTRACT_SCHEMA}:
        return [f'its tables cannot be read (it has the schema "{min(others)}")']
    named = {table.name.unescaped: columns for table, columns in found.items()}
    return layout_changes(named, declaration, desired)


def layout_changes(
    found: Mapping[str, Mapping[str, str]],
    declaration: Declaration,
    desired: Mapping[str, Sequence[Column]],
) -> list[str]:
    """In what the tables of a published file differ from those to publish, as phrases.

    Args:
        found: the SQL types of the columns, by table and column.
    """
    before = {(table, name): type_ for table in found for name, type_ in found[table].items()}
    after = {
        (declaration.published_name(name), column.name): hyper_type(column, table=name)
        for name, columns in desired.items()
        for column in columns
    }
    return [
        *(f"{'.'.join(key)} ({before[key]}) would go" for key in before if key not in after),
        *(f"{'.'.join(key)} ({after[key]}) is new" for key in after if key not in before),
        *(
            f"{'.'.join(key)} is {before[key]} and would be {after[key]}"
            for key in after
            if key in before and before[key] != after[key]
        ),
    ]


def schema_changes(desired: Tables, base: Tables) -> dict[str, bool]:
    """All differences between the published and the desired schema, and whether each only adds."""
    changes = {f'table "{name}" is new': True for name in desired if name not in base}
    changes |= {f'table "{name}" is gone': False for name in base if name not in desired}
    for table in filter(base.get, desired):
        # Readers do not see the order of columns, so a new order is no change of the schema.
        new, old = ({c.name: c.type for c in each[table].columns} for each in (desired, base))
        for name in dict.fromkeys([*new, *old]):
            if name not in old:
                changes[f"{table}.{name} is new ({new[name]})"] = True
            elif name not in new:
                changes[f"{table}.{name} is gone ({old[name]})"] = False
            elif new[name] != old[name]:
                changes[f"{table}.{name} was {old[name]} and is {new[name]}"] = False
    return changes


def schema_problems(desired: Tables, base: Tables, policy: SchemaPolicy) -> list[Refusal]:
    """Return a refusal with all differences that the policy does not allow; [] if none."""
    changes = schema_changes(desired, base)
    refused = [each for each, only_adds in changes.items() if policy == "refuse" or not only_adds]
    if policy == "publish" or not refused:
        return []
    text = (
        f"The schema changed: {'; '.join(refused)}. on_schema_change: {policy} refuses that. To "
        "publish it all the same, run once with accept: [schema]; otherwise, correct what produces "
        "the data"
    )
    return [Refusal(text, Code.SCHEMA_CHANGED, Accept.SCHEMA, Check.SCHEMA)]


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
        values: whether the values of all rows were compared, and not only their number.
        note: why not more was compared; None if all that could be was.
    """

    problem: str | None = None
    skipped: str | None = None
    by: Mapping[str, Literal["server", "download"]] = field(default_factory=dict)
    rows: Mapping[str, int] = field(default_factory=dict)
    values: bool = False
    note: str | None = None

    @property
    def way(self) -> str:
        """In which way something was compared, in words."""
        if self.values:
            return "checksums"
        return "count" if "download" in self.by.values() else "count on the server"


class ReconciliationError(RefreshError):
    """The published data differs from the models; `found` shows where."""

    def __init__(self, found: Reconciliation) -> None:
        super().__init__(
            f"What is published differs from the models: {found.problem}. The next run publishes "
            "everything again. If this happens again, please report it"
        )
        self.found = found


def compare(
    connection: Connection,
    checkpoint: Checkpoint,
    snapshots: Snapshots,
    *,
    values: bool,
) -> Reconciliation:
    """Compare the tables of an open, published file with a checkpoint.

    Args:
        values: compare the rows themselves, too, in any order, and the names of tables and columns.

    Raises:
        RefreshError: the snapshot of a model is gone, so nothing can be compared.
    """
    problems: list[str] = []
    counts = {}
    names = {name: checkpoint.target(name) for name in checkpoint.tables}
    existing = extract_tables(connection)
    if values and existing != set(names.values()):
        return Reconciliation(problem="it has other tables")
    for name, table in checkpoint.tables.items():
        published = names[name]
        if published not in existing:
            problems.append(f"{name} is not there")
            continue
        expected = table.content.rows
        counts[name] = rows_in(connection, published)
        if counts[name] != expected:
            problems.append(f"{name} holds {counts[name]:,} rows, its model {expected:,}")
        elif values and not _same_rows(
            connection, published, table, select_model(name, table, snapshots)
        ):
            problems.append(f"the rows of {name} differ")
    return Reconciliation(
        "; ".join(problems) or None,
        by=dict.fromkeys(counts, "download"),
        rows=counts,
        values=values,
    )


def select_model(name: str, table: TableContent, snapshots: Snapshots) -> str:
    """Return SQL for the rows of a model that a table of this content holds."""
    snapshot = snapshots.version(table.model, table.version)
    if snapshot and snapshot.fingerprint != table.all_rows:
        # The version may contain partitions that no longer belong to the model.
        snapshot = snapshots.newest(table.model)
    if snapshot is None or snapshot.fingerprint != table.all_rows or snapshot.missing():
        raise RefreshError(f"version {table.version} of the model {table.model} is gone")
    return select_sql(table_source(name, snapshot, table.cutoff))


def _same_rows(
    connection: Connection, published: TableName, table: TableContent, model: str
) -> bool:
    definition = connection.catalog.get_table_definition(published)
    found = [column.name.unescaped for column in definition.columns]
    if set(found) != {column.name for column in table.columns}:
        return False
    found, expected = (
        # The row hashes of the model are not published, so both sides are hashed alike here.
        connection.execute_scalar_query(
            f"SELECT SUM(CAST({number_of('hash', _BYTES)} AS NUMERIC(38,0))) "  # noqa: S608
            f"FROM (SELECT sha256({row_text(table.columns)}) AS hash FROM {rows} source) hashed"
        )
        for rows in (published, model)
    )
    return found == expected


def extract_tables(connection: Connection) -> set[TableName]:
    """Return the tables in the extract schema of an open file."""
    return {
        TableName(EXTRACT_SCHEMA, table.name)
        for table in table_names(connection)
        if table.schema_name and table.schema_name.name.unescaped == EXTRACT_SCHEMA
    }
