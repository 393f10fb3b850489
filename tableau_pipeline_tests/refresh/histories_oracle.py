"""What ought to be published, told by rows in Python, and what is, read back as others read it."""

import zipfile
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, time, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tableau_pipeline.core.declaration import Declaration
from tableau_pipeline.core.policies import Retain
from tableau_pipeline.hyper.process import hyper_process
from tableau_pipeline.hyper.read import read_table, table_names
from tableau_pipeline.publishing.site import TableauSite
from tableau_pipeline_tests.refresh.histories_tables import Content, Model
from tableau_pipeline_tests.refresh.histories_values import published

# By table, the rows by column, sorted: two of them are equal if the data sources are.
Published = Mapping[str, Sequence[tuple[str, ...]]]


def wanted(declaration: Declaration, models: Mapping[str, Model], now: datetime) -> Published:
    """What a data source shall hold."""
    return {
        declaration.published_name(table.name): _sorted(
            contents(models[table.model], table.retain, now)
        )
        for table in declaration.tables
    }


def contents(model: Model, retain: Retain | None, now: datetime) -> Content:
    """The rows of a model that a rolling window leaves."""
    content = model.content
    if retain is None:
        return content
    values = content.column(retain.column)
    latest = max((value for value in values if value is not None), default=None)
    if retain.as_of == "run":
        start: Any = now.date() - timedelta(days=retain.days)
        if content.schema[retain.column] != "date":
            zone = UTC if content.schema[retain.column] == "timestamp" else None
            start = datetime.combine(start, time(), zone)
    elif latest is None:
        return content
    else:
        start = latest - timedelta(days=retain.days)
    return content.where(value is None or value >= start for value in values)


def found(site: TableauSite, luid: str) -> Published:
    """What a data source holds, by the file that Tableau hands out."""
    with TemporaryDirectory() as folder:
        tdsx = site.download(luid, Path(folder))
        with zipfile.ZipFile(tdsx) as package:
            (member,) = (name for name in package.namelist() if name.endswith(".hyper"))
            file = Path(package.extract(member, folder))
        hyper = hyper_process()
        return {
            name.name.unescaped: _of(read_table(hyper, file, name).to_pydict())
            for name in table_names(hyper, file)
        }


def _sorted(content: Content) -> Sequence[tuple[str, ...]]:
    return _of({column.name: content.column(column.name) for column in content.columns})


def _of(columns: Mapping[str, Iterable[Any]]) -> Sequence[tuple[str, ...]]:
    """The names of the columns, then the rows: neither has an order in Tableau."""
    names = sorted(columns)
    rows = zip(*([published(value) for value in columns[name]] for name in names), strict=True)
    return [tuple(names), *sorted(rows)]


def differences(is_: Published, should_be: Published) -> list[str]:
    """In words, for whoever reads a failed history."""
    lines = []
    for table in sorted({*is_, *should_be}):
        mine, its = list(is_.get(table, ())), list(should_be.get(table, ()))
        lines += [f"{table} lacks {row}" for row in _without(its, mine)]
        lines += [f"{table} should not have {row}" for row in _without(mine, its)]
    return lines


def _without(rows: list[tuple], others: list[tuple]) -> list[tuple]:
    left = list(rows)
    for row in others:
        if row in left:
            left.remove(row)
    return left
