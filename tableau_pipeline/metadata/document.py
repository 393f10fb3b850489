"""Parse a `.tds`, and find its parts by name."""

import hashlib
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from itertools import chain
from types import MappingProxyType
from typing import NamedTuple

from lxml import etree
from lxml.etree import _Element as Element

# A string or a comment, in which brackets have no meaning; or a field, perhaps of another data
# source.
_TOKEN = re.compile(
    r"""'[^']*'|"[^"]*"|//[^\n]*|/\*.*?\*/|(\[(?:[^\]]|\]\])*\])(\.\[(?:[^\]]|\]\])*\])?""",
    re.DOTALL,
)


def bracketed(name: str) -> str:
    """Return a name in brackets."""
    return f"[{name.replace(']', ']]')}]"


BRACKETS = re.compile(r"\[(?:[^\]]|\]\])*\]")
# Names in brackets, such as `[Extract].[Sales]`.
_BRACKETED = re.compile(rf"(?:{BRACKETS.pattern}\.)*({BRACKETS.pattern})")


def unbracketed(name: str) -> str:
    """Return a name without brackets; for `[Extract].[Sales]`, only the last name."""
    match = _BRACKETED.fullmatch(name)
    return match[1][1:-1].replace("]]", "]") if match else name


def field_name(path: tuple[str, ...], *, single: bool) -> str:
    """Return a field's name in formulas: "column", "table.column", or a calculation's name.

    The name of a column includes the table if there are several tables (`single` is false).
    """
    return path[1] if path[0] == "calculation" else path[2] if single else f"{path[1]}.{path[2]}"


def fields_in(formula: str) -> Iterator[str]:
    """Yield the fields in a formula, in brackets; skip parameters such as [Parameters].[A]."""
    for match in _TOKEN.finditer(formula):
        if match[1] and not match[2]:
            yield match[1]


def with_fields(formula: str, new: Callable[[str], str]) -> str:
    """Return a formula in which `new` has renamed each field; all names are in brackets."""

    def replaced(match: re.Match[str]) -> str:
        return new(match[1]) if match[1] and not match[2] else match[0]

    return _TOKEN.sub(replaced, formula)


def bare_formula(formula: str) -> str:
    """Return a formula without comments, and with "0" in place of each string and field."""
    return _TOKEN.sub(lambda match: "" if match[0][:2] in ("//", "/*") else "0", formula)


_CLOSING = MappingProxyType({")": "(", "]": "[", "}": "{"})


def fault_in(formula: str) -> str | None:
    """Return a phrase that says why a formula is malformed; None if no fault was found."""
    rest = bare_formula(formula)
    if not rest.strip():
        return "it is empty"
    opened: list[str] = []
    for character in rest:
        if character in ("'", '"'):
            return f"a {character} is not closed"
        if character in _CLOSING.values():
            opened.append(character)
        elif character in _CLOSING and _CLOSING[character] not in opened:
            return f"a {character} closes nothing"
        elif character in _CLOSING and (last := opened.pop()) != _CLOSING[character]:
            return f"a {last} is not closed"
    return f"a {opened[-1]} is not closed" if opened else None


# The most bytes of a `.tds`, packed or unpacked. A `.tds` of a thousand columns has less than 2 MB.
LARGEST = 16 * 10**6
# The order of elements in a data source, from `DataSource-CT` in Tableau's schema of workbooks,
# plus `folder`, the predecessor of `folders-common`.
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
# Tableau's products put this prefix before the name of an element or attribute of a new feature. A
# prefix with "true" marks the form for newer products, and a prefix with "false" marks the form for
# older products. Both forms are next to each other, and newer products drop the form for older
# products. An element or attribute of several features has several prefixes.
_FEATURES = re.compile(r"(?:_\.fcp\.\w+\.(?:true|false)\.\.\.)+")
# The namespace of attributes that belong to users or the user interface.
USER = "http://www.tableausoftware.com/xml/user"
# The beginning of the name of a column that represents a whole table. The rest of the name is the
# id of the table, which is not stable.
TABLE_COLUMN = "[__tableau_internal_object_id__]"
# The default aggregations of fields; the keys are types. The default for other types is "Count".
AGGREGATIONS = MappingProxyType(
    {"integer": "Sum", "real": "Sum", "date": "Year", "datetime": "Year", "spatial": "Collect"}
)


