"""A `.tds` as it was parsed: its parts by name, and how parts come and go."""

import hashlib
import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from types import MappingProxyType
from typing import NamedTuple

from lxml import etree
from lxml.etree import _Element as Element

from tableau_pipeline.metadata.formulas import field_name, quoted, unquoted

# Bytes, as a download and unpacked. One of a thousand columns has less than two million.
LARGEST = 16 * 10**6
# The order of elements in a data source, as in `DataSource-CT` of Tableau's schema of workbooks;
# and `folder`, which was there before `folders-common`.
ORDER = (
    "document-format-change-manifest",
    "repository-location",
    "connection",
    "utility-dimensions",
    "dimension",
    "overridable-settings",
    "aliases",
    "column",
    "column-instance",
    "group",
    "mapped-images",
    "drill-paths",
    "unlinked-server-hierarchies",
    "folder",
    "folders-common",
    "folders-parameters",
    "actions",
    "calculated-members",
    "extract",
    "layout",
    "style",
    "semantic-values",
    "date-options",
    "default-date-format",
    "default-sorts",
    "field-sort-info",
    "datasource-dependencies",
    "explainability",
    "filter",
    "analytic-model",
    "object-graph",
    "default-calendar-type",
)
_RANKS = MappingProxyType({tag: rank for rank, tag in enumerate(ORDER)})
# Products use such a prefix until a release officially supports an element or attribute.
FEATURE = re.compile(r"^_\.fcp\.\w+\.(true|false)\.\.\.")
# The column that represents a whole table has the table's id, which changes each time.
TABLE_COLUMN = "[__tableau_internal_object_id__]"
# How Tableau aggregates the fields of a type, unless somebody decides.
AGGREGATIONS = MappingProxyType(
    {"integer": "Sum", "real": "Sum", "date": "Year", "datetime": "Year", "spatial": "Collect"}
)


def parsed(tds: bytes, *, comments: bool = True) -> Element:
    """Return the root of a `.tds`, which other people wrote, with or without its comments.

    Raises:
        ValueError: it is none, or too large or deep, or has a DTD.
    """
    if len(tds) > LARGEST:
        raise ValueError(f"it is not a .tds: it has more than {LARGEST} bytes")
    # Entities could exhaust the memory, or read files of this machine.
    parser = etree.XMLParser(
        resolve_entities=False,
        load_dtd=False,
        no_network=True,
        strip_cdata=False,
        remove_comments=not comments,
        remove_pis=not comments,
    )
    try:
        root = etree.fromstring(tds, parser)
    except (etree.XMLSyntaxError, ValueError) as error:
        raise ValueError(f"it is not a .tds: {error}") from error
    if root.getroottree().docinfo.doctype:
        raise ValueError("it is not a .tds: it has a DTD")
    if root.tag != "datasource":
        raise ValueError(f'it begins with "{root.tag[:100]}" instead of "datasource"')
    return root


def attributes_of(element: Element | None) -> dict[str, str]:
    """Return the attributes by their names."""
    return {} if element is None else {str(key): str(each) for key, each in element.attrib.items()}


def plain(element: Element) -> str:
    """Return the tag without a prefix of a feature; "" for a comment."""
    tag = element.tag if isinstance(element.tag, str) else ""
    return FEATURE.sub("", tag) if tag.startswith("_") else tag


def label(element: Element) -> str:
    """Return the name of a field, folder or hierarchy that people see."""
    return element.get("caption") or unquoted(element.get("name", ""))


def texts_of(record: Element) -> dict[str, str]:
    """Return what a record of a column says, by tag."""
    return {plain(each): each.text or "" for each in record}


def local_name(calculation: str) -> str:
    """Return the name in the `.tds` of a calculation that we make."""
    digest = hashlib.sha256(calculation.encode()).digest()
    # Of the form of Tableau's own.
    return f"[Calculation_{int.from_bytes(digest[:8]) % 10**18:018}]"


