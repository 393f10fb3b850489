"""The columns of the tables in a `.tds`, and how it follows those of the published file."""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from copy import deepcopy
from itertools import chain, count
from types import MappingProxyType

from lxml.etree import _Element as Element

from tableau_pipeline.metadata.digest import plain, records
from tableau_pipeline.metadata.formulas import quoted

# The columns of each table by its name in the file: (name, Hyper's SQL type), in order.
Tables = Mapping[str, Sequence[tuple[str, str]]]
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
# How Tableau aggregates the fields of a type, unless somebody decides.
AGGREGATIONS = MappingProxyType(
    {"integer": "Sum", "real": "Sum", "date": "Year", "datetime": "Year", "spatial": "Collect"}
)
# What a new column has in common with its neighbours.
_OF_THE_TABLE = frozenset({"parent-name", "family", "object-id"})
# What a column of another type does not have.
_OF_THE_TYPE = frozenset({"precision", "scale", "width", "collation", "attributes"})


def local_names(root: Element) -> dict[tuple[str, str], str]:
    """Return the local name of each column, by its table and name."""
    return {
        (table, column): texts.get("local-name") or quoted(column)
        for table, column, texts in records(root)
    }


def default_role(datatype: str) -> str:
    """Return the role that Tableau gives to fields of a type."""
    return "measure" if datatype in ("integer", "real") else "dimension"


def scale_of(role: str, datatype: str) -> str:
    """Return the attribute `type` of a field."""
    if role == "measure":
        return "quantitative"
    return "nominal" if datatype in ("string", "boolean", "spatial") else "ordinal"


def set_type(column: Element, datatype: str) -> None:
    """Give a `<column>` another type; its role follows if it was the old type's."""
    before = column.get("datatype", "")
    column.set("datatype", datatype)
    role = column.get("role", "")
    role = default_role(datatype) if role == default_role(before) else role
    column.set("role", role)
    column.set("type", scale_of(role, datatype))


def follow(root: Element, tables: Tables) -> None:
    """Add the columns that are new, remove those that are gone, and change types.

    Raises:
        ValueError: the tables are others.
    """
    have: dict[str, dict[str, str]] = defaultdict(dict)
    for (table, column), local in local_names(root).items():
        have[table][column] = local
    if set(have) != set(tables):
        raise ValueError(
            f"its tables are {', '.join(sorted(have)) or 'not known'}, and those to be published "
            f"{', '.join(sorted(tables))}"
        )
    following = _Following(root, {name: table for table in have for name in have[table].values()})
    for table, columns in tables.items():
        for name, type_ in columns:
            if local := have[table].get(name):
                following.retype(local, type_)
            else:
                following.add(table, name, type_)
    following.remove(
        {have[table][name] for table in have for name in have[table].keys() - dict(tables[table])}
    )