def parsed(tds: bytes, *, comments: bool = True) -> Element:
    """Parse an untrusted `.tds`, with or without comments; return the root.

    Raises:
        ValueError: the content is not a `.tds`, is too large or too deep, or has a DTD.
    """
    if len(tds) > LARGEST:
        raise ValueError(f"it is not a .tds: it has more than {LARGEST} bytes")
    # Do not resolve entities, which could exhaust the memory or read local files.
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


def hyper_connections(root: Element) -> list[Element]:
    """Return the connections to `.hyper` files; the connection of an extract comes first."""
    parts = ("./extract//connection", "./connection//connection", "./connection")
    return [found for part in parts for found in root.iterfind(f"{part}[@class='hyper']")]


def attributes_of(element: Element | None) -> dict[str, str]:
    """Return the attributes of an element; {} if the element is None."""
    return {} if element is None else {str(key): str(text) for key, text in element.attrib.items()}


def tag_of(element: Element) -> str:
    """Return the tag of an element without the prefixes of features; "" for a comment."""
    return _without_prefixes(element.tag)[0] if isinstance(element.tag, str) else ""


def is_for_old_products(element: Element) -> bool:
    """Whether an element is only for older products."""
    return isinstance(element.tag, str) and _without_prefixes(element.tag)[1]


def _without_prefixes(name: str) -> tuple[str, bool]:
    """Return a name without prefixes of features, and whether the name is for older products."""
    match = _FEATURES.match(name) if name.startswith("_") else None
    return (name[match.end() :], ".false..." in match[0]) if match else (name, False)


def resolve(root: Element) -> None:
    """Remove parts that are only for older products, and the prefixes of all other parts."""
    for element in [*root.iter()]:
        if is_for_old_products(element) and (parent := element.getparent()) is not None:
            parent.remove(element)
            continue
        element.tag = tag_of(element)
        for key, value in attributes_of(element).items():
            name, is_old = _without_prefixes(key)
            if name != key:
                del element.attrib[key]
                if not is_old:
                    element.set(name, value)


def visible_name(element: Element) -> str:
    """Return the visible name of a field, folder or hierarchy."""
    return element.get("caption") or unbracketed(element.get("name", ""))


def texts_of(record: Element) -> dict[str, str]:
    """Return the texts in a column's record; the keys are tags."""
    return {tag_of(child): child.text or "" for child in record if not is_for_old_products(child)}


def local_name(calculation: str) -> str:
    """Return the name that a declared calculation has in the `.tds`."""
    digest = hashlib.sha256(calculation.encode()).digest()
    # Use the form of the names that Tableau gives to calculations.
    return f"[Calculation_{int.from_bytes(digest[:8]) % 10**18:018}]"


def set_type(column: Element, datatype: str, role: str | None = None) -> None:
    """Set the type and role of a `<column>`; if `role` is None, change only a default role."""
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
    """A column of a published table; `local` is the name in formulas and elements of the `.tds`."""

    table: str
    column: str
    local: str
    type: str


