"""A `.tds` as it was parsed: its parts by name, what people made in it, and a digest of that."""

import hashlib
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from types import MappingProxyType
from typing import NamedTuple

from lxml import etree
from lxml.etree import _Element as Element

# Strings and comments, where brackets mean nothing; then a field, perhaps of another data source.
_TOKEN = re.compile(
    r"""'[^']*'|"[^"]*"|//[^\n]*|/\*.*?\*/|(\[(?:[^\]]|\]\])*\])(\.\[(?:[^\]]|\]\])*\])?""",
    re.DOTALL,
)


def bracketed(name: str) -> str:
    """Return a name in brackets."""
    return f"[{name.replace(']', ']]')}]"


def unbracketed(name: str) -> str:
    """Return a name without its brackets; the last one of `[Extract].[Sales]`."""
    last = name.split("].[")[-1]
    return last.removeprefix("[").removesuffix("]").replace("]]", "]")


def field_name(path: tuple[str, ...], *, single: bool) -> str:
    """Return the name of a column or calculation: the column alone if there is a single table."""
    return path[1] if path[0] == "calculation" else path[2] if single else f"{path[1]}.{path[2]}"


def fields_in(formula: str) -> Iterator[str]:
    """Yield the names of the fields in a formula, in brackets; not [Parameters].[A]."""
    for match in _TOKEN.finditer(formula):
        if match[1] and not match[2]:
            yield match[1]


def with_fields(formula: str, new: Callable[[str], str]) -> str:
    """Return the formula with another name for each field; both in brackets."""

    def of(match: re.Match[str]) -> str:
        return new(match[1]) if match[1] and not match[2] else match[0]

    return _TOKEN.sub(of, formula)


_CLOSING = MappingProxyType({")": "(", "]": "[", "}": "{"})


def fault_in(formula: str) -> str | None:
    """Return why a formula means nothing, as a phrase: it is empty, or lacks a bracket."""
    rest = _TOKEN.sub(lambda found: "" if found[0][:2] in ("//", "/*") else "0", formula)
    if not rest.strip():
        return "it is empty"
    opened: list[str] = []
    for each in rest:
        if each in ("'", '"'):
            return f"a {each} is not closed"
        if each in _CLOSING.values():
            opened.append(each)
        elif each in _CLOSING and _CLOSING[each] not in opened:
            return f"a {each} closes nothing"
        elif each in _CLOSING and (last := opened.pop()) != _CLOSING[each]:
            return f"a {last} is not closed"
    return f"a {opened[-1]} is not closed" if opened else None


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
# How many names of each kind a message lists.
_LISTED = 30
_RANKS = MappingProxyType({tag: rank for rank, tag in enumerate(ORDER)})
# Products use such a prefix until a release officially supports an element or attribute. What is
# marked as false is for older products, beside what is marked as true; newer ones drop it.
FEATURE = re.compile(r"^_\.fcp\.\w+\.(true|false)\.\.\.")
# The namespace of attributes that are of users, or of their interface.
USER = "http://www.tableausoftware.com/xml/user"
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


def tag_of(element: Element) -> str:
    """Return the tag without a prefix of a feature; "" for a comment."""
    tag = element.tag if isinstance(element.tag, str) else ""
    return FEATURE.sub("", tag) if tag.startswith("_") else tag


def is_off(element: Element) -> bool:
    """Whether an element is for older products alone."""
    found = FEATURE.match(element.tag) if isinstance(element.tag, str) else None
    return found is not None and found[1] == "false"


def resolve(root: Element) -> None:
    """Give a document the form in which a server of today writes it: without prefixes."""
    for each in [*root.iter()]:
        if is_off(each) and (around := each.getparent()) is not None:
            around.remove(each)
            continue
        each.tag = tag_of(each)
        for key, value in attributes_of(each).items():
            if found := FEATURE.match(key):
                del each.attrib[key]
                if found[1] == "true":
                    each.set(key[found.end() :], value)


def label(element: Element) -> str:
    """Return the name of a field, folder or hierarchy that people see."""
    return element.get("caption") or unbracketed(element.get("name", ""))


def texts_of(record: Element) -> dict[str, str]:
    """Return what a record of a column says, by tag."""
    return {tag_of(each): each.text or "" for each in record if not is_off(each)}


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