class _Following:
    """The elements of columns, wherever a `.tds` lists them.

    Args:
        root: of the `.tds`.
        tables: the table of each local name.
    """

    def __init__(self, root: Element, tables: Mapping[str, str]) -> None:
        self._root = root
        self._records: dict[str, list[Element]] = defaultdict(list)
        # By table and list, the last record, and the last entry of a map, after which others go.
        self._last: dict[str, dict[Element, Element]] = defaultdict(dict)
        self._ordinals: dict[Element, int] = defaultdict(int)
        found = root.iterfind("./connection//metadata-record[@class='column']")
        for record in chain(found, root.iterfind("./extract//metadata-record[@class='column']")):
            local, parent = _text(record, "local-name"), record.getparent()
            self._records[local].append(record)
            if parent is not None:
                ordinal = _text(record, "ordinal")
                number = int(ordinal) if ordinal.isdecimal() else 0
                self._ordinals[parent] = max(self._ordinals[parent], number)
                self._last[tables.get(local, "")][parent] = record
        for each in root.iterfind(".//cols/map"):
            local, parent = each.get("key", ""), each.getparent()
            self._records[local].append(each)
            if parent is not None:
                self._last[tables.get(local, "")][parent] = each
        self._fields = {each.get("name", ""): each for each in root if plain(each) == "column"}
        # The field of a column that was there before may be left, and is taken up again.
        made = {name for name, each in self._fields.items() if each.find("calculation") is not None}
        groups = {each.get("name", "") for each in root if plain(each) == "group"}
        self._used = set(tables) | made | groups

    def add(self, table: str, name: str, type_: str) -> None:
        """Add a column after those of its table."""
        numbered = (f"{name} ({table}) {number}" for number in count(1))
        names = map(quoted, chain([name, f"{name} ({table})"], numbered))
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
                new.set("value", f"{new.get('value', '').rpartition('].[')[0]}].{quoted(name)}")
            else:
                self._ordinals[parent] += 1
                _rewrite(new, {**texts, "ordinal": str(self._ordinals[parent])}, _OF_THE_TABLE)
            place(parent, parent.index(neighbour) + 1, new)
            self._last[table][parent] = new
        if local in self._fields:
            set_type(self._fields[local], texts["local-type"])

    def retype(self, local: str, type_: str) -> None:
        """Give a column the type that it has in the file."""
        known = ("", *_type(type_)[0])
        records = [each for each in self._records[local] if _text(each, "local-type") not in known]
        for record in records:
            kept = {plain(child) for child in record} - _OF_THE_TYPE
            _rewrite(record, _texts(type_), kept)
        if records and local in self._fields:
            set_type(self._fields[local], _texts(type_)["local-type"])

    def remove(self, gone: set[str]) -> None:
        """Remove columns, and what is about nothing else."""
        instances = [each for each in self._root if plain(each) == "column-instance"]
        doomed = [each for each in instances if each.get("column") in gone]
        for local in gone:
            doomed += self._records[local]
            doomed += [self._fields[local]] if local in self._fields else []
        for each in doomed:
            remove(each)
        forget(self._root, gone)


def _text(record: Element, tag: str) -> str:
    return next((each.text or "" for each in record if plain(each) == tag), "")


def _type(type_: str) -> tuple[tuple[str, ...], str]:
    return _TYPES.get(type_.partition("(")[0], _TEXT)


def _texts(type_: str) -> dict[str, str]:
    """What a record says of a column of this type of Hyper."""
    (datatype, *_), remote = _type(type_)
    usual = AGGREGATIONS.get(datatype, "Count")
    return {"local-type": datatype, "remote-type": remote, "aggregation": usual}


def _rewrite(record: Element, texts: Mapping[str, str], kept: Collection[str]) -> None:
    """Set texts of a record, and remove all else but what is to be kept."""
    for child in list(record):
        if plain(child) in texts:
            child.text = texts[plain(child)]
        elif plain(child) not in kept:
            record.remove(child)


def place(parent: Element, position: int, new: Element) -> None:
    """Insert an element, indented like its neighbours."""
    parent.insert(position, new)
    if position == 0:
        new.tail = parent.text
    else:
        before = parent[position - 1]
        new.tail = before.tail
        if new is parent[-1]:
            before.tail = parent.text


def remove(element: Element) -> None:
    """Remove an element from its parent."""
    parent = element.getparent()
    if parent is not None:
        parent.remove(element)


def folder_items(root: Element) -> dict[str, list[Element]]:
    """Return the items of folders by local name, in the old and new forms of folders."""
    items: dict[str, list[Element]] = defaultdict(list)
    for each in root:
        if plain(each) in ("folder", "folders-common"):
            for item in each.iter():
                if plain(item) == "folder-item":
                    items[item.get("name", "")].append(item)
    return items


def forget(root: Element, gone: Collection[str]) -> None:
    """Take fields out of folders and hierarchies, and those away that have nothing else."""
    members = [
        each for each in root.iterfind("./drill-paths/drill-path/field") if each.text in gone
    ]
    items = folder_items(root)
    for item in [*members, *(each for local in gone for each in items[local])]:
        take_out(root, item)


def take_out(root: Element, item: Element) -> None:
    """Remove an element, and those around it that have nothing else."""
    above = item.getparent()
    remove(item)
    while above is not None and above is not root and len(above) == 0:
        item, above = above, above.getparent()
        remove(item)
