"""What a data source holds, read from the file that the server keeps."""

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from tableau_pipeline.hyper.hyper_file import open_hyper
from tableau_pipeline.hyper.process import hyper_process
from tableau_pipeline_tests.refresh.stateful.models.values import published
from tableau_sandbox.simulation import Datasource, Simulation

# By table, the names of its columns and its rows, sorted: neither has an order in Tableau.
Published = Mapping[str, Sequence[tuple[str, ...]]]


def held(tableau: Simulation, datasource: Datasource) -> Published:
    """What a data source holds now."""
    return _read(tableau.hyper_file(datasource))


# By table and column, as the file names them.
Captions = dict[tuple[str, str], str]


def captions(datasource: Datasource | None) -> Captions:
    """What a data source shows."""
    if datasource is None or not datasource.tds:
        return {}
    root = ElementTree.fromstring(datasource.tds)
    shown = {each.get("name"): each.get("caption") for each in root.iterfind("column")}
    found = {}
    for record in root.iterfind("./connection//metadata-record"):
        caption = shown.get(record.findtext("local-name"))
        if caption:
            place = record.findtext("parent-name", "").strip("[]"), record.findtext("remote-name")
            found[place[0], str(place[1])] = caption
    return found


def rows(columns: Mapping[str, Iterable[Any]]) -> Sequence[tuple[str, ...]]:
    """Columns of values as sorted rows of text."""
    names = sorted(columns)
    found = zip(*([published(value) for value in columns[name]] for name in names), strict=True)
    return [tuple(names), *sorted(found)]


def differences(is_: Published, should_be: Published) -> list[str]:
    """In words, for whoever reads a failed history."""
    lines = []
    for table in sorted({*is_, *should_be}):
        mine, its = list(is_.get(table, ())), list(should_be.get(table, ()))
        lines += [f"{table} lacks {row}" for row in _without(its, mine)]
        lines += [f"{table} should not have {row}" for row in _without(mine, its)]
    return lines


def _without(mine: list[tuple], others: list[tuple]) -> list[tuple]:
    left = list(mine)
    for row in others:
        if row in left:
            left.remove(row)
    return left


@lru_cache(maxsize=64)
def _read(file: Path) -> Published:
    """Files of content never change, and no two have the same name."""
    with open_hyper(file, hyper=hyper_process()) as opened:
        return {
            name.name.unescaped: rows(opened.read(name).to_pydict())
            for name in opened.table_names()
        }