class MetadataRecord(NamedTuple):
    """A column of a published table; `local` is its name in formulas and elements."""

    table: str
    column: str
    local: str
    type: str


class Document:
    """The parts of a `.tds` by name.

    Attributes:
        part: "extract" if that lists columns, else "connection".
        records: the columns that this part lists.
        locals: the local names of columns, by table and column.
        columns: the elements of fields, by local name.
        items: those that put fields into folders, in the old and new forms, by local name.
        paths: those that put hierarchies into folders, by the name of the hierarchy.
        names: what people write for columns, by local name.
    """

    def __init__(self, root: Element) -> None:
        self.root = root
        # An extract counts before the database of which it is one.
        records = {part: [*_records(root, part)] for part in ("extract", "connection")}
        self.part = "extract" if records["extract"] else "connection"
        self.records = records[self.part]
        self.locals = {(each.table, each.column): each.local for each in self.records}
        self.columns: dict[str, Element] = {}
        self.items: dict[str, list[Element]] = defaultdict(list)
        self.paths: dict[str, list[Element]] = defaultdict(list)
        for each in root:
            kind, name = tag_of(each), each.get("name", "")
            if kind == "column" and not is_off(each) and not name.startswith(TABLE_COLUMN):
                self.columns[name] = each
            for item in each.iter() if kind in ("folder", "folders-common") else ():
                if tag_of(item) == "folder-item":
                    of_paths = item.get("type") == "drillpath"
                    found = self.paths if of_paths else self.items
                    found[item.get("name", "")].append(item)
        single = len({each.table for each in self.records}) == 1
        self.names: dict[str, str] = {}
        for path, local in self.locals.items():
            self.names[local] = field_name(("field", *path), single=single)

    @property
    def hierarchies(self) -> Mapping[str, Element]:
        """The elements of hierarchies."""
        found = self.root.iterfind("./drill-paths/drill-path")
        return {each.get("name", ""): each for each in found}

    def above(self, local: str) -> list[str]:
        """The hierarchies that have a field."""
        found = self.hierarchies.items()
        return [name for name, each in found if local in (e.text for e in each.iterfind("field"))]

    def folder(self, local: str) -> str:
        """The folder that shows a field; "" if none does.

        Products put a hierarchy into a folder as a whole, and its fields then have no item.
        """
        lists = (self.items.get(local, ()), *(self.paths.get(e, ()) for e in self.above(local)))
        return next(filter(None, map(folder_of, lists)), "")

    @property
    def groups(self) -> Mapping[str, Element]:
        """The elements of groups and sets that people made, by local name."""
        found = (each for each in self.root if tag_of(each) == "group" and not is_off(each))
        return {each.get("name", ""): each for each in found if not is_automatic(each)}

    def shown(self) -> Mapping[str, str]:
        """The name that people see of each field, by local name."""
        names = {each.local: unbracketed(each.local) for each in self.records}
        for local, each in chain(self.groups.items(), self.columns.items()):
            # The element of a column may be left when the column is gone.
            if local in names or tag_of(each) == "group" or each.find("calculation") is not None:
                names[local] = label(each)
        return names

    def add(self, local: str, datatype: str) -> Element:
        """Add the element of a field that has none."""
        column = etree.Element("column", {"name": local})
        set_type(column, datatype)
        insert(self.root, column)
        self.columns[local] = column
        return column

    def drop(self, gone: Collection[str]) -> None:
        """Remove fields, also from folders and hierarchies, and those that have nothing else.

        What products made of them by themselves goes with them.
        """
        paths = self.hierarchies.values()
        doomed = [each for path in paths for each in path.iterfind("field") if each.text in gone]
        doomed += [item for local in gone for item in self.items.pop(local, ())]
        for each in doomed:
            self.take_out(each)
        for each in [*self.root]:
            names = {"column": each.get("name"), "column-instance": each.get("column")}
            is_left = is_automatic(each) and any(names_field(each, local) for local in gone)
            if is_left or names.get(tag_of(each)) in gone:
                self.root.remove(each)
        self.columns = {local: each for local, each in self.columns.items() if local not in gone}

    def take_out(self, item: Element) -> None:
        """Remove an element, and those around it that have nothing else."""
        while item is not self.root and (above := item.getparent()) is not None:
            above.remove(item)
            if tag_of(item) == "drill-path":
                for each in self.paths.pop(item.get("name", ""), ()):
                    self.take_out(each)
            if len(above):
                return
            item = above


