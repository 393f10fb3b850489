"""What people made in a `.tds`: its names, and a digest that shows whether any of it changed."""

import hashlib
import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field

from lxml import etree

from tableau_pipeline.metadata.formulas import unquoted

# Bytes, as a download and unpacked. One of a thousand columns has less than two million.
LARGEST = 16 * 10**6
# Elements about the origin of the data, their transfer, the published location and permissions.
_NOT_BY_PEOPLE = frozenset(
    {"connection", "document-format-change-manifest", "extract", "repository-location"}
)
# All other attributes of the data source itself describe the product that wrote it.
_BY_PEOPLE = frozenset({"caption"})
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
# What a column may have besides its own name, and what people call that: by attribute, by element.
_BY_ATTRIBUTE = {"caption": "captions", "default-format": "formats", "hidden": "hidden fields"}
_BY_ELEMENT = {"aliases": "aliases", "desc": "descriptions"}
# Other work that has a name, by the path of its element.
_NAMED = {
    "group": "groups and sets",
    "folder": "folders",
    "folders-common/folder": "folders",
    "drill-paths/drill-path": "hierarchies",
    "datasource-dependencies/column": "parameters",
}
# Products use such a prefix until a release officially supports an element or attribute.
_FEATURE = re.compile(r"^_\.fcp\.\w+\.(true|false)\.\.\.")
# The column that represents a whole table has the table's id, which changes each time.
_TABLE_COLUMN = "[__tableau_internal_object_id__]"


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
    columns = frozenset(_columns(root))
    found = _digest(root, columns), columns or None, _work(root)
    return Metadata(*found, tds, _source(root))


def parsed(tds: bytes, *, comments: bool = True) -> etree._Element:
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


def attributes_of(element: etree._Element) -> dict[str, str]:
    """Return the attributes by their names."""
    return {str(key): str(value) for key, value in element.attrib.items()}


def plain(element: etree._Element) -> str:
    """Return the tag without a prefix of a feature; "" for a comment."""
    tag = element.tag if isinstance(element.tag, str) else ""
    return _FEATURE.sub("", tag) if tag.startswith("_") else tag


def _digest(root: etree._Element, columns: Collection[tuple[str, str]]) -> str:
    """The digest of people's work and of the columns, which that work may name."""
    captions = _captions(root)
    kept = etree.Element("datasource", _named_by_people(attributes_of(root)))
    kept.extend(_cleaned(child, captions) for child in root if plain(child) not in _NOT_BY_PEOPLE)
    for column in kept.findall("column"):
        if column.get("name", "").startswith(_TABLE_COLUMN):
            kept.remove(column)
    # Sorts attributes, so the same content always gives the same text.
    text = etree.canonicalize(kept, strip_text=True)
    return hashlib.sha256(f"{text}{sorted(columns)}".encode()).hexdigest()[:16]


def _work(root: etree._Element) -> dict[str, tuple[str, ...]]:
    """The names of people's work, by kind, as far as it has names; the digest covers all of it."""
    found: dict[str, list[str]] = defaultdict(list)
    for column in root.findall("column"):
        if column.get("name", "").startswith(_TABLE_COLUMN):
            continue
        if column.find("calculation") is not None:
            found["calculated fields"].append(label(column))
            continue
        kinds = [kind for name, kind in _BY_ATTRIBUTE.items() if column.get(name)]
        kinds += [kind for name, kind in _BY_ELEMENT.items() if column.find(name) is not None]
        for kind in kinds:
            found[kind].append(label(column))
    for path, kind in _NAMED.items():
        found[kind] += [label(each) for each in _at(root, path)]
    return {kind: tuple(names) for kind, names in found.items() if names}


def _at(element: etree._Element, path: str) -> Iterator[etree._Element]:
    head, _, rest = path.partition("/")
    for child in element:
        if plain(child) == head:
            yield from _at(child, rest) if rest else (child,)


def label(element: etree._Element) -> str:
    """Return the name of a field, folder or hierarchy that people see."""
    name = element.get("name", "")
    return element.get("caption") or name.removeprefix("[").removesuffix("]").replace("]]", "]")


def _cleaned(element: etree._Element, captions: dict[str, str]) -> etree._Element:
    """Return a copy without table ids and without information about the tables' origin.

    Args:
        captions: the captions of the tables in the object graph, by id.
    """
    name = plain(element)
    plain_names = {_FEATURE.sub("", key): value for key, value in attributes_of(element).items()}
    attributes = {key: plain_names[key] for key in plain_names.keys() - _BY_PRODUCTS}
    if name == "object":
        # In the object graph, only a table's caption matters; the rest is its id and its
        # connection.
        return etree.Element(name, _named_by_people(attributes))
    if table := attributes.pop("object-id", None):
        attributes["object-id"] = captions.get(table, "")
    cleaned = etree.Element(name, attributes)
    cleaned.text, cleaned.tail = element.text, element.tail
    cleaned.extend(_cleaned(child, captions) for child in element)
    return cleaned


def _named_by_people(attributes: dict[str, str]) -> dict[str, str]:
    return {key: value for key, value in attributes.items() if key in _BY_PEOPLE}


def _captions(root: etree._Element) -> dict[str, str]:
    tables = [element for element in root.iter() if plain(element) == "object"]
    return {table.get("id", ""): table.get("caption", "") for table in tables}


def _source(root: etree._Element) -> str | None:
    classes = (each.get("class") for each in root.iterfind("connection//connection"))
    found = (*classes, *(each.get("class") for each in root.iterfind("connection")))
    return next((each for each in found if each not in (None, "federated", "hyper")), None)


def _columns(root: etree._Element) -> Iterator[tuple[str, str]]:
    """Yield pairs (table, column) of the extract; those of the connection only if it has none."""
    return ((table, column) for table, column, _ in records(root))


def records(root: etree._Element) -> list[tuple[str, str, dict[str, str]]]:
    """Return (table, column, texts by tag) of the extract; of the connection if it has none."""
    for path in ("extract", "connection"):
        found = []
        for record in root.iterfind(f"./{path}//metadata-record[@class='column']"):
            texts = {plain(child): child.text or "" for child in record}
            if column := texts.get("remote-name"):
                found.append((unquoted(texts.get("parent-name", "")), column, texts))
        if found:
            return found
    return []
