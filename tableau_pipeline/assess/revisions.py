"""Which share of the rows of a data source changed between its last two revisions."""

from contextlib import ExitStack
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory

import tableauserverclient as TSC
from tableauhyperapi import Connection, HyperException, TableName, escape_name

from tableau_pipeline.hyper.build import rows_in
from tableau_pipeline.hyper.process import Hyperd, connect
from tableau_pipeline.objects.stores import scratch
from tableau_pipeline.publishing import rest
from tableau_pipeline.publishing.errors import DOWNLOAD_REMEDIES
from tableau_pipeline.publishing.site import TableauSite

_MEGABYTE = 2**20
# A file may unpack to so many times its size.
_LARGEST = 50


@dataclass(frozen=True, slots=True)
class Difference:
    """How two revisions differ.

    Attributes:
        rows: of the newer one.
        changed: rows that only one of them has, of the one that has more of them.
        since: when the older one was published.
        until: when the newer one was.
    """

    rows: int
    changed: int
    since: datetime | None
    until: datetime | None

    @property
    def share(self) -> float:
        """The share of the rows that changed; more than 1 if more rows went than are left."""
        return self.changed / max(self.rows, 1)


def revisions_of(site: TableauSite, item: TSC.DatasourceItem) -> list[TSC.RevisionItem] | None:
    """Return the revisions of a data source, oldest first; None if the site keeps none for us."""
    return site.ask("Listing the revisions", lambda: rest.revisions(site.tsc, item))


def difference(
    site: TableauSite,
    hyper: Hyperd,
    item: TSC.DatasourceItem,
    last: tuple[TSC.RevisionItem, TSC.RevisionItem],
    *,
    most: int,
) -> Difference:
    """Download two revisions, and compare their rows.

    Args:
        last: the older one and the newer one.
        most: megabytes that each may have.

    Raises:
        RefreshError: they cannot be downloaded, or are too large.
        ValueError: they are not two Hyper files of the same tables.
    """
    older, newer = last
    with TemporaryDirectory(prefix="revisions ", dir=scratch()) as folder:
        files = {}
        for name, revision in (("older", older), ("newer", newer)):
            # The current one is no revision to servers, but the data source itself.
            number = None if revision is newer else str(revision.revision_number)
            files[name] = _hyper_of(site, item, number, Path(folder) / name, most=most)
        try:
            rows, changed = _compared(hyper, files)
        except HyperException as error:
            raise ValueError(f"they cannot be compared: {str(error).splitlines()[0]}") from error
    return Difference(rows, changed, older.created_at, newer.created_at)


def _hyper_of(
    site: TableauSite, item: TSC.DatasourceItem, revision: str | None, folder: Path, *, most: int
) -> Path:
    folder.mkdir()
    limit = most * _MEGABYTE

    def save() -> Path:
        with rest.content(site.tsc, str(item.id), limit=limit, revision=revision) as answer:
            return rest.save(answer, folder / "content")

    doing = f"Downloading revision {revision or 'now'}"
    package, file = site.ask(doing, save, remedies=DOWNLOAD_REMEDIES), folder / "rows.hyper"
    with file.open("wb") as opened:
        rest.unpack(package, ".hyper", opened, limit=_LARGEST * limit)
    package.unlink()
    return file


def _compared(hyper: Hyperd, files: dict[str, Path]) -> tuple[int, int]:
    """The rows of the newer file, and those that changed."""
    with ExitStack() as stack:
        connection = stack.enter_context(connect(hyper))
        for name, file in files.items():
            # Hyper upgrades some files when it opens them.
            connection.execute_command(f"ATTACH DATABASE {escape_name(str(file))} AS {name}")
        older, newer = (_tables(connection, name) for name in files)
        if older.keys() != newer.keys():
            raise ValueError("their tables differ")
        rows = changed = 0
        for key, columns in newer.items():
            if older[key] != columns:
                raise ValueError(f"the columns of {key[1]} differ")
            before, after = (TableName(name, *key) for name in files)
            rows += int(connection.execute_scalar_query(f"SELECT COUNT(*) FROM {after}") or 0)  # noqa: S608
            changed += max(_only_in(connection, after, before), _only_in(connection, before, after))
        return rows, changed


def _tables(connection: Connection, database: str) -> dict[tuple[str, str], list[tuple[str, str]]]:
    catalog, found = connection.catalog, {}
    for schema in catalog.get_schema_names(database):
        for table in catalog.get_table_names(schema):
            columns = catalog.get_table_definition(table).columns
            key = (str(schema.name.unescaped), str(table.name.unescaped))
            found[key] = [(str(each.name.unescaped), str(each.type)) for each in columns]
    return found


def _only_in(connection: Connection, one: TableName, other: TableName) -> int:
    query = f"(SELECT * FROM {one} EXCEPT ALL SELECT * FROM {other}) AS differing"  # noqa: S608
    return rows_in(connection, query)
