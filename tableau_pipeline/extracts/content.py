"""Determine the desired content of a table: the rows of its model that `retain` keeps.

`retain` declares a rolling window. The cutoff is the start of this window.
"""

import hashlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta

from tableauhyperapi import Connection, HyperProcess, escape_name

from tableau_pipeline.core.checkpoint import Cutoff, TableContent
from tableau_pipeline.core.declaration import Retain, Table
from tableau_pipeline.core.policies import Append, Diff
from tableau_pipeline.core.snapshot import DataFile, Fingerprint, Snapshot
from tableau_pipeline.hyper.build import rows_in
from tableau_pipeline.hyper.parquet import Layout, TableSource, plain_layout, select_sql
from tableau_pipeline.hyper.process import connect
from tableau_pipeline.hyper.types import ROW_HASH, Column, hyper_type, stored_name, string_literal

# The version of each model that a refresh publishes; the keys are asset keys.
Models = Mapping[str, Snapshot]


def table_source(
    name: str,
    snapshot: Snapshot,
    cutoff: Cutoff | None = None,
    *,
    hashed: bool = False,
    only: Collection[str] | None = None,
    files: Iterable[DataFile] | None = None,
) -> TableSource:
    """Return the rows of a snapshot that a cutoff keeps; without a cutoff, all rows.

    Args:
        hashed: include the hash of each row.
        only: the columns to include; None for all.
        files: the files of the snapshot to read; None for all.
    """
    columns = tuple(column for column in snapshot.columns if only is None or column.name in only)
    files = snapshot.files if files is None else tuple(files)
    read_names = {stored_name(column) for column in columns}
    layouts: dict[Layout, list[str]] = {}
    if any(file.layout for file in files):
        # A file without a layout has each column under its own name and type. It may also have row
        # hashes. If there are layouts, hyperd does not read these hashes, but computes them.
        plain = plain_layout(snapshot.columns)
        for file in files:
            # The hash of a row covers all columns. Without hashes, read only the included columns.
            layout = tuple(
                stored
                for stored in file.layout or plain
                if hashed or stored.column.name in read_names
            )
            layouts.setdefault(layout, []).append(file.name)
    file_names = {stored.name for layout in layouts for stored in layout if stored.name}
    return TableSource(
        name=name,
        columns=(*columns, Column(ROW_HASH, "bigint")) if hashed else columns,
        files=tuple(file.name for file in files),
        layouts={layout: tuple(names) for layout, names in layouts.items()},
        where=retained(columns, cutoff) if cutoff else None,
        comments=snapshot.comments,
        folder=snapshot.folder_of(files, file_names if layouts else None),
    )


def retained(columns: Sequence[Column], cutoff: Cutoff) -> str:
    """Return SQL that is true for the rows that a cutoff keeps."""
    column = escape_name(cutoff.column)
    # A row without a date never expires.
    return f"({column} >= {cutoff_value(columns, cutoff)} OR {column} IS NULL)"


def cutoff_value(columns: Sequence[Column], cutoff: Cutoff) -> str:
    """Return the cutoff as SQL, in the type of its column."""
    return literal(cutoff.value, type_of(columns, cutoff.column))


def fingerprint(connection: Connection, relation: str) -> Fingerprint:
    """Return the fingerprint of a relation that has row hashes; `relation` is SQL after FROM."""
    # Cast the hashes, because a sum of bigints would overflow.
    hashes = f"SUM(CAST({escape_name(ROW_HASH)} AS NUMERIC(38,0)))"
    (result,) = connection.execute_list_query(f"SELECT COUNT(*), {hashes} FROM {relation}")  # noqa: S608
    count, hash_sum = result
    # In hyperd, the sum over no rows is NULL.
    return Fingerprint.model_validate({"rows": count, "hash_sum": hash_sum or 0})


def row_count(connection: Connection, relation: str) -> Fingerprint:
    """Return the number of rows of a relation as a fingerprint; `relation` is SQL after FROM.

    Use this for a lake: counting rows does not read all columns, but computing hashes does.
    """
    return Fingerprint(rows=rows_in(connection, relation), hash_sum=0)