def folder_of(items: Iterable[Element]) -> str:
    """Return the folder that one of the items is in; "" if that is for older products alone."""
    shown = (each for each in items if not any(map(is_off, each.iterancestors())))
    return next((attributes_of(each.getparent()).get("name", "") for each in shown), "")


def _records(root: Element, part: str) -> Iterator[MetadataRecord]:
    tables = _tables(root, part)
    for each in root.iterfind(f"./{part}//metadata-record[@class='column']"):
        texts = texts_of(each)
        if column := texts.get("remote-name"):
            parent, local = unbracketed(texts.get("parent-name", "")), texts.get("local-name")
            table = tables.get(parent, parent)
            yield MetadataRecord(
                table, column, local or bracketed(column), texts.get("local-type", "")
            )


def _tables(root: Element, part: str) -> Mapping[str, str]:
    """The tables of a file by the names of their relations, which may be "T (Extract.T)".

    A table that has several relations is left out, as one of them does not tell which.
    """
    found = {}
    for each in root.iterfind(f"./{part}//*[@table]"):
        parts = BRACKETS.findall(each.get("table", ""))
        if tag_of(each) == "relation" and len(parts) == 2:
            found[each.get("name", "")] = unbracketed(parts[1])
    several = Counter(found.values())
    return {name: table for name, table in found.items() if several[table] == 1}


BRACKETS = re.compile(r"\[(?:[^\]]|\]\])*\]")
# The name of a column that a view or filter uses, with its aggregation and kind.
_INSTANCE = re.compile(r"\w+:(.*):\w+", re.DOTALL)


def names_field(element: Element, local: str) -> bool:
    """Whether an element or one in it names a field in an attribute other than a formula."""
    for each in element.iter():
        for key, value in attributes_of(each).items():
            for name in BRACKETS.findall(value) if key != "formula" else ():
                instance = _INSTANCE.fullmatch(unbracketed(name))
                if name == local or (instance and instance[1] == unbracketed(local)):
                    return True
    return False


def insert(root: Element, new: Element) -> None:
    """Insert an element of a data source where Tableau's schema has it."""
    rank = _RANKS[tag_of(new)]
    position = len(root)
    for each in reversed(root):
        if _RANKS.get(tag_of(each), rank + 1) <= rank:
            break
        position -= 1
    insert_at(root, position, new)


def insert_at(parent: Element, position: int, new: Element) -> None:
    """Insert an element, indented like its neighbours."""
    parent.insert(position, new)
    if position == 0:
        new.tail = parent.text
    else:
        before = parent[position - 1]
        new.tail = before.tail
        if new is parent[-1]:
            before.tail = parent.text


# Elements about the origin of the data, their transfer, the published location and permissions.
_NOT_BY_PEOPLE = frozenset(
    {"connection", "document-format-change-manifest", "extract", "repository-location"}
)
# Attributes that products maintain by themselves.
_BY_PRODUCTS = frozenset(
    {
        "approximate-count",
        "auto-hidden",
        "dim-percentage-v2",
        "explainability",
        "is-auto-gen-lod-field",
        "measure-percentage-v2",
    }
)
# Marks the field "Number of Records" of old products, and the hidden groups of dashboards' actions.
_AUTOMATIC = f"{{{USER}}}auto-column"
# What a column may have besides its own name, and what people call that: by attribute, by element.
_BY_ATTRIBUTE = {"caption": "captions", "default-format": "formats", "hidden": "hidden fields"}
_BY_ELEMENT = {"aliases": "aliases", "desc": "descriptions"}
# Other work that has a name, by the tags of its element and the one around it.
_NAMED = MappingProxyType(
    {
        ("datasource", "group"): "groups and sets",
        ("datasource", "folder"): "folders",
        ("folders-common", "folder"): "folders",
        ("drill-paths", "drill-path"): "hierarchies",
        ("datasource-dependencies", "column"): "parameters",
    }
)


