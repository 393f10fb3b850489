"""Tables and columns of a published data source: what they are, and how they would change."""

from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from tableau_pipeline.core.checkpoint import TableContent
from tableau_pipeline.core.declaration import Declaration, SchemaPolicy
from tableau_pipeline.core.package import unpack
from tableau_pipeline.core.server import RemoteDatasource
from tableau_pipeline.hyper.hyper_file import HyperFileError, table_columns
from tableau_pipeline.hyper.process import Hyperd
from tableau_pipeline.hyper.tables import EXTRACT_SCHEMA
from tableau_pipeline.hyper.types import hyper_type
from tableau_pipeline.objects.local import scratch
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
        extract = Path(folder) / "published.hyper"
        with extract.open("wb") as file:
            unpack(package, ".hyper", file, limit=limit or _LARGEST * package.stat().st_size)
        yield extract


def published_tables(
    server: TableauSite, remote: RemoteDatasource, hyper: Callable[[], Hyperd]
) -> Mapping[str, Mapping[str, str]]:
    """Return the SQL types of the columns of the published file, by table and column.

    Raises:
        ValueError: the published file has other schemas than an extract, or cannot be read.
    """
    with published_file(server, remote) as extract:
        try:
            found = table_columns(hyper(), extract)
        except HyperFileError as error:
            raise ValueError(str(error)) from error
    schemas = {table.schema_name.name.unescaped for table in found if table.schema_name}
    if others := schemas - {EXTRACT_SCHEMA}:
        raise ValueError(f'it has the schema "{min(others)}"')
    return {table.name.unescaped: columns for table, columns in found.items()}


def layout_changes(
    found: Mapping[str, Mapping[str, str]], declaration: Declaration, desired: Tables
) -> list[str]:
    """In what the tables of a published file differ from those to publish, as phrases.

    Args:
        found: the SQL types of the columns, by table and column.
    """
    before = {(table, name): type_ for table in found for name, type_ in found[table].items()}
    after = {
        (declaration.published_name(name), column.name): hyper_type(column, table=name)
        for name, table in desired.items()
        for column in table.columns
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


def schema_changes(desired: Tables, base: Tables) -> list[str]:
    """All differences between the published and the desired schema, one phrase each."""
    return [phrase for phrase, _ in _changes(desired, base)]


def schema_problems(desired: Tables, base: Tables, policy: SchemaPolicy) -> list[str]:
    """Return a sentence with all differences that the policy does not allow; [] if none."""
    changes = _changes(desired, base)
    if policy == "publish":
        return []
    refused = [phrase for phrase, additive in changes if policy == "refuse" or not additive]
    if not refused:
        return []
    return [
        f"The schema changed: {'; '.join(refused)}. on_schema_change: {policy} refuses that. To "
        "publish it all the same, run once with accept: [schema]; otherwise, correct what produces "
        "the data"
    ]


def _changes(desired: Tables, base: Tables) -> list[tuple[str, bool]]:
    """Pairs of a change, as a phrase, and whether it only adds something."""
    changes = [(f'table "{name}" is new', True) for name in _missing(desired, base)]
    changes += [(f'table "{name}" is gone', False) for name in _missing(base, desired)]
    for name, table in desired.items():
        if published := base.get(name):
            changes += _column_changes(name, table, published)
    return changes


def _missing(these: Tables, those: Tables) -> list[str]:
    return [name for name in these if name not in those]


def _column_changes(table: str, now: TableContent, before: TableContent) -> list[tuple[str, bool]]:
    # Readers do not see the order of columns, so a new order is no change of the schema.
    new = {column.name: column.type for column in now.columns}
    old = {column.name: column.type for column in before.columns}
    return [
        *((f"{table}.{name} is new ({new[name]})", True) for name in new if name not in old),
        *((f"{table}.{name} is gone ({old[name]})", False) for name in old if name not in new),
        *(
            (f"{table}.{name} was {old[name]} and is {new[name]}", False)
            for name in new
            if name in old and old[name] != new[name]
        ),
    ]