def literal(value: str, type_: str) -> str:
    """Return SQL for a value, cast to a type."""
    return f"CAST({string_literal(value)} AS {type_})"


def desired_table(
    hyper: Callable[[], HyperProcess],
    table: Table,
    snapshot: Snapshot,
    *,
    known: TableContent | None,
    now: datetime,
) -> TableContent:
    """Return the desired content of a table; open files only if `known` lacks this content."""
    whole = TableContent(
        model=table.model,
        version=snapshot.number,
        columns=snapshot.columns,
        all_rows=snapshot.fingerprint,
        content=snapshot.fingerprint,
        # Include the key and the cursor: before a refresh records this content, it checks that
        # the rows suit both.
        key=table.policy.key if isinstance(table.policy, Diff) else (),
        cursor=table.policy.cursor if isinstance(table.policy, Append) else None,
    )
    if table.retain is None:
        return whole
    # Use the recorded cutoff and content only if the model still has the same rows.
    if known and (known.columns, known.all_rows) != (whole.columns, whole.all_rows):
        known = None
    cutoff = _cutoff(hyper, table.name, table.retain, snapshot, known=known, now=now)
    if cutoff is None:
        return whole
    if known and known.cutoff == cutoff:
        return whole.model_copy(update={"cutoff": cutoff, "content": known.content})
    all_rows, is_additive = snapshot.fingerprint, snapshot.fingerprint.is_additive
    # A count needs only the column of the cutoff.
    only = None if is_additive else (cutoff.column,)
    retained_rows = select_sql(
        table_source(table.name, snapshot, cutoff, hashed=is_additive, only=only)
    )
    with connect(hyper()) as connection:
        content = (fingerprint if is_additive else row_count)(connection, f"{retained_rows} source")
    if not is_additive:
        # Instead of the row hashes, use a digest of the files and the column. If two cutoffs of the
        # same column keep equally many rows of the same files, they keep the same rows. So the
        # digest and the count identify the rows.
        digest = hashlib.sha256(f"{all_rows.hash_sum} {cutoff.column}".encode()).hexdigest()
        update = {"rows": content.rows, "hash_sum": int(digest[:16], 16)}
        content = all_rows.model_copy(update=update)
    return whole.model_copy(update={"cutoff": cutoff, "content": content})


def _cutoff(
    hyper: Callable[[], HyperProcess],
    table: str,
    retain: Retain,
    snapshot: Snapshot,
    *,
    known: TableContent | None,
    now: datetime,
) -> Cutoff | None:
    """Return the cutoff of a rolling window; None if the window's column has no values."""
    rule = {"column": retain.column, "days": retain.days, "as_of": retain.as_of}
    if retain.as_of == "run":
        return Cutoff(**rule, value=str(now.date() - timedelta(days=retain.days)))
    # A recorded cutoff stays valid, because the model still has the recorded rows: open no file.
    recorded = known.cutoff if known else None
    if recorded and recorded == Cutoff(**rule, value=recorded.value):
        return recorded
    type_ = type_of(snapshot.columns, retain.column)
    dates = select_sql(table_source(table, snapshot, only=(retain.column,)))
    latest = f"MAX({escape_name(retain.column)})"
    counted_back = f"CAST({latest} - INTERVAL '{retain.days} days' AS {type_})"
    # Use no cutoff before the year 1: hyperd cannot read the text that it writes for such years.
    # GREATEST ignores NULL, so the CASE below keeps the NULL of a column without values.
    in_time = f"GREATEST({counted_back}, {literal('0001-01-01', type_)})"
    value = f"CASE WHEN {latest} IS NOT NULL THEN {in_time} END"
    with connect(hyper()) as connection:
        first = connection.execute_scalar_query(
            f"SELECT CAST({value} AS TEXT) FROM {dates} source"  # noqa: S608
        )
    return None if first is None else Cutoff(**rule, value=str(first))


def type_of(columns: Sequence[Column], name: str) -> str:
    """Return the Hyper type of a column."""
    column = next(column for column in columns if column.name == name)
    return hyper_type(column, table="")
