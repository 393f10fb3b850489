"""Adjust the columns of a `.tds` and their types to the columns of a `.hyper` file."""

import re
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from copy import deepcopy
from itertools import chain, count
from types import MappingProxyType

from lxml import etree
from lxml.etree import _Element as Element

from tableau_pipeline.metadata.document import (
    AGGREGATIONS,
    Document,
    bracketed,
    insert_at,
    set_type,
    tag_of,
    texts_of,
)

# The columns of each table, in order, as pairs (name, Hyper's SQL type). The keys are the names of
# the tables in the file.
TypesByTable = Mapping[str, Sequence[tuple[str, str]]]
# For each Hyper type, the Tableau types that fit it, beginning with the default; and the text of
# `<remote-type>`.
_TYPES: Mapping[str, tuple[tuple[str, ...], str]] = MappingProxyType(
    {
        "BOOLEAN": (("boolean",), "11"),
        "SMALLINT": (("integer",), "2"),
        "INTEGER": (("integer",), "3"),
        "BIGINT": (("integer",), "20"),
        "NUMERIC": (("real", "integer"), "131"),
        "REAL": (("real",), "4"),
        "DOUBLE PRECISION": (("real",), "5"),
        "BYTES": (("string",), "128"),
        "DATE": (("date",), "133"),
        "TIMESTAMP": (("datetime",), "135"),
        "TIMESTAMPTZ": (("datetime",), "135"),
        "GEOGRAPHY": (("spatial",), "WKB"),
    }
)
_TEXT = (("string",), "129")
# The parts of a `<metadata-record>` that a new column copies from another column of its table.
_TABLE_PARTS = frozenset({"parent-name", "family", "object-id"})
# The parts of a record to remove when the type of the column changes.
_TYPE_PARTS = frozenset({"precision", "scale", "width", "collation", "attributes"})


class ColumnAdjustment(Document):
    """Adjusts every list of columns in a `.tds` to the columns of a file."""

    def __init__(self, root: Element) -> None:
        super().__init__(root)
        tables = {record.local: record.table for record in self.records}
        # An entry for a column is a `<metadata-record>` or a `<map>`. `_entries` has the entries of
        # all lists, and `_file_records` has the records that describe the file; the keys are local
        # names, which are the names of columns in the `.tds`. `_last` has the last entry of each
        # table in each list; new entries follow it.
        self._entries: dict[str, list[Element]] = defaultdict(list)
        self._file_records: dict[str, list[Element]] = defaultdict(list)
        self._last: dict[str, dict[Element, Element]] = defaultdict(dict)
        self._ordinals: dict[Element, int] = defaultdict(int)
        lists = ("connection//metadata-record[@class='column']", "connection//cols/map")
        parts = [f"./{path}" for path in lists] + [f"./extract//{path}" for path in lists]
        own = {*root.iterfind(f"./{self.part}//metadata-record")}
        for entry in chain.from_iterable(map(root.iterfind, parts)):
            texts, parent = texts_of(entry), entry.getparent()
            local, ordinal = texts.get("local-name") or entry.get("key", ""), texts.get("ordinal")
            self._entries[local].append(entry)
            if entry in own:
                self._file_records[local].append(entry)
            if parent is not None:
                number = int(ordinal) if ordinal and ordinal.isdecimal() else 0
                self._ordinals[parent] = max(self._ordinals[parent], number)
                self._last[tables.get(local, "")][parent] = entry
        # The field of a removed column may remain in the `.tds`. `shown` leaves out such fields, so
        # their names are free. If a later file has the column again, the column gets its old field.
        groups = {child.get("name", "") for child in root if tag_of(child) == "group"}
        shown = self.shown()
        self._used = {*groups, *shown, *map(bracketed, shown.values())}
        self._shown = shown

    def follow(self, tables: TypesByTable) -> None:
        """Add the file's new columns, remove columns that the file lacks, and change types.

        Raises:
            ValueError: the tables of the `.tds` differ from the tables of the file.
        """
        if (have := {table for table, _ in self.locals}) != set(tables):
            raise ValueError(
                f"its tables are {', '.join(sorted(have)) or 'not known'}, but the tables "
                f"to be published are {', '.join(sorted(tables))}"
            )
        wanted = {(table, name) for table, columns in tables.items() for name, _ in columns}
        gone = {path: local for path, local in self.locals.items() if path not in wanted}
        # A new field must not have the name of a field that stays; Tableau ignores case in names.
        leaving = {*gone.values(), *(bracketed(self._shown[local]) for local in gone.values())}
        self._folded = {name.casefold() for name in self._used - leaving}
        for table, columns in tables.items():
            for name, type_ in columns:
                if local := self.locals.get((table, name)):
                    self._retype(local, type_)
                else:
                    self._append(table, name, type_)
        for entry in chain.from_iterable(self._entries[local] for local in gone.values()):
            if (parent := entry.getparent()) is not None:
                parent.remove(entry)
        self.drop(set(gone.values()))

    def _append(self, table: str, name: str, type_: str) -> None:
        """Add a column after the other columns of its table."""
        numbered = (f"{name} ({table}) {number}" for number in count(1))
        names = map(bracketed, chain([name, f"{name} ({table})"], numbered))
        local = next(
            candidate
            for candidate in names
            if candidate not in self._used and candidate.casefold() not in self._folded
        )
        self._used.add(local)
        self._folded.add(local.casefold())
        texts = {
            **_texts(type_),
            "remote-name": name,
            "remote-alias": name,
            "local-name": local,
            "contains-null": "true",
        }
        for parent, neighbour in self._last[table].items():
            new = deepcopy(neighbour)
            if new.tag == "map":
                new.set("key", local)
                new.set("value", f"{new.get('value', '').rpartition('].[')[0]}].{bracketed(name)}")
            else:
                self._ordinals[parent] += 1
                _rewrite(new, {**texts, "ordinal": str(self._ordinals[parent])}, _TABLE_PARTS)
            insert_at(parent, parent.index(neighbour) + 1, new)
            self._last[table][parent] = new
        if local in self.columns:
            set_type(self.columns[local], texts["local-type"])

    def _retype(self, local: str, type_: str) -> None:
        """Set the type of a column in the `.tds`, if its type does not fit the file's type.

        Change the field, and the records that describe the file. If the data source is an extract,
        the records of its source database stay unchanged.
        """
        accepted = (None, "", *_type(type_)[0])
        records = self._file_records[local]
        old = [record for record in records if texts_of(record).get("local-type") not in accepted]
        for record in old:
            _rewrite(record, _texts(type_), texts_of(record).keys() - _TYPE_PARTS)
        if old and local in self.columns:
            set_type(self.columns[local], _texts(type_)["local-type"])


