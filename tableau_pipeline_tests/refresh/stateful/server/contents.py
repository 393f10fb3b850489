"""What a data source holds, read from the file that the server keeps."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cache, lru_cache
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from tableau_pipeline.hyper.hyper_file import open_hyper
from tableau_pipeline.hyper.process import hyper_process
from tableau_pipeline_tests.refresh.stateful.models.tables import published
from tableau_sandbox.simulation import Datasource, Simulation

# Whether it still answers is asked once a refresh: that takes as long as a small query.
hyperd = cache(hyper_process)

# By table, the names of its columns and its rows, sorted: neither has an order in Tableau.
Published = Mapping[str, Sequence[tuple[str, ...]]]


def held(tableau: Simulation, datasource: Datasource) -> Published:
    """What a data source holds now."""
    return _read(tableau.hyper_file(datasource))


# Such as ("field", "Extract", "k", "caption"): as the declaration's own values have it.
Place = tuple[str, ...]
Shown = dict[Place, str]
_ATTRIBUTES = {"caption": "caption", "format": "default-format", "aggregation": "aggregation"}


def shown(datasource: Datasource) -> Shown:
    """What people see of a data source, but for its permissions."""
    found = {("tag", tag): "yes" for tag in datasource.tags if "tableau-pipeline" not in tag}
    if datasource.description:
        found["about", "description"] = datasource.description
    if datasource.is_certified:
        found["about", "certified"] = "yes"
        if datasource.certification_note:
            found["about", "certification note"] = datasource.certification_note
    if datasource.owner_name != "worker":
        found["about", "owner"] = datasource.owner_name
    return found | (shown_in(datasource.tds) if datasource.tds else {})


@lru_cache(maxsize=64)
def shown_in(tds: bytes) -> Shown:
    """What a `.tds` shows of columns, calculated fields and hierarchies."""
    root, found = ElementTree.fromstring(tds), {}
    records = {
        record.findtext("local-name", ""): record
        for record in root.iterfind("./connection//metadata-record")
    }
    columns = {
        local: (each.findtext("parent-name", "").strip("[]"), each.findtext("remote-name", ""))
        for local, each in records.items()
    }
    folders = {
        item.get("name"): each.get("name", "")
        for each in root.iter()
        if each.tag.endswith("folder")
        for item in each
    }
    for path in root.iterfind("./drill-paths/drill-path"):
        # A folder shows a hierarchy as a whole, which then has no items for its fields.
        if path.get("name") in folders:
            folders = {each.text: folders[path.get("name")] for each in path} | folders
    fields = {each.get("name", ""): each for each in root.iterfind("column")}
    for local in dict.fromkeys([*records, *fields]):
        field, place = fields.get(local, ElementTree.Element("column")), ("field",)
        calculation = field.find("calculation")
        if calculation is not None:
            place = ("calculation", field.get("caption", local))
            found[*place, "formula"] = re.sub(
                r"\[[^]]*\]",
                lambda name: f"[{'.'.join(columns.get(name[0], (name[0],)))}]",
                calculation.get("formula", ""),
            )
        elif local in columns:
            place = ("field", *columns[local])
            parts = {part: field.get(name, "") for part, name in _ATTRIBUTES.items()}
            parts["description"] = "".join(each.text or "" for each in field.iter("run"))
            parts["hidden"] = field.get("hidden", "").replace("false", "")
            parts["folder"] = folders.get(local, "")
            type_ = field.get("datatype", records[local].findtext("local-type"))
            usual = "measure" if type_ in ("integer", "real") else "dimension"
            parts["role"] = field.get("role", usual).replace(usual, "")
            if usual == "measure":
                # A person who chooses what products do by default shows nothing by it.
                parts["aggregation"] = parts["aggregation"].replace("Sum", "")
            found |= {(*place, part): value for part, value in parts.items() if value}
    for each in root.iterfind("./drill-paths/drill-path"):
        fields_ = [".".join(columns.get(name.text or "", ("?",))) for name in each]
        found["hierarchy", each.get("name", ""), "fields"] = " > ".join(fields_)
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
        mine, its = Counter(is_.get(table, ())), Counter(should_be.get(table, ()))
        lines += [f"{table} lacks {row}" for row in (its - mine).elements()]
        lines += [f"{table} should not have {row}" for row in (mine - its).elements()]
    return lines


@lru_cache(maxsize=64)
def _read(file: Path) -> Published:
    """Files of content never change, and no two have the same name."""
    with open_hyper(file, hyper=hyperd()) as opened:
        return {
            name.name.unescaped: rows(opened.read(name).to_pydict())
            for name in opened.table_names()
        }