class Document:
    """The parts of a `.tds` by name.

    Attributes:
        part: the element whose list of columns is used: "extract" if it has such a list;
            otherwise "connection".
        records: the columns in the list of `part`.
        locals: the local names of columns; the keys are pairs (table, column).
        columns: the elements of fields; the keys are local names.
        items: the elements that put fields into folders, in the old form and the new form; the keys
            are local names.
        paths: the elements that put hierarchies into folders; the keys are names of hierarchies.
        names: the names of columns in declarations; the keys are local names.
    """

    def __init__(self, root: Element) -> None:
        self.root = root
        # Prefer the columns of an extract to the columns of the database behind the extract.
        records = {part: [*_records(root, part)] for part in ("extract", "connection")}
        self.part = "extract" if records["extract"] else "connection"
        self.records = records[self.part]
        self.locals = {(record.table, record.column): record.local for record in self.records}
        self.columns: dict[str, Element] = {}
        self.items: dict[str, list[Element]] = defaultdict(list)
        self.paths: dict[str, list[Element]] = defaultdict(list)
        for child in root:
            kind, name = tag_of(child), child.get("name", "")
            if (
                kind == "column"
                and not is_for_old_products(child)
                and not name.startswith(TABLE_COLUMN)
            ):
                self.columns[name] = child
            for item in child.iter() if kind in ("folder", "folders-common") else ():
                if tag_of(item) == "folder-item":
                    is_path = item.get("type") == "drillpath"
                    items = self.paths if is_path else self.items
                    items[item.get("name", "")].append(item)
        single = len({record.table for record in self.records}) == 1
        self.names: dict[str, str] = {}
        for path, local in self.locals.items():
            self.names[local] = field_name(("field", *path), single=single)

    @property
    def hierarchies(self) -> Mapping[str, Element]:
        """The elements of hierarchies; the keys are names of hierarchies."""
        paths = self.root.iterfind("./drill-paths/drill-path")
        return {path.get("name", ""): path for path in paths}

    def above(self, local: str) -> list[str]:
        """Return the names of the hierarchies that contain a field."""
        return [
            name
            for name, path in self.hierarchies.items()
            if local in (field.text for field in path.iterfind("field"))
        ]

    def folder(self, local: str) -> str:
        """Return the folder that shows a field; "" if no folder shows the field.

        The folder of a hierarchy also shows the fields of the hierarchy, which then have no items
        of their own.
        """
        paths = [self.paths.get(name, ()) for name in self.above(local)]
        return next(filter(None, map(folder_of, [self.items.get(local, ()), *paths])), "")

    @property
    def groups(self) -> Mapping[str, Element]:
        """The elements of groups and sets that users made; the keys are local names."""
        groups = (
            child
            for child in self.root
            if tag_of(child) == "group" and not is_for_old_products(child)
        )
        return {group.get("name", ""): group for group in groups if not is_automatic(group)}

    def shown(self) -> Mapping[str, str]:
        """Return the visible names of all fields; the keys are local names."""
        names = {record.local: unbracketed(record.local) for record in self.records}
        for local, element in chain(self.groups.items(), self.columns.items()):
            # Leave out elements of removed columns, which may remain in the document.
            if (
                local in names
                or tag_of(element) == "group"
                or element.find("calculation") is not None
            ):
                names[local] = visible_name(element)
        return names

    def add(self, local: str, datatype: str) -> Element:
        """Add the element of a field that has no element yet."""
        column = etree.Element("column", {"name": local})
        set_type(column, datatype)
        insert(self.root, column)
        self.columns[local] = column
        return column

    def drop(self, gone: Collection[str]) -> None:
        """Remove fields from the document, its folders and its hierarchies.

        Also remove folders and hierarchies that become empty, and elements that products derived
        from the fields.
        """
        paths = self.hierarchies.values()
        doomed = [
            member for path in paths for member in path.iterfind("field") if member.text in gone
        ]
        doomed += [item for local in gone for item in self.items.pop(local, ())]
        for element in doomed:
            self.take_out(element)
        for child in [*self.root]:
            names = {"column": child.get("name"), "column-instance": child.get("column")}
            is_derived = is_automatic(child) and any(names_field(child, local) for local in gone)
            if is_derived or names.get(tag_of(child)) in gone:
                self.root.remove(child)
        self.columns = {
            local: column for local, column in self.columns.items() if local not in gone
        }

    def take_out(self, item: Element) -> None:
        """Remove an element, and each ancestor that becomes empty."""
        while item is not self.root and (parent := item.getparent()) is not None:
            parent.remove(item)
            if tag_of(item) == "drill-path":
                for entry in self.paths.pop(item.get("name", ""), ()):
                    self.take_out(entry)
            if len(parent):
                return
            item = parent


