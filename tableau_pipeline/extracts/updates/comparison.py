"""Find the keys of changed rows: hyperd joins the rows of two versions."""

from collections.abc import Sequence

from tableauhyperapi import Connection, escape_name

from tableau_pipeline.extracts.updates.affected_rows import KeyTable, fill, in_payload
from tableau_pipeline.extracts.updates.change import Change
from tableau_pipeline.extracts.updates.slices import can_compare_columns, in_slices
from tableau_pipeline.hyper.parquet.rows import names
from tableau_pipeline.hyper.tables import ROW_HASH

# The only name that no column of a model can have.
_HASH = _DIFFERS = _EQUAL = escape_name(ROW_HASH)
# A temporary table: what a failed comparison has found must leave no gaps in the payload.
_FOUND = escape_name("differing keys")


def changed_keys(
    connection: Connection, change: Change, keys: KeyTable, *, memory: int
) -> int | None:
    """Fill a key table with the keys of the rows that only one of two versions has.

    Rows of shared files are in both. Those that have the key of a changed row are found by the
    proof.

    Args:
        memory: the bytes that hyperd may use.

    Returns:
        the number of pairs of rows that are equal in all columns; None if hashes were compared.

    Raises:
        NotProvedError: the memory is not enough.
    """
    sides = (change.unshared(change.new), change.unshared(change.published))
    rows = max(sum(file.rows for file in files) for files in sides)
    by_columns = _lacks_hashes(change) and can_compare_columns(
        rows=rows, columns=len(change.columns), memory=memory
    )

    def compare(slices: int) -> int | None:
        # A comparison that failed for want of memory may have left either.
        for table in (_FOUND, in_payload(keys.kind, keys.name)):
            connection.execute_command(f"DROP TABLE IF EXISTS {table}")
        columns = ", ".join(f"{escape_name(name)} {change.type(name)}" for name in keys.columns)
        connection.execute_command(f"CREATE TEMPORARY TABLE {_FOUND} ({columns}, {_EQUAL} BIGINT)")
        # More than one slice only if the memory was not enough.
        if by_columns and slices == 1:
            selects = [_by_columns(change, keys.columns)]
        else:
            selects = [_by_hash(change, keys.columns, index, slices) for index in range(slices)]
        for select in selects:
            connection.execute_command(f"INSERT INTO {_FOUND} {select}")
        equal = connection.execute_scalar_query(f"SELECT SUM({_EQUAL}) FROM {_FOUND}")  # noqa: S608
        _fill(connection, change, keys)
        connection.execute_command(f"DROP TABLE {_FOUND}")
        return int(str(equal or 0)) if by_columns and slices == 1 else None

    return in_slices(compare, rows=rows, memory=memory)


def _lacks_hashes(change: Change) -> bool:
    """Whether the hashes of rows would have to be computed, from all columns."""
    return not change.new.content.is_additive


def _by_hash(change: Change, key: Sequence[str], index: int, slices: int) -> str:
    """Return SQL for the keys of rows that only one version has."""
    # hyperd joins all rows faster if no condition misleads its estimate of their number.
    where = f"({_HASH} & {slices - 1}) = {index}" if slices > 1 else "TRUE"
    new, old = (
        f"(SELECT {names([*key, ROW_HASH])} FROM {rows} side WHERE {where})"  # noqa: S608
        for rows in _sides(change)
    )
    # Equal row hashes imply equal keys, and joining on one number is faster than on a composite
    # key. If hashes of different rows ever collide, the fingerprints do not add up.
    return (
        f"SELECT DISTINCT {_either(key)}, 0 "  # noqa: S608
        f"FROM {new} n FULL JOIN {old} o ON n.{_HASH} = o.{_HASH} "
        f"WHERE n.{_HASH} IS NULL OR o.{_HASH} IS NULL"
    )


def _by_columns(change: Change, key: Sequence[str]) -> str:
    """Return SQL for the keys of rows that differ, and for the number of pairs that do not.

    These pairs form one group, whose key is NULL.
    """
    new, old = _sides(change)
    columns = [escape_name(column.name) for column in change.columns]
    differs = " OR ".join(f"n.{name} IS DISTINCT FROM o.{name}" for name in columns)
    same_key = " AND ".join(f"n.{name} = o.{name}" for name in map(escape_name, key))
    keys = ", ".join(f"CASE WHEN {_DIFFERS} THEN {name} END" for name in map(escape_name, key))
    return (
        f"SELECT {keys}, SUM(CASE WHEN {_DIFFERS} THEN 0 ELSE 1 END) "  # noqa: S608
        f"FROM (SELECT {_either(key)}, {differs} AS {_DIFFERS} "
        f"FROM {new} n FULL JOIN {old} o ON {same_key}) pairs "
        f"GROUP BY {', '.join(str(number) for number, _ in enumerate(key, 1))}"
    )


def _sides(change: Change) -> tuple[str, str]:
    return change.new.rows(change.unshared(change.new)), change.surviving()


def _either(key: Sequence[str]) -> str:
    return ", ".join(f"COALESCE(n.{name}, o.{name}) AS {name}" for name in map(escape_name, key))


def _fill(connection: Connection, change: Change, keys: KeyTable) -> None:
    columns = [change.column(name) for name in keys.columns]
    # A key with a NULL matches no row on the server, so it names nothing.
    complete = " AND ".join(f"{escape_name(name)} IS NOT NULL" for name in keys.columns)
    # A changed row has another hash, so its key may be found in two slices.
    select = f"SELECT DISTINCT {names(keys.columns)} FROM {_FOUND} WHERE {complete}"  # noqa: S608
    fill(connection, keys, columns, select)
