"""Slices of an update that is too large for one payload: consecutive updates, right one by one.

Each slice deletes and inserts the touched rows of its own keys, windows or stretch of the cursor:
between two of them every row is as it was, or as it shall be. So the base of the first and the
target of the last are all that has to be remembered in between.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tableauhyperapi import Connection, escape_name

from tableau_pipeline.core.snapshot import ROW_HASH
from tableau_pipeline.hyper.rows import names
from tableau_pipeline.refresh.change import Change
from tableau_pipeline.refresh.touched import Match, Part, fill, in_payload, touched


@dataclass(frozen=True, slots=True)
class Slice:
    """One of several; `number` counts from 0."""

    number: int
    of: int

    @property
    def is_last(self) -> bool:
        """Whether none comes after it."""
        return self.number == self.of - 1


def slice_of(
    connection: Connection, change: Change, parts: Sequence[Part], piece: Slice
) -> list[Part]:
    """The parts of the touched set that belong to one slice."""
    return [
        _stretch(connection, change, part, piece)
        if [match.operator for match in part.matches] == ["gte"]
        else _some_rows(connection, part, piece)
        for part in parts
    ]


def _some_rows(connection: Connection, part: Part, piece: Slice) -> Part:
    table, columns = in_payload(part.kind, part.name), names(part.columns)
    rank = escape_name(ROW_HASH)
    for statement in (
        f"CREATE TEMP TABLE ranked AS SELECT {columns}, ROW_NUMBER() OVER (ORDER BY {columns}) "  # noqa: S608
        f"AS {rank} FROM {table}",
        f"DELETE FROM {table}",  # noqa: S608
        f"INSERT INTO {table} ({columns}) SELECT {columns} FROM ranked "  # noqa: S608
        f"WHERE {rank} % {piece.of} = {piece.number}",
        "DROP TABLE ranked",
    ):
        connection.execute_command(statement)
    return part


def _stretch(connection: Connection, change: Change, part: Part, piece: Slice) -> Part:
    """From one value of the cursor to the next; the last stretch has no end."""
    (match,) = part.matches
    cursor, start, tile = map(escape_name, (match.column, match.by, ROW_HASH))
    table = in_payload(part.kind, part.name)
    connection.execute_command(
        "CREATE TEMP TABLE stretches AS "  # noqa: S608
        "SELECT start, LEAD(start) OVER (ORDER BY start) AS stop, "
        "ROW_NUMBER() OVER (ORDER BY start) - 1 AS rank "
        f"FROM (SELECT {start} AS start FROM {table} UNION SELECT MIN({cursor}) FROM ("
        f"SELECT {cursor}, NTILE({piece.of}) OVER (ORDER BY {cursor}) AS {tile} "
        f"FROM {change.new.rows()} source WHERE {touched([part], 'source')}"
        f") tiled WHERE {tile} > 1 GROUP BY {tile}) starts"
    )
    this = f"FROM stretches WHERE rank = {piece.number}"
    open_end = connection.execute_scalar_query(f"SELECT COUNT(*) {this} AND stop IS NULL")
    stretch = part
    if not open_end:
        stretch = replace(part, matches=(match, Match(match.column, "lt", "stop")))
    connection.execute_command(f"DROP TABLE {table}")
    columns = [change.column(match.column, called=name) for name in stretch.columns]
    fill(connection, stretch, columns, f"SELECT {names(stretch.columns)} {this}")
    connection.execute_command("DROP TABLE stretches")
    return stretch