@dataclass(frozen=True, slots=True)
class Metadata:
    """The content of a data source's `.tds`.

    Attributes:
        digest: changes when a user edits calculated fields, captions or folders. Equal
            metadata has equal digests, however it is written or packed.
        columns: pairs (table, column) of the published file; None if the `.tds` lists none.
        work: the names of what people made in it, by kind, such as "calculated fields".
        tds: the file itself; b"" where it is not known.
        source: the class of the database that it connects to, such as "postgres"; None if its
            data are in Hyper alone.
    """

    digest: str
    columns: frozenset[tuple[str, str]] | None
    work: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    tds: bytes = field(default=b"", repr=False, compare=False)
    source: str | None = None


def read_metadata(tds: bytes) -> Metadata:
    """Read a `.tds`.

    Raises:
        ValueError: it is none; the message states why.
    """
    root = parsed(tds, comments=False)
    resolve(root)
    document = Document(root)
    columns, source = frozenset(document.locals), _source(document.root)
    work = _work(document)
    return Metadata(_digest(document, columns), columns or None, work, tds, source)


def _work(document: Document) -> dict[str, tuple[str, ...]]:
    """The names of people's work, by kind, as far as it has names; the digest covers all of it."""
    found: dict[str, list[str]] = defaultdict(list)
    for column in document.columns.values():
        for kind in _kinds(column):
            found[kind].append(label(column))
    for each in document.root.iterdescendants():
        around = each.getparent()
        kind = None if around is None else _NAMED.get((around.tag, each.tag))
        if kind and not is_automatic(each):
            found[kind].append(label(each))
    return {kind: tuple(names) for kind, names in found.items()}


def _kinds(column: Element) -> list[str]:
    """What people call the work that is in a column."""
    if column.find("calculation") is not None and _AUTOMATIC not in column.attrib:
        return ["calculated fields"]
    kinds = [kind for name, kind in _BY_ATTRIBUTE.items() if column.get(name)]
    return kinds + [kind for name, kind in _BY_ELEMENT.items() if column.find(name) is not None]


def is_automatic(element: Element) -> bool:
    """Whether products have made a group or a column by themselves, and people did not touch it."""
    is_column = tag_of(element) == "column"
    return _AUTOMATIC in element.attrib and not (is_column and _kinds(element))


def _digest(document: Document, columns: Collection[tuple[str, str]]) -> str:
    """The digest of people's work and of the columns, which that work may name.

    All else is taken out of the document: ids of tables, and where their data come from.
    """
    root = document.root
    objects = [*root.iter("object")]
    captions = {each.get("id", ""): each.get("caption", "") for each in objects}
    for each in [*root]:
        is_table = each.tag == "column" and each.get("name", "").startswith(TABLE_COLUMN)
        if is_table or each.tag in _NOT_BY_PEOPLE or is_automatic(each):
            root.remove(each)
    for each in root.iter():
        kept = attributes_of(each)
        if each is root or each in objects:
            # Its other attributes describe the product that wrote it, or a connection.
            kept = {key: value for key, value in kept.items() if key == "caption"}
        if table := kept.get("object-id"):
            kept["object-id"] = captions.get(table, "")
        each.attrib.clear()
        each.attrib.update({key: value for key, value in kept.items() if key not in _BY_PRODUCTS})
    for each in objects:
        each[:] = []
    # Sorts attributes, so the same content always gives the same text.
    text = etree.canonicalize(root, strip_text=True)
    return hashlib.sha256(f"{text}{sorted(columns)}".encode()).hexdigest()[:16]


def _source(root: Element) -> str | None:
    classes = (each.get("class") for each in root.iterfind("connection//connection"))
    found = (*classes, *(each.get("class") for each in root.iterfind("connection")))
    return next((each for each in found if each not in (None, "federated", "hyper")), None)


def work_in(metadata: Metadata | None) -> str:
    """What people made in a data source, by name, as far as it has names."""
    if metadata is None or not metadata.work:
        return "whatever calculated fields, captions, folders and formats people made in it"
    phrases = []
    for kind, names in metadata.work.items():
        shown, more = ", ".join(f'"{name}"' for name in names[:_LISTED]), len(names) - _LISTED
        phrases.append(f"{kind} {shown}" + (f" and {more} more" if more > 0 else ""))
    return "; ".join(phrases)