def set_type(column: Element, datatype: str, role: str | None = None) -> None:
    """Give a `<column>` a type and a role; by default, the type's if it had that of its type."""
    usual, before = default_role(datatype), default_role(column.get("datatype", ""))
    if role is None:
        role = column.get("role", before)
        role = usual if role == before else role
    scale = "nominal" if datatype in ("string", "boolean", "spatial") else "ordinal"
    column.set("datatype", datatype)
    column.set("role", role)
    column.set("type", "quantitative" if role == "measure" else scale)


def default_role(datatype: str) -> str:
    """Return the role that Tableau gives to fields of a type."""
    return "measure" if datatype in ("integer", "real") else "dimension"


class Record(NamedTuple):
    """A column of a published table; `local` is its name in formulas and elements."""

    table: str
    column: str
    local: str
    type: str


class Document:
    """The parts of a `.tds` by name.

    Attributes:
        records: the columns of the extract; those of the connection if it has none.
        locals: the local names of columns, by table and column.
        columns: the elements of fields, by local name.
        items: those that put fields into folders, in the old and new forms, by local name.
        names: what people write for columns, by local name.
    """

    def __init__(self, root: Element) -> None:
        self.root = root
        self.records = [*_records(root, "extract")] or [*_records(root, "connection")]
        self.locals = {(each.table, each.column): each.local for each in self.records}
        self.columns: dict[str, Element] = {}
        self.items: dict[str, list[Element]] = defaultdict(list)
        for each in root:
            kind, name = plain(each), each.get("name", "")
            if kind == "column" and not name.startswith(TABLE_COLUMN):
                self.columns[name] = each
            for item in each.iter() if kind in ("folder", "folders-common") else ():
                if plain(item) == "folder-item":
                    self.items[item.get("name", "")].append(item)
        single = len({each.table for each in self.records}) == 1
        self.names: dict[str, str] = {}
        for path, local in self.locals.items():
            self.names[local] = field_name(("field", *path), single=single)

    @property
    def hierarchies(self) -> Mapping[str, Element]:
        """The elements of hierarchies."""
        found = self.root.iterfind("./drill-paths/drill-path")
        return {each.get("name", ""): each for each in found}

    def add(self, local: str, datatype: str) -> Element:
        """Add the element of a field that has none."""
        column = etree.Element("column", {"name": local})
        set_type(column, datatype)
        insert(self.root, column)
        self.columns[local] = column
        return column

    def drop(self, gone: Collection[str]) -> None:
        """Remove fields, also from folders and hierarchies, and those that have nothing else."""
        paths = self.hierarchies.values()
        doomed = [each for path in paths for each in path.iterfind("field") if each.text in gone]
        doomed += [item for local in gone for item in self.items.pop(local, ())]
        for each in doomed:
            self.take_out(each)
        for each in [*self.root]:
            names = {"column": each.get("name"), "column-instance": each.get("column")}
            if names.get(plain(each)) in gone:
                self.root.remove(each)
        self.columns = {local: each for local, each in self.columns.items() if local not in gone}

    def take_out(self, item: Element) -> None:
        """Remove an element, and those around it that have nothing else."""
        while item is not self.root and (above := item.getparent()) is not None:
            above.remove(item)
            if len(above):
                return
            item = above


def _records(root: Element, part: str) -> Iterator[Record]:
    for each in root.iterfind(f"./{part}//metadata-record[@class='column']"):
        texts = texts_of(each)
        if column := texts.get("remote-name"):
            table, local = unquoted(texts.get("parent-name", "")), texts.get("local-name")
            yield Record(table, column, local or quoted(column), texts.get("local-type", ""))


def insert(root: Element, new: Element) -> None:
    """Insert an element of a data source where Tableau's schema has it."""
    rank = _RANKS[plain(new)]
    position = len(root)
    for each in reversed(root):
        if _RANKS.get(plain(each), rank + 1) <= rank:
            break
        position -= 1
    place(root, position, new)


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
