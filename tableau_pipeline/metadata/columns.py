"""The columns of a `.tds`: their types, and how they follow those of a file."""

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

# The columns of each table by its name in the file: (name, Hyper's SQL type), in order.
TypesByTable = Mapping[str, Sequence[tuple[str, str]]]
# By Hyper's type: the types of Tableau that mean it, the usual one first, and the remote type.
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
# What a new column has in common with its neighbours.
_OF_THE_TABLE = frozenset({"parent-name", "family", "object-id"})
# What a column of another type does not have.
_OF_THE_TYPE = frozenset({"precision", "scale", "width", "collation", "attributes"})


class Following(Document):
    """A `.tds` whose columns become those of a file, wherever it lists them."""

    def __init__(self, root: Element) -> None:
        super().__init__(root)
        tables = {each.local: each.table for each in self.records}
        # By local name, also of those that say what the file has; and by table and list, the last
        # one, after which others go.
        self._entries: dict[str, list[Element]] = defaultdict(list)
        self._of_the_file: dict[str, list[Element]] = defaultdict(list)
        self._last: dict[str, dict[Element, Element]] = defaultdict(dict)
        self._ordinals: dict[Element, int] = defaultdict(int)
        lists = ("connection//metadata-record[@class='column']", "connection//cols/map")
        parts = [f"./{each}" for each in lists] + [f"./extract//{each}" for each in lists]
        own = {*root.iterfind(f"./{self.part}//metadata-record")}
        for each in chain.from_iterable(map(root.iterfind, parts)):
            texts, parent = texts_of(each), each.getparent()
            local, ordinal = texts.get("local-name") or each.get("key", ""), texts.get("ordinal")
            self._entries[local].append(each)
            if each in own:
                self._of_the_file[local].append(each)
            if parent is not None:
                number = int(ordinal) if ordinal and ordinal.isdecimal() else 0
                self._ordinals[parent] = max(self._ordinals[parent], number)
                self._last[tables.get(local, "")][parent] = each
        # The field of a column that was there before may be left, and is taken up again.
        groups = {each.get("name", "") for each in root if tag_of(each) == "group"}
        shown = self.shown()
        self._used = {*groups, *shown, *map(bracketed, shown.values())}

    def follow(self, tables: TypesByTable) -> None:
        """Add the columns that are new, remove those that are gone, and change types.

        Raises:
            ValueError: the tables are others.
        """
        if (have := {table for table, _ in self.locals}) != set(tables):
            raise ValueError(
                f"its tables are {', '.join(sorted(have)) or 'not known'}, and those to be "
                f"published {', '.join(sorted(tables))}"
            )
        gone = dict(self.locals)
        for table, columns in tables.items():
            for name, type_ in columns:
                if local := gone.pop((table, name), None):
                    self._retype(local, type_)
                else:
                    self._append(table, name, type_)
        for entry in chain.from_iterable(self._entries[local] for local in gone.values()):
            if (parent := entry.getparent()) is not None:
                parent.remove(entry)
        self.drop(set(gone.values()))

    def _append(self, table: str, name: str, type_: str) -> None:
        """Add a column after those of its table."""
        numbered = (f"{name} ({table}) {number}" for number in count(1))
        names = map(bracketed, chain([name, f"{name} ({table})"], numbered))
        local = next(each for each in names if each not in self._used)
        self._used.add(local)
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
                _rewrite(new, {**texts, "ordinal": str(self._ordinals[parent])}, _OF_THE_TABLE)
            insert_at(parent, parent.index(neighbour) + 1, new)
            self._last[table][parent] = new
        if local in self.columns:
            set_type(self.columns[local], texts["local-type"])

    def _retype(self, local: str, type_: str) -> None:
        """Give a column the type that it has in the file; in its database, it keeps another."""
        known = (None, "", *_type(type_)[0])
        found = self._of_the_file[local]
        old = [each for each in found if texts_of(each).get("local-type") not in known]
        for record in old:
            _rewrite(record, _texts(type_), texts_of(record).keys() - _OF_THE_TYPE)
        if old and local in self.columns:
            set_type(self.columns[local], _texts(type_)["local-type"])


def datatype_of(type_: str) -> str:
    """Return Tableau's name of a type of Hyper, as a `.tds` has it: "integer", "string"."""
    (datatype, *_), _remote = _type(type_)
    return datatype


def _type(type_: str) -> tuple[tuple[str, ...], str]:
    return _TYPES.get(type_.partition("(")[0], _TEXT)


def _texts(type_: str) -> dict[str, str]:
    """What a record says of a column of this type of Hyper."""
    datatype, remote = datatype_of(type_), _type(type_)[1]
    usual = AGGREGATIONS.get(datatype, "Count")
    return {"local-type": datatype, "remote-type": remote, "aggregation": usual}


# In the order in which Tableau writes them.
_RECORD = (
    *("remote-name", "remote-type", "local-name", "parent-name", "remote-alias", "ordinal"),
    *("local-type", "aggregation", "precision", "scale", "width", "contains-null", "collation"),
    "object-id",
)


def new_record(texts: Mapping[str, str], type_: str) -> Element:
    """Return what a `.tds` says of a column: the texts, and what follows from its Hyper type."""
    known = {**texts, **_texts(type_), "contains-null": "true"}
    sizes = re.findall(r"\d+", type_)
    if type_.startswith("NUMERIC"):
        known |= dict(zip(("precision", "scale"), sizes, strict=False))
    elif known["local-type"] == "string" and sizes:
        known["width"] = sizes[0]
    record = etree.Element("metadata-record", {"class": "column"})
    for tag in _RECORD:
        if tag in known:
            etree.SubElement(record, tag).text = known[tag]
        elif tag == "collation" and known["remote-type"] == _TEXT[1]:
            etree.SubElement(record, tag, {"flag": "0", "name": "binary"})
    return record


def _rewrite(record: Element, texts: Mapping[str, str], kept: Collection[str]) -> None:
    """Set texts of a record, and remove all else but what is to be kept."""
    for child in list(record):
        if tag_of(child) in texts:
            child.text = texts[tag_of(child)]
        elif tag_of(child) not in kept:
            record.remove(child)