def folder_of(items: Iterable[Element]) -> str:
    """Return the folder of the first item for current products; "" without such an item."""
    visible = (item for item in items if not any(map(is_for_old_products, item.iterancestors())))
    return next((attributes_of(item.getparent()).get("name", "") for item in visible), "")


def _records(root: Element, part: str) -> Iterator[MetadataRecord]:
    tables = _tables(root, part)
    for record in root.iterfind(f"./{part}//metadata-record[@class='column']"):
        texts = texts_of(record)
        if column := texts.get("remote-name"):
            parent, local = unbracketed(texts.get("parent-name", "")), texts.get("local-name")
            table = tables.get(parent, parent)
            yield MetadataRecord(
                table, column, local or bracketed(column), texts.get("local-type", "")
            )


def _tables(root: Element, part: str) -> Mapping[str, str]:
    """Return the tables of a file; the keys are names of relations, such as "T (Extract.T)".

    Tables with several relations are left out: it is unclear which relation a column belongs to.
    """
    tables = {}
    for relation in root.iterfind(f"./{part}//*[@table]"):
        parts = BRACKETS.findall(relation.get("table", ""))
        if tag_of(relation) == "relation" and len(parts) == 2:
            tables[relation.get("name", "")] = unbracketed(parts[1])
    count = Counter(tables.values())
    return {name: table for name, table in tables.items() if count[table] == 1}


# A field, perhaps after the name of its data source.
_NAMED = re.compile(rf"(?:{BRACKETS.pattern}\.)?({BRACKETS.pattern})")
# The name of a column instance in views and filters, such as "sum:Sales:qk": an aggregation, the
# name of the column, a kind, perhaps a number.
_INSTANCE = re.compile(r"\w+:(.*?):\w+(?::\d+)?", re.DOTALL)


def names_field(element: Element, local: str) -> bool:
    """Whether an element or a descendant names a field in an attribute that is no formula."""
    return local in fields_named(element)


def fields_named(element: Element) -> Iterator[str]:
    """Yield the bracketed names in all attributes except formulas.

    For a column instance such as [sum:Sales:qk], also yield its column, [Sales].
    """
    for descendant in element.iter():
        for key, value in attributes_of(descendant).items():
            for name in _NAMED.findall(value) if key != "formula" else ():
                yield name
                if instance := _INSTANCE.fullmatch(unbracketed(name)):
                    yield bracketed(instance[1])


def insert(root: Element, new: Element) -> None:
    """Insert an element into a data source, in the order of Tableau's schema."""
    rank = _RANKS[tag_of(new)]
    position = len(root)
    for sibling in reversed(root):
        if _RANKS.get(tag_of(sibling), rank + 1) <= rank:
            break
        position -= 1
    insert_at(root, position, new)


def insert_at(parent: Element, position: int, new: Element) -> None:
    """Insert an element with the indentation of its neighbours."""
    parent.insert(position, new)
    if position == 0:
        new.tail = parent.text
    else:
        before = parent[position - 1]
        new.tail = before.tail
        if new is parent[-1]:
            before.tail = parent.text


# The attribute that marks the field "Number of Records" of old products, and the hidden groups of
# dashboard actions.
_AUTOMATIC = f"{{{USER}}}auto-column"
# The kinds of users' edits of a column; the keys are the attributes or elements with the edits.
_BY_ATTRIBUTE = {"caption": "captions", "default-format": "formats", "hidden": "hidden fields"}
_BY_ELEMENT = {"aliases": "aliases", "desc": "descriptions"}


def edit_kinds(column: Element) -> list[str]:
    """Return the kinds of users' edits of a column."""
    if column.find("calculation") is not None and _AUTOMATIC not in column.attrib:
        return ["calculated fields"]
    kinds = [kind for name, kind in _BY_ATTRIBUTE.items() if column.get(name)]
    return kinds + [kind for name, kind in _BY_ELEMENT.items() if column.find(name) is not None]


def is_automatic(element: Element) -> bool:
    """Whether a product made a group or column by itself; a column must also have no edits."""
    is_column = tag_of(element) == "column"
    return _AUTOMATIC in element.attrib and not (is_column and edit_kinds(element))
