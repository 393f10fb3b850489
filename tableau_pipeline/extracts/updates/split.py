"""Split a delta that is too large for one payload into consecutive updates.

Each part deletes and inserts the affected rows of its own keys, windows or range of the cursor.
Between two parts, every row is either in its old or in its new version. All parts are cut from the
one payload that was built, so the versions are compared only once.
"""

from dataclasses import dataclass, replace
from math import ceil

from tableauhyperapi import Connection, HyperProcess, TableName, escape_name

from tableau_pipeline.extracts.updates.affected_rows import KeyMatch, KeyTable, affected, fill
from tableau_pipeline.extracts.updates.delta import ROWS, Delta, TableDelta, insert_rows
from tableau_pipeline.hyper.new_file import new_file
from tableau_pipeline.hyper.parquet.rows import names

# Several payloads are together larger than one, as every file has some overhead.
_ROOM = 1.3
_WHOLE = "whole"
_RANK = escape_name("_rank")


def split_delta(hyper: HyperProcess, delta: Delta, limit: int) -> list[Delta]:
    """Split an update into several, each with a payload of at most `limit` bytes.

    The first part has the tables that are sent whole. Returns [] if no split is fine enough.
    """
    if limit <= 0:
        return []
    number = ceil(delta.extract.size / limit * _ROOM)
    # Rows differ in size: parts with equally many rows may still exceed the limit.
    for of in (number, 2 * number, 4 * number):
        parts: list[Delta] = []
        for index in range(of):
            part = _build(hyper, delta, index, of)
            parts.append(part)
            if part.extract.size > limit:
                break
        else:
            return parts
        for part in parts:
            part.extract.path.unlink()
    return []


def _build(hyper: HyperProcess, delta: Delta, index: int, of: int) -> Delta:
    whole = delta.extract
    path = whole.path.with_name(f"{whole.path.stem}-{index + 1}-of-{of}.hyper")
    with new_file(hyper, path, version=whole.version) as connection:
        connection.catalog.attach_database(whole.path, _WHOLE)
        parts = [_PartOf(connection, table, index, of).table() for table in delta.tables]
        connection.catalog.detach_database(_WHOLE)
    return Delta.of(path, [part for part in parts if part], version=whole.version)


@dataclass(frozen=True, slots=True)
class _PartOf:
    """Writes the part of one table; `index` counts the `of` parts from 0."""

    connection: Connection
    delta: TableDelta
    index: int
    of: int

    def table(self) -> TableDelta | None:
        """Return the table's delta; None if this part has nothing of the table."""
        counts = self.delta.counts
        if counts.whole:
            # A table that is replaced in pieces would lack most of its rows between them.
            if self.index:
                return None
            self._insert()
            return self.delta
        keys = [
            # The key table of an append has only one row, its start, which cannot be dealt out.
            self._stretch(each)
            if [match.operator for match in each.matches] == ["gte"]
            else self._some_rows(each)
            for each in self.delta.keys
        ]
        inserted = self._insert(where=affected(keys, "source")) if counts.inserted else 0
        return replace(self.delta, keys=keys, counts=replace(counts, inserted=inserted))

    def _payload(self, schema: str) -> TableName:
        """A table of the payload that is being split."""
        return TableName(_WHOLE, schema, self.delta.change.table.name)

    def _insert(self, *, where: str = "TRUE") -> int:
        rows = str(self._payload(ROWS))
        return insert_rows(self.connection, self.delta.change, rows, where=where)

    def _some_rows(self, keys: KeyTable) -> KeyTable:
        columns = names(keys.columns)
        typed = [self.delta.change.column(match.column, called=match.by) for match in keys.matches]
        # Dealt out by rank, so that each part gets equally many keys.
        fill(
            self.connection,
            keys,
            typed,
            f"SELECT {columns} FROM (SELECT {columns}, ROW_NUMBER() OVER (ORDER BY {columns}) "  # noqa: S608
            f"AS {_RANK} FROM {self._payload(keys.kind)}) ranked "
            f"WHERE {_RANK} % {self.of} = {self.index}",
        )
        return keys

    def _stretch(self, keys: KeyTable) -> KeyTable:
        """Fill a key table with one range of the cursor; the last range has no end."""
        (match,) = keys.matches
        if not self.delta.counts.inserted:
            # No rows to divide into ranges, and no rows to send.
            return self._some_rows(keys)
        cursor, start = escape_name(match.column), escape_name(match.by)
        # UNION drops repeated starts, as one value of the cursor may fill several tiles. Then some
        # parts get no range, and affect no rows.
        starts = (
            "SELECT start, LEAD(start) OVER (ORDER BY start) AS stop, "  # noqa: S608
            "ROW_NUMBER() OVER (ORDER BY start) - 1 AS rank "
            f"FROM (SELECT {start} AS start FROM {self._payload(keys.kind)} "
            f"UNION SELECT MIN({cursor}) FROM (SELECT {cursor}, NTILE({self.of}) "
            f"OVER (ORDER BY {cursor}) AS {_RANK} FROM {self._payload(ROWS)}) tiled "
            f"WHERE {_RANK} > 1 GROUP BY {_RANK}) starts"
        )
        this = f"FROM ({starts}) stretches WHERE rank = {self.index}"
        open_end = self.connection.execute_scalar_query(f"SELECT COUNT(*) {this} AND stop IS NULL")
        stretch = keys
        if not open_end:
            stretch = replace(keys, matches=(match, KeyMatch(match.column, "lt", "stop")))
        columns = [self.delta.change.column(match.column, called=name) for name in stretch.columns]
        wanted = ", ".join(
            f"{'start' if name == match.by else 'stop'} AS {escape_name(name)}"
            for name in stretch.columns
        )
        fill(self.connection, stretch, columns, f"SELECT {wanted} {this}")
        return stretch
