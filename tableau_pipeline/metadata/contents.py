"""Read a `.tds` from a server: users' edits, their digest, and the filters that limit rows."""

import hashlib
from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from lxml import etree
from lxml.etree import _Element as Element

from tableau_pipeline.metadata.document import (
    TABLE_COLUMN,
    Document,
    attributes_of,
    edit_kinds,
    hyper_connections,
    is_automatic,
    parsed,
    resolve,
    visible_name,
)
from tableau_pipeline.metadata.row_security import row_filters

# The most names of each kind that a message lists.
_LISTED = 30
# Elements that users do not edit: they describe the origin and transfer of the data, the published
# location, and permissions.
_NOT_BY_USERS = frozenset(
    {"connection", "document-format-change-manifest", "extract", "repository-location"}
)
# Attributes that Tableau's products set even if no user makes an edit.
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
# The kinds of users' edits of named elements other than columns; each key is the tag of the
# element's parent, and the tag of the element.
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
    """The content of the `.tds` of a data source.

    Attributes:
        digest: a text that changes when a user edits calculated fields, captions or folders. Equal
            metadata have equal digests, even if the `.tds` is written or packed in another way.
        columns: pairs (table, column) of the published file; None if the `.tds` lists no columns.
        work: the names of all objects that users made or edited in the data source; the keys are
            kinds, such as "calculated fields".
        tds: the bytes of the file; b"" if unknown.
        source: the class of the connection to a database other than Hyper, such as "postgres"; None
            if all data are in Hyper.
        has_file: whether the data source connects to a `.hyper` file.
        filters: the filters that decide which rows a user sees; see `row_filters`. {} if `tds` is
            unknown.
    """

    digest: str
    columns: frozenset[tuple[str, str]] | None
    work: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    tds: bytes = field(default=b"", repr=False, compare=False)
    source: str | None = None
    has_file: bool = True
    filters: Mapping[str, str] = field(default_factory=dict)


def read_metadata(tds: bytes) -> Metadata:
    """Read a `.tds`.

    Raises:
        ValueError: the content is not a `.tds`; the message states why.
    """
    root = parsed(tds, comments=False)
    resolve(root)
    document = Document(root)
    columns, source = frozenset(document.locals), _source(root)
    work, filters = _work(document), row_filters(document)
    has_file = bool(hyper_connections(root))
    # Compute the digest last, because `_digest` removes parts of the document.
    digest = _digest(document, columns)
    return Metadata(digest, columns or None, work, tds, source, has_file, filters)


def _work(document: Document) -> dict[str, tuple[str, ...]]:
    """Return the names of users' edits; the keys are kinds of edits. Leave out unnamed edits."""
    work: dict[str, list[str]] = defaultdict(list)
    for column in document.columns.values():
        for kind in edit_kinds(column):
            work[kind].append(visible_name(column))
    for element in document.root.iterdescendants():
        parent = element.getparent()
        kind = None if parent is None else _NAMED.get((parent.tag, element.tag))
        if kind and not is_automatic(element):
            work[kind].append(visible_name(element))
    return {kind: tuple(names) for kind, names in work.items()}


def _digest(document: Document, columns: Collection[tuple[str, str]]) -> str:
    """Return a digest of users' edits and of the columns.

    The digest includes the columns, because edits may refer to columns. This function removes all
    other parts from the document, such as ids of tables and the origin of data.
    """
    root = document.root
    objects = [*root.iter("object")]
    captions = {obj.get("id", ""): obj.get("caption", "") for obj in objects}
    for child in [*root]:
        is_table = child.tag == "column" and child.get("name", "").startswith(TABLE_COLUMN)
        if is_table or child.tag in _NOT_BY_USERS or is_automatic(child):
            root.remove(child)
    for element in root.iter():
        attributes = attributes_of(element)
        if element is root or element in objects:
            # Keep only the caption: the other attributes describe a connection, or the product that
            # wrote the file.
            attributes = {key: value for key, value in attributes.items() if key == "caption"}
        if table := attributes.get("object-id"):
            attributes["object-id"] = captions.get(table, "")
        element.attrib.clear()
        element.attrib.update(
            {key: value for key, value in attributes.items() if key not in _BY_PRODUCTS}
        )
    for obj in objects:
        obj[:] = []
    # Use canonical XML, which sorts attributes, so that equal content gives equal text.
    text = etree.canonicalize(root, strip_text=True)
    return hashlib.sha256(f"{text}{sorted(columns)}".encode()).hexdigest()[:16]


def _source(root: Element) -> str | None:
    classes = (connection.get("class") for connection in root.iterfind("connection//connection"))
    names = (*classes, *(connection.get("class") for connection in root.iterfind("connection")))
    return next((name for name in names if name not in (None, "federated", "hyper")), None)


def edits_phrase(metadata: Metadata | None) -> str:
    """Return a phrase for users' edits of a data source, with the names of the edits if known."""
    if metadata is None or not metadata.work:
        return "any calculated fields, captions, folders and formats that people made in it"
    phrases = []
    for kind, names in metadata.work.items():
        listed, more = ", ".join(f'"{name}"' for name in names[:_LISTED]), len(names) - _LISTED
        phrases.append(f"{kind} {listed}" + (f" and {more} more" if more > 0 else ""))
    return "; ".join(phrases)
