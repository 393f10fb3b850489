import shutil
from pathlib import Path

from tableauhyperapi import HyperProcess, TableName

from tableau_sandbox.content.hyper_file import HyperContent, Table, read_hyper_file
from tableau_sandbox.hyperd import UnreadableFileError, connect, with_hyperd


class NotAppendableError(ValueError):
    """The rows cannot be appended; the message states why."""


def append_rows(stored: Path, uploaded: Path, *, result: Path) -> HyperContent:
    """Write the rows of both files to a new one; columns are matched by name.

    Args:
        stored: the published file, which does not change.
        uploaded: the file with the rows to add.
        result: the path of the new file.

    Raises:
        NotAppendableError: a file has several tables, the tables differ in more than the order of
            their columns, or hyperd cannot read a file.
    """
    try:
        table = _only_table(read_hyper_file(stored), "The published data source")
        added = _only_table(read_hyper_file(uploaded), "The file")
        _check_same_columns(table, added)
        with_hyperd(
            lambda hyper: _append(hyper, table, stored, uploaded, result=result),
            *(stored, uploaded, result),
        )
        return read_hyper_file(result)
    except UnreadableFileError as error:
        raise NotAppendableError(str(error)) from error


def _append(
    hyper: HyperProcess, table: Table, stored: Path, uploaded: Path, *, result: Path
) -> None:
    shutil.copyfile(stored, result)
    columns = ", ".join(_quoted(column.name) for column in table.columns)
    target = TableName("stored", table.schema, table.name)
    source = TableName("uploaded", table.schema, table.name)
    with connect(hyper) as connection:
        connection.catalog.attach_database(result, "stored")
        connection.catalog.attach_database(uploaded, "uploaded")
        connection.execute_command(
            f"INSERT INTO {target} ({columns}) SELECT {columns} FROM {source}"  # noqa: S608
        )


def _only_table(content: HyperContent, whose: str) -> Table:
    if len(content.tables) != 1:
        raise NotAppendableError(
            f"{whose} has {len(content.tables)} tables; only a single one can be appended to."
        )
    return content.tables[0]


def _check_same_columns(table: Table, added: Table) -> None:
    if (table.schema, table.name) != (added.schema, added.name):
        raise NotAppendableError(
            f'The table "{added.schema}"."{added.name}" cannot be appended to'
            f' "{table.schema}"."{table.name}".'
        )
    old = {column.name: column.type for column in table.columns}
    new = {column.name: column.type for column in added.columns}
    differing = [name for name in {**old, **new} if old.get(name) != new.get(name)]
    if differing:
        described = "; ".join(
            f'"{name}" is {new.get(name, "missing")} instead of {old.get(name, "missing")}'
            for name in differing
        )
        raise NotAppendableError(f"The columns of the file do not fit: {described}.")


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
