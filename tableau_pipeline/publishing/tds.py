"""Read a `.tds`: the work of people in a data source, and its columns.

Servers and products write much into it by themselves, and differently each time. Everything else
counts as the work of people, so that no kind of work is overlooked because it is unknown here.
"""

import hashlib
import re
from collections import defaultdict
from collections.abc import Collection, Iterator
from io import BytesIO
from pathlib import Path
from xml.etree import ElementTree
from xml.etree.ElementTree import Element, ParseError
from zipfile import is_zipfile

import defusedxml.ElementTree
from defusedxml.common import DefusedXmlException

from tableau_pipeline.core.package import unpack
from tableau_pipeline.core.server import Metadata

# Bytes, as a download and unpacked. One of a thousand columns has less than two million.
LARGEST = 16 * 10**6
# Elements about the origin of the data, their transfer, the published location and permissions.
_NOT_BY_PEOPLE = frozenset(
    {"connection", "document-format-change-manifest", "extract", "repository-location"}
)
# All other attributes of the data source itself describe the product that wrote it.
_BY_PEOPLE = frozenset({"caption"})
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


def read_metadata(file: Path) -> Metadata:
    """Read a downloaded data source: a bare `.tds`, or a package with one in it.

    Raises:
        ValueError: it is neither; the message states why.
        RefreshError: it is too large.
    """
    try:
        # Other people wrote this file, and entities in a DTD could exhaust the memory.
        root = defusedxml.ElementTree.fromstring(_tds(file), forbid_dtd=True)
    except (DefusedXmlException, LookupError, ParseError, ValueError) as error:
        raise ValueError(f"it is not a .tds: {error}") from error
    if root.tag != "datasource":
        raise ValueError(f'it begins with "{root.tag[:100]}" instead of "datasource"')
    columns = frozenset(_columns(root))
    try:
        digest = _digest(root, columns)
    except RecursionError as error:
        raise ValueError("its elements are nested too deeply") from error
    return Metadata(digest, columns=columns or None, work=_work(root))


def _tds(file: Path) -> bytes:
    if not is_zipfile(file):
        return file.read_bytes()
    content = BytesIO()
    unpack(file, ".tds", content, limit=LARGEST)
    return content.getvalue()


def _digest(root: Element, columns: Collection[tuple[str, str]]) -> str:
    """The digest of people's work and of the columns, which that work may name."""
    captions = _captions(root)
    kept = Element("datasource", _named_by_people(root.attrib))
    kept.extend(
        _cleaned(child, captions) for child in root if _plain(child.tag) not in _NOT_BY_PEOPLE
    )
    for column in kept.findall("column"):
        if column.get("name", "").startswith(_TABLE_COLUMN):
            kept.remove(column)
    # Sorts attributes, so the same content always gives the same text.
    text = ElementTree.canonicalize(ElementTree.tostring(kept), strip_text=True)
    return hashlib.sha256(f"{text}{sorted(columns)}".encode()).hexdigest()[:16]


def _work(root: Element) -> dict[str, tuple[str, ...]]:
    """The names of people's work, by kind, as far as it has names; the digest covers all of it."""
    found: dict[str, list[str]] = defaultdict(list)
    for column in root.findall("column"):
        if column.get("name", "").startswith(_TABLE_COLUMN):
            continue
        if column.find("calculation") is not None:
            found["calculated fields"].append(_shown(column))
            continue
        kinds = [kind for name, kind in _BY_ATTRIBUTE.items() if column.get(name)]
        kinds += [kind for name, kind in _BY_ELEMENT.items() if column.find(name) is not None]
        for kind in kinds:
            found[kind].append(_shown(column))
    for path, kind in _NAMED.items():
        found[kind] += [_shown(each) for each in root.iterfind(path)]
    return {kind: tuple(names) for kind, names in found.items() if names}


def _shown(element: Element) -> str:
    name = element.get("name", "")
    return element.get("caption") or name.removeprefix("[").removesuffix("]").replace("]]", "]")


def _cleaned(element: Element, captions: dict[str, str]) -> Element:
    """Return a copy without table ids and without information about the tables' origin.

    Args:
        captions: the captions of the tables in the object graph, by id.
    """
    name = _plain(element.tag)
    attributes = {_plain(key): value for key, value in element.items()}
    if name == "object":
        # In the object graph, only a table's caption matters; the rest is its id and its
        # connection.
        return Element(name, _named_by_people(attributes))
    if table := attributes.pop("object-id", None):
        attributes["object-id"] = captions.get(table, "")
    cleaned = Element(name, attributes)
    cleaned.text, cleaned.tail = element.text, element.tail
    cleaned.extend(_cleaned(child, captions) for child in element)
    return cleaned


def _named_by_people(attributes: dict[str, str]) -> dict[str, str]:
    return {key: value for key, value in attributes.items() if key in _BY_PEOPLE}


def _captions(root: Element) -> dict[str, str]:
    tables = [element for element in root.iter() if _plain(element.tag) == "object"]
    return {table.get("id", ""): table.get("caption", "") for table in tables}


def _columns(root: Element) -> Iterator[tuple[str, str]]:
    """Yield pairs (table, column) of the connection; those of the extract only if it has none."""
    for path in ("connection", "extract"):
        found = False
        for record in root.iterfind(f"./{path}//metadata-record[@class='column']"):
            texts = {_plain(child.tag): child.text or "" for child in record}
            if column := texts.get("remote-name"):
                found = True
                yield _unquoted(texts.get("parent-name", "")), column
        if found:
            return


def _unquoted(name: str) -> str:
    """Return the table in a name such as `[Extract].[Sales]`."""
    last = name.split("].[")[-1]
    return last.removeprefix("[").removesuffix("]").replace("]]", "]")


def _plain(name: str) -> str:
    return _FEATURE.sub("", name)
