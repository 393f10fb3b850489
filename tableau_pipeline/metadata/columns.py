"""The columns of the tables in a `.tds`, and how it follows those of the published file."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
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
    have = _locals_by_table(root)
    if set(have) != set(tables):
        raise ValueError(
            f"its tables are {', '.join(sorted(have)) or 'not known'}, and those to be published "
            f"{', '.join(sorted(tables))}"
        )
    used = {local for columns in have.values() for local in columns.values()}
    # The field of a column that was there before may be left, and is taken up again.
    used |= {
        each.get("name", "")
        for each in root
        if plain(each) == "group"
        or (plain(each) == "column" and each.find("calculation") is not None)
    }
    gone: set[str] = set()
    for table, columns in tables.items():
        locals_, added = have[table], list[str]()
        for name, type_ in columns:
            if (local := locals_.get(name)) is None:
                local = _unused(name, table, used)
                used.add(local)
                _add(root, [*locals_.values(), *added], name, local, type_)
                added.append(local)
                _set_field_type(root, local, _type(type_)[0][0])
            else:
                _retype(root, local, type_)
        gone |= {local for name, local in locals_.items() if name not in dict(columns)}
    _remove(root, gone)


def _locals_by_table(root: Element) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = defaultdict(dict)
    for (table, column), local in local_names(root).items():
        found[table][column] = local
    return found


def _unused(column: str, table: str, used: set[str]) -> str:
    """A local name; the table, and a number, distinguish equal ones."""
    numbered = (f"{column} ({table}) {number}" for number in count(1))
    names = map(quoted, chain([column, f"{column} ({table})"], numbered))
    return next(name for name in names if name not in used)


def _records(root: Element, local: str | None = None) -> Iterator[Element]:
    """The records of columns, of the connection and of the extract; or those of one column."""
    for path in ("connection", "extract"):
        for record in root.iterfind(f"./{path}//metadata-record[@class='column']"):
            if local is None or _text(record, "local-name") == local:
                yield record


def _text(record: Element, tag: str) -> str:
    return next((each.text or "" for each in record if plain(each) == tag), "")


def _type(type_: str) -> tuple[tuple[str, ...], str]:
    return _TYPES.get(type_.partition("(")[0], _TEXT)


def _add(root: Element, neighbours: Sequence[str], name: str, local: str, type_: str) -> None:
    """Add a column after its neighbours, wherever they are listed."""
    (datatype, *_), remote = _type(type_)
    last: dict[Element, Element] = {}
    for record in _records(root):
        parent = record.getparent()
        if parent is not None and _text(record, "local-name") in neighbours:
            last[parent] = record
    for parent, record in last.items():
        numbers = [_text(each, "ordinal") for each in parent]
        texts = {
            "remote-name": name,
            "remote-alias": name,
            "local-name": local,
            "remote-type": remote,
            "local-type": datatype,
            "aggregation": AGGREGATIONS.get(datatype, "Count"),
            "contains-null": "true",
            "ordinal": str(max((int(each) for each in numbers if each.isdecimal()), default=0) + 1),
        }
        new = deepcopy(record)
        for child in list(new):
            if plain(child) in texts:
                child.text = texts[plain(child)]
            elif plain(child) not in _OF_THE_TABLE:
                new.remove(child)
        place(parent, parent.index(record) + 1, new)
    for cols in root.iterfind(".//cols"):
        maps = [each for each in cols if each.get("key") in neighbours]
        if maps:
            new = deepcopy(maps[-1])
            new.set("key", local)
            table = new.get("value", "").rpartition("].[")[0]
            new.set("value", f"{table}].{quoted(name)}")
            place(cols, cols.index(maps[-1]) + 1, new)


def _retype(root: Element, local: str, type_: str) -> None:
    types, remote = _type(type_)
    texts = {
        "local-type": types[0],
        "remote-type": remote,
        "aggregation": AGGREGATIONS.get(types[0], "Count"),
    }
    known = ("", *types)
    wrong = [each for each in _records(root, local) if _text(each, "local-type") not in known]
    for record in wrong:
        for child in list(record):
            if plain(child) in texts:
                child.text = texts[plain(child)]
            elif plain(child) in ("precision", "scale", "width", "collation", "attributes"):
                record.remove(child)
    if wrong:
        _set_field_type(root, local, types[0])


def _set_field_type(root: Element, local: str, datatype: str) -> None:
    for column in root:
        if plain(column) == "column" and column.get("name") == local:
            set_type(column, datatype)


def _remove(root: Element, gone: set[str]) -> None:
    """Remove columns, and what is about nothing else."""
    doomed = [record for record in _records(root) if _text(record, "local-name") in gone]
    doomed += [each for each in root.iterfind(".//cols/map") if each.get("key") in gone]
    for each in root:
        named = {"column": "name", "column-instance": "column"}.get(plain(each))
        doomed += [each] if named and each.get(named) in gone else []
    for each in doomed:
        remove(each)
    for local in gone:
        forget(root, local)


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


def folder_items(root: Element, local: str) -> Iterator[Element]:
    """Yield the items of folders that are this field, in the old and new forms of folders."""
    for each in root:
        if plain(each) in ("folder", "folders-common"):
            for item in each.iter():
                if plain(item) == "folder-item" and item.get("name") == local:
                    yield item


def forget(root: Element, local: str) -> None:
    """Take a field out of folders and hierarchies, and those away that have nothing else."""
    items = list(folder_items(root, local))
    items += [
        each for each in root.iterfind("./drill-paths/drill-path/field") if each.text == local
    ]
    for item in items:
        take_out(root, item)


def take_out(root: Element, item: Element) -> None:
    """Remove an element, and those around it that have nothing else."""
    above = item.getparent()
    remove(item)
    while above is not None and above is not root and len(above) == 0:
        item, above = above, above.getparent()
        remove(item)
