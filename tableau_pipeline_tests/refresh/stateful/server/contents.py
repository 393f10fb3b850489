"""The rows and metadata of a published data source, read from the files on the server."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cache, lru_cache
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from tableau_pipeline.hyper.hyper_file import open_hyper
from tableau_pipeline.hyper.process import hyper_process
from tableau_pipeline_tests.refresh.stateful.models.tables import as_text
from tableau_sandbox.simulation import Datasource, Simulation

# Cached for one refresh: a check that hyperd still answers takes as long as a small query.
hyperd = cache(hyper_process)

# For each table: the row of column names, then the rows. Names and rows are sorted, as Tableau
# gives them no order.
Rows = Mapping[str, Sequence[tuple[str, ...]]]


def rows_of(tableau: Simulation, datasource: Datasource) -> Rows:
    """The present rows of a data source."""
    return _read(tableau.hyper_file(datasource))


# An item of metadata, such as ("field", "Extract", "k", "caption").
Item = tuple[str, ...]
Metadata = dict[Item, str]
_ATTRIBUTES = {"caption": "caption", "format": "default-format", "aggregation": "aggregation"}


def published_metadata(datasource: Datasource) -> Metadata:
    """The metadata of a data source, without its permissions."""
    items = {("tag", tag): "yes" for tag in datasource.tags if "tableau-pipeline" not in tag}
    if datasource.description:
        items["about", "description"] = datasource.description
    if datasource.is_certified:
        items["about", "certified"] = "yes"
        if datasource.certification_note:
            items["about", "certification note"] = datasource.certification_note
    if datasource.owner_name != "worker":
        items["about", "owner"] = datasource.owner_name
    return items | (metadata_in(datasource.tds) if datasource.tds else {})


@lru_cache(maxsize=64)
def metadata_in(tds: bytes) -> Metadata:
    """The metadata of columns, calculated fields, hierarchies and filters in a `.tds`."""
    root, items = ElementTree.fromstring(tds), {}
    records = {
        record.findtext("local-name", ""): record
        for record in root.iterfind("./connection//metadata-record")
    }
    columns = {
        local: (record.findtext("parent-name", "").strip("[]"), record.findtext("remote-name", ""))
        for local, record in records.items()
    }
    folders = {
        item.get("name"): element.get("name", "")
        for element in root.iter()
        if element.tag.endswith("folder")
        for item in element
    }
    for path in root.iterfind("./drill-paths/drill-path"):
        # A folder has one item for a hierarchy, and no items for the fields of that hierarchy.
        if path.get("name") in folders:
            folders = {name.text: folders[path.get("name")] for name in path} | folders
    fields = {column.get("name", ""): column for column in root.iterfind("column")}
    for local in dict.fromkeys([*records, *fields]):
        field = fields.get(local, ElementTree.Element("column"))
        calculation = field.find("calculation")
        if calculation is not None:
            items["calculation", field.get("caption", local), "formula"] = re.sub(
                r"\[[^]]*\]",
                lambda name: f"[{'.'.join(columns.get(name[0], (name[0],)))}]",
                calculation.get("formula", ""),
            )
        elif local in columns:
            parts = {part: field.get(name, "") for part, name in _ATTRIBUTES.items()}
            parts["description"] = "".join(run.text or "" for run in field.iter("run"))
            parts["hidden"] = field.get("hidden", "").replace("false", "")
            parts["folder"] = folders.get(local, "")
            type_ = field.get("datatype", records[local].findtext("local-type"))
            usual = "measure" if type_ in ("integer", "real") else "dimension"
            parts["role"] = field.get("role", usual).replace(usual, "")
            if usual == "measure":
                # A user who chooses the default has set nothing.
                parts["aggregation"] = parts["aggregation"].replace("Sum", "")
            items |= {("field", *columns[local], part): v for part, v in parts.items() if v}
    for path in root.iterfind("./drill-paths/drill-path"):
        names = [".".join(columns.get(name.text or "", ("?",))) for name in path]
        items["hierarchy", path.get("name", ""), "fields"] = " > ".join(names)
    return items | _filters(root, items)


def _filters(root: ElementTree.Element, items: Metadata) -> Metadata:
    """The row filters, and the fields with user functions, on which filters may build."""
    filters, fields = {}, {column.get("name"): column for column in root.iterfind("column")}
    for rule in root.iterfind("filter"):
        caption = fields[rule.get("column")].get("caption", "")
        filters["filter", caption, "rows"] = rule[0].get("member", "")
    for item, value in items.items():
        if item[0] == "calculation" and "USERNAME(" in value:
            filters["filter", *item[1:]] = value
    return filters


def sorted_rows(columns: Mapping[str, Iterable[Any]]) -> Sequence[tuple[str, ...]]:
    """Columns of values as sorted rows of text, after the row of names."""
    names = sorted(columns)
    rows = zip(*([as_text(value) for value in columns[name]] for name in names), strict=True)
    return [tuple(names), *sorted(rows)]


def differences(rows: Rows, expected: Rows) -> list[str]:
    """The missing and the superfluous rows, in words, for the reader of a failed history."""
    lines = []
    for table in sorted({*rows, *expected}):
        actual, wanted = Counter(rows.get(table, ())), Counter(expected.get(table, ()))
        lines += [f"{table} lacks {row}" for row in (wanted - actual).elements()]
        lines += [f"{table} should not have {row}" for row in (actual - wanted).elements()]
    return lines


@lru_cache(maxsize=64)
def _read(file: Path) -> Rows:
    """The rows of a file. A cache is safe: the server never changes a file or reuses a name."""
    with open_hyper(file, hyper=hyperd()) as opened:
        return {
            name.name.unescaped: sorted_rows(opened.read(name).to_pydict())
            for name in opened.table_names()
        }
