"""What people made in a `.tds`: its names, and a digest that shows whether any of it changed."""

import hashlib
from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from lxml import etree
from lxml.etree import _Element as Element

from tableau_pipeline.metadata.document import (
    FEATURE,
    TABLE_COLUMN,
    Document,
    attributes_of,
    label,
    parsed,
    plain,
)

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
    document = Document(parsed(tds, comments=False))
    columns, source = frozenset(document.locals), _source(document.root)
    work = _work(document)
    return Metadata(_digest(document, columns), columns or None, work, tds, source)


def _work(document: Document) -> dict[str, tuple[str, ...]]:
    """The names of people's work, by kind, as far as it has names; the digest covers all of it."""
    found: dict[str, list[str]] = defaultdict(list)
    for column in document.columns.values():
        kinds = [kind for name, kind in _BY_ATTRIBUTE.items() if column.get(name)]
        kinds += [kind for name, kind in _BY_ELEMENT.items() if column.find(name) is not None]
        if column.find("calculation") is not None:
            kinds = ["calculated fields"]
        for kind in kinds:
            found[kind].append(label(column))
    for each in document.root.iterdescendants():
        around = each.getparent()
        if around is not None and (kind := _NAMED.get((plain(around), plain(each)))):
            found[kind].append(label(each))
    return {kind: tuple(names) for kind, names in found.items()}


def _digest(document: Document, columns: Collection[tuple[str, str]]) -> str:
    """The digest of people's work and of the columns, which that work may name.

    All else is taken out of the document: ids of tables, and where their data come from.
    """
    root = document.root
    objects = [each for each in root.iter() if plain(each) == "object"]
    captions = {each.get("id", ""): each.get("caption", "") for each in objects}
    for each in [*root]:
        is_table = plain(each) == "column" and each.get("name", "").startswith(TABLE_COLUMN)
        if is_table or plain(each) in _NOT_BY_PEOPLE:
            root.remove(each)
    for each in [*root.iter()]:
        kept = {FEATURE.sub("", key): value for key, value in attributes_of(each).items()}
        if each is root or each in objects:
            # Its other attributes describe the product that wrote it, or a connection.
            kept = {key: value for key, value in kept.items() if key == "caption"}
        if table := kept.get("object-id"):
            kept["object-id"] = captions.get(table, "")
        each.tag = plain(each)
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
