"""Express changed partitions as windows or values of a column of the published table."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from zoneinfo import ZoneInfo

from tableauhyperapi import Connection

from tableau_pipeline.core.snapshot import Part, Snapshot, Span
from tableau_pipeline.extracts.desired import literal
from tableau_pipeline.extracts.updates.affected_rows import KeyMatch, KeyTable, fill
from tableau_pipeline.extracts.updates.change import Change, NotProvedError, key_table
from tableau_pipeline.hyper.tables import Column
from tableau_pipeline.hyper.types.spark_types import zone_of


def changed_partitions(connection: Connection, change: Change, column: str) -> list[KeyTable]:
    """Return the windows or values of the partitions that changed, vanished or are new.

    Raises:
        NotProvedError: the published version was not partitioned.
    """
    before, now = (_by_partition(each.snapshot) for each in (change.published, change.new))
    if None in before:
        raise NotProvedError("its model was not partitioned at the last refresh")
    changed = [
        # The window of a partition that vanished is still needed, to delete its rows.
        now.get(key) or before[key]
        for key in before.keys() | now.keys()
        if key not in before or key not in now or before[key].fingerprint != now[key].fingerprint
    ]
    spans = [each.span for each in changed if each.span]
    values = [str(each.partition) for each in changed if not each.span]
    return [
        *([_by_window(connection, change, column, spans=spans)] if spans else []),
        *([_by_value(connection, change, column, keys=sorted(values))] if values else []),
    ]


def _by_partition(snapshot: Snapshot) -> Mapping[str | None, Part]:
    return {part.partition: part for part in snapshot.parts}


def _by_value(
    connection: Connection, change: Change, column: str, *, keys: Sequence[str]
) -> KeyTable:
    table = key_table(change, "values", KeyMatch(column, "eq", "value"))
    values = ", ".join(f"({literal(key, change.type(column))})" for key in keys)
    columns = [change.column(column, called="value")]
    fill(connection, table, columns, f"VALUES {values}")
    return table


def _by_window(
    connection: Connection, change: Change, column: str, *, spans: Sequence[Span]
) -> KeyTable:
    table = key_table(
        change, "keys", KeyMatch(column, "gte", "start"), KeyMatch(column, "lt", "end")
    )
    cut, type_ = change.column(column), change.type(column)
    values = ", ".join(
        f"({literal(_edge(start, zone, cut), type_)}, {literal(_edge(end, zone, cut), type_)})"
        for start, end, zone in _merged(spans)
    )
    columns = [change.column(column, called=name) for name in ("start", "end")]
    fill(connection, table, columns, f"VALUES {values}")
    return table


def _merged(spans: Sequence[Span]) -> list[tuple[datetime, datetime, str]]:
    """Merge adjacent windows, which leaves the server fewer comparisons."""
    merged: list[tuple[datetime, datetime, str]] = []
    for span in sorted(spans, key=lambda span: span.start):
        if merged and merged[-1][1] == span.start:
            merged[-1] = (merged[-1][0], span.end, span.zone)
        else:
            merged.append((span.start, span.end, span.zone))
    return merged


def _edge(moment: datetime, zone: str, column: Column) -> str:
    """A moment as a literal: an instant by its column's zone, all else by the partitions' zone."""
    local = moment.astimezone(ZoneInfo(zone_of(column) or zone))
    return local.strftime("%Y-%m-%d" if column.type == "date" else "%Y-%m-%d %H:%M:%S")
