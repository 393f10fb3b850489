"""Where there is no room for a `.hyper` file: hyperd itself may end it without its tables."""

import re
import resource
from pathlib import Path
from random import Random

import pytest
from tableauhyperapi import CreateMode, HyperProcess

from tableau_pipeline.errors import RefreshError
from tableau_pipeline.hyper.build import build_extract, check_saved
from tableau_pipeline.hyper.parquet import TableSource
from tableau_pipeline.hyper.process import Hyperd, connect
from tableau_pipeline_tests.hyper.killing import process_id
from tableau_pipeline_tests.hyper.samples import rows_of, source

ROWS = 20_000
TABLES = ("first", "second")
# Bytes: the first ones end the INSERT, the last ones only the end of the file, on which hyperd is
# silent unless it is asked.
ROOM = (100_000, 400_000, 900_000, 1_200_000, 1_500_000)
ENOUGH = 20_000_000
NO_SPACE = r"No space is left for x\.hyper: hyperd could not write .+ MB are free in "


def hyperd_with(room: int) -> HyperProcess:
    """A hyperd that can make no file larger than this."""
    hyper = Hyperd(memory=2**29, telemetry=False)
    resource.prlimit(process_id(hyper), resource.RLIMIT_FSIZE, (room, room))
    return hyper


def random_rows(folder: Path) -> list[TableSource]:
    """What no compression makes smaller."""
    random = Random(1)
    values = [str(random.getrandbits(256)) for _ in range(ROWS)]
    return [source(folder, name, {"a": values}) for name in TABLES]


def built(hyper: HyperProcess, folder: Path, tables: list[TableSource]) -> bool:
    """Whether the file was built, and then holds everything; else it is refused in words."""
    path, said = folder / "x.hyper", ""
    try:
        build_extract(hyper, path, tables=tables)
    except RefreshError as error:
        said = str(error)
    if said:
        assert re.match(NO_SPACE, said), said
        assert not [*folder.iterdir()]
        return False
    assert [rows_of(hyper, path, name).num_rows for name in TABLES] == [ROWS, ROWS]
    return True


@pytest.mark.parametrize("room", [*ROOM, ENOUGH])
def test_no_file_without_its_tables(tmp_path: Path, room: int):
    """Prevents: a full disk makes a file without tables, which takes the place of a good one."""
    tables = random_rows(tmp_path / "in")
    (tmp_path / "out").mkdir()
    assert built(hyperd_with(room), tmp_path / "out", tables) == (room == ENOUGH)


@pytest.mark.parametrize("tables", [None, (), ("CREATE TABLE t AS (SELECT 1 AS a, 2 AS b)",)])
def test_a_file_that_is_not_what_was_written(
    hyper: HyperProcess, tmp_path: Path, tables: tuple[str, ...] | None
):
    """Prevents: hyperd says nothing, as on a full disk, and what it left is sent all the same."""
    saved = tmp_path / "saved.hyper"
    if tables is None:
        saved.write_bytes(b"")
    else:
        with connect(hyper, saved, CreateMode.CREATE) as connection:
            for statement in tables:
                connection.execute_command(statement)
    with pytest.raises(RefreshError, match=r"has not saved x\.hyper as it was written: it holds "):
        check_saved(hyper, saved, {'"public"."t"': 2}, name="x.hyper")
