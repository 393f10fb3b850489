"""Open `.hyper` files to read, change or create them. Changes take effect whole or not at all."""

import shutil
import threading
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

import pyarrow as pa
from tableauhyperapi import Connection, HyperException, HyperProcess, TableName, escape_name

from tableau_pipeline.hyper.atomic import atomic_path
from tableau_pipeline.hyper.comments import copy_comments
from tableau_pipeline.hyper.hyper_file import HyperFile, HyperFileError
from tableau_pipeline.hyper.process import connect, hyper_process
from tableau_pipeline.hyper.saving import saved
from tableau_pipeline.hyper.types.versions import LOWEST, NEWEST, needed_version, version_of

_changing: set[Path] = set()
_lock = threading.Lock()


@contextmanager
def open_hyper(
    path: Path | str,
    mode: Literal["r", "a", "w"] = "r",
    *,
    version: int = LOWEST,
    hyper: HyperProcess | None = None,
) -> Generator[HyperFile]:
    """Open a `.hyper` file to read ("r"), to change ("a"), or to create or replace ("w").

    Changes are made to a copy, which replaces the file when the block succeeds. Readers see all
    changes or none, and after an error the file is unchanged.

    Args:
        version: the format version of a new file.
        hyper: the hyperd to use. Default: the one that this process shares.

    Raises:
        HyperFileError: the file does not exist, is not a .hyper file, is damaged, or is in use.
        RefreshError: no space is left on its disk.
    """
    hyper, path = hyper or hyper_process(), Path(path).absolute()
    if mode == "r":
        with _opened(hyper, path) as connection:
            yield HyperFile(connection)
        return
    with _alone(path), atomic_path(path) as unfinished:
        if mode == "w":
            with connect(hyper) as connection:
                connection.execute_command(
                    f"CREATE DATABASE {escape_name(str(unfinished))} WITH VERSION {version}"
                )
            with _changed(hyper, unfinished, name=path.name) as connection:
                yield HyperFile(connection)
        else:
            # While it is open here, no other process can change it.
            with _opened(hyper, path):
                shutil.copyfile(path, unfinished)
                with _changed(hyper, unfinished, name=path.name) as connection:
                    yield HyperFile(connection)


def table_columns(hyper: HyperProcess, path: Path) -> dict[TableName, dict[str, str]]:
    """Return the SQL types of the columns of each table of a file, by name and in order."""
    with open_hyper(path, hyper=hyper) as file:
        return {table: file.columns(table) for table in file.table_names()}


def read_table(hyper: HyperProcess, path: Path, table: TableName) -> pa.Table:
    """Read the rows of a table, in no particular order."""
    with open_hyper(path, hyper=hyper) as file:
        return file.read(table)


def defragment(path: Path | str, *, hyper: HyperProcess | None = None) -> None:
    """Rewrite a file without the gaps that deleted and updated rows left.

    Raises:
        HyperFileError: the file does not exist, is not a .hyper file, is damaged, or is in use.
    """
    with open_hyper(path, hyper=hyper):
        version = version_of(Path(path))
    convert(path, version=version, hyper=hyper)


def convert(path: Path | str, *, version: int, hyper: HyperProcess | None = None) -> None:
    """Rewrite a file in another version of the format.

    Raises:
        HyperFileError: a column needs a newer version, or the file cannot be opened.
    """
    hyper, path = hyper or hyper_process(), Path(path).absolute()
    with (
        _alone(path),
        atomic_path(path) as unfinished,
        # This connection keeps other processes from changing the file; hyperd copies a closed one.
        _opened(hyper, path) as old,
        TemporaryDirectory() as folder,
    ):
        _check_version(HyperFile(old), path, version)
        source = Path(folder) / "source.hyper"
        shutil.copyfile(path, source)
        if version == version_of(path):
            # With an unchanged version, hyperd would copy blocks including their deleted rows.
            between = Path(folder) / "between.hyper"
            _write_copy(
                old, source, between, version=version - 1 if version == NEWEST else version + 1
            )
            source = between
        _write_copy(old, source, unfinished, version=version)
        # hyperd copies tables and keys, but no comments.
        with _changed(hyper, unfinished, name=path.name) as new:
            copy_comments(old, new)


def _write_copy(connection: Connection, path: Path, to: Path, *, version: int) -> None:
    old, new = escape_name(str(path)), escape_name(str(to))
    connection.execute_command(f"CREATE DATABASE {new} WITH VERSION {version} FROM {old}")


def _check_version(file: HyperFile, path: Path, version: int) -> None:
    """Refuse types that the version's products cannot read; hyperd itself would write them."""
    for table in file.table_names():
        for name, type_ in file.columns(table).items():
            if needed_version(type_) > version:
                raise HyperFileError(
                    f"{path}: {table}.{name} is {type_}, which needs version "
                    f"{needed_version(type_)} of the format, not {version}: change the column first"
                )


def _opened(hyper: HyperProcess, path: Path) -> Connection:
    if path.suffix != ".hyper":
        raise HyperFileError(f"{path}: the name must end in .hyper")
    try:
        return connect(hyper, path)
    except HyperException as error:
        # 'error opening database "x": could not load database: <the reason>: DatabaseId: ...'
        words = str(error.main_message).partition("could not load database: ")[2]
        reason = words.partition(": DatabaseId")[0] or str(error.main_message)
        raise HyperFileError(f"{path}: {reason}") from error


@contextmanager
def _changed(hyper: HyperProcess, path: Path, *, name: str) -> Generator[Connection]:
    connection = _opened(hyper, path)
    with saved(hyper, path, connection, name=name):
        yield connection


@contextmanager
def _alone(path: Path) -> Generator[None]:
    """Keep other threads out; hyperd's lock keeps out only other processes."""
    with _lock:
        if path in _changing:
            raise HyperFileError(f"{path}: another thread is changing it")
        _changing.add(path)
    try:
        yield
    finally:
        _changing.discard(path)