def datatype_of(type_: str) -> str:
    """Return the type in a `.tds` for a Hyper type, such as "integer" or "string"."""
    (datatype, *_), _remote = _type(type_)
    return datatype


def _type(type_: str) -> tuple[tuple[str, ...], str]:
    return _TYPES.get(type_.partition("(")[0], _TEXT)


def _texts(type_: str) -> dict[str, str]:
    """Return the texts of a record that depend on the Hyper type of the column."""
    datatype, remote = datatype_of(type_), _type(type_)[1]
    usual = AGGREGATIONS.get(datatype, "Count")
    return {"local-type": datatype, "remote-type": remote, "aggregation": usual}


# The parts of a record, in the order in which Tableau writes them.
_RECORD = (
    *("remote-name", "remote-type", "local-name", "parent-name", "remote-alias", "ordinal"),
    *("local-type", "aggregation", "precision", "scale", "width", "contains-null", "collation"),
    "object-id",
)


def new_record(texts: Mapping[str, str], type_: str) -> Element:
    """Return a record with these texts, and with the texts that follow from the Hyper type."""
    parts = {**texts, **_texts(type_), "contains-null": "true"}
    sizes = re.findall(r"\d+", type_)
    if type_.startswith("NUMERIC"):
        parts |= dict(zip(("precision", "scale"), sizes, strict=False))
    elif parts["local-type"] == "string" and sizes:
        parts["width"] = sizes[0]
    record = etree.Element("metadata-record", {"class": "column"})
    for tag in _RECORD:
        if tag in parts:
            etree.SubElement(record, tag).text = parts[tag]
        elif tag == "collation" and parts["remote-type"] == _TEXT[1]:
            etree.SubElement(record, tag, {"flag": "0", "name": "binary"})
    return record


def _rewrite(record: Element, texts: Mapping[str, str], kept: Collection[str]) -> None:
    """Set the texts of a record's parts; remove parts that are in neither `texts` nor `kept`."""
    for child in list(record):
        if tag_of(child) in texts:
            child.text = texts[tag_of(child)]
        elif tag_of(child) not in kept:
            record.remove(child)
