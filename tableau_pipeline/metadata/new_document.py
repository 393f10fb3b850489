"""Write a `.tds` for a `.hyper` file, as if a user had opened the file in Tableau Desktop.

A server derives a `.tds` from a bare `.hyper` file, but some servers accept several tables only in
a package with a `.tds`. Tableau's own `generate_tds.py` writes the same minimal content:
https://github.com/tableau/tableau-plugin.
"""

import hashlib
from collections.abc import Mapping, Sequence
from itertools import chain, count

from lxml import etree
from lxml.etree import _Element as Element

from tableau_pipeline.hyper.relationships import Relationship
from tableau_pipeline.hyper.types import EXTRACT_SCHEMA
from tableau_pipeline.metadata.columns import TypesByTable, new_record
from tableau_pipeline.metadata.document import TABLE_COLUMN, USER, bracketed

# The features of the document that some older products do not support.
_FEATURES = ("ObjectModelEncapsulateLegacy", "ObjectModelTableType", "SchemaViewerObjectModel")

# The names of the columns in the document; the keys are pairs (table, column).
_Locals = Mapping[tuple[str, str], str]


def new_tds(
    tables: TypesByTable,
    relationships: Sequence[Relationship],
    *,
    extract_path: str = "Data/Extracts/Extract.hyper",
) -> bytes:
    """Return a `.tds`, which `tds.pack` can pack with the `.hyper` file into a data source.

    Fields have Tableau's defaults and the names of their columns. A field gets the name of its
    table appended if an earlier table has a field of the same name, so the order of tables matters.
    Equal input gives equal bytes.

    Args:
        tables: all tables in the schema "Extract"; the keys are table names in the file.
        relationships: the relationships between tables, under the names in `tables`. There must be
            one relationship fewer than tables.
        extract_path: the path of the file in the package.

    Raises:
        ValueError: a name has a character that XML cannot hold.
    """
    connection, local = f"hyper.{_digest(extract_path)[:28]}", _local_names(tables)
    name = f"federated.{_digest(extract_path)[:28]}"
    root = etree.Element(
        "datasource", {"formatted-name": name, "inline": "true", "version": "18.1"}, {"user": USER}
    )
    manifest = etree.SubElement(root, "document-format-change-manifest")
    for feature in _FEATURES:
        etree.SubElement(manifest, feature)
    around = etree.SubElement(root, "connection", {"class": "federated"})
    _add_connection(around, connection, extract_path)
    several = len(tables) > 1
    parent = etree.SubElement(around, "relation", {"type": "collection"}) if several else around
    for table in tables:
        _add_relation(parent, table, connection)
    _add_columns(around, tables, local)
    etree.SubElement(root, "aliases", {"enabled": "yes"})
    for table in tables:
        _add_table_column(root, table)
    shown = {"dim-ordering": "alphabetic", "measure-ordering": "alphabetic"}
    etree.SubElement(root, "layout", {**shown, "show-structure": "true"})
    _add_graph(root, tables, relationships, connection=connection, local=local)
    etree.indent(root)
    return etree.tostring(root.getroottree(), xml_declaration=True, encoding="utf-8")


def _add_connection(around: Element, name: str, path: str) -> None:
    caption = path.rpartition("/")[2].removesuffix(".hyper")
    named = etree.SubElement(around, "named-connections")
    named = etree.SubElement(named, "named-connection", {"caption": caption, "name": name})
    attributes = {
        "authentication": "auth-none",
        "author-locale": "en_US",
        "class": "hyper",
        "dbname": path,
        "default-settings": "yes",
        "schema": EXTRACT_SCHEMA,
        "tablename": EXTRACT_SCHEMA,
    }
    etree.SubElement(named, "connection", attributes)


def _add_relation(around: Element, table: str, connection: str) -> None:
    place = f"{bracketed(EXTRACT_SCHEMA)}.{bracketed(table)}"
    attributes = {"connection": connection, "name": table, "table": place, "type": "table"}
    etree.SubElement(around, "relation", attributes)


def _add_columns(around: Element, tables: TypesByTable, local: _Locals) -> None:
    """Add two entries for each column: its location and its record."""
    places = {local[key]: ".".join(map(bracketed, key)) for key in local}
    columns = etree.SubElement(around, "cols")
    for name in sorted(places):
        etree.SubElement(columns, "map", {"key": name, "value": places[name]})
    records = etree.SubElement(around, "metadata-records")
    listed = [(table, *column) for table, columns in tables.items() for column in columns]
    for ordinal, (table, name, type_) in enumerate(listed):
        texts = {
            "remote-name": name,
            "local-name": local[table, name],
            "parent-name": bracketed(table),
            "remote-alias": name,
            "ordinal": str(ordinal),
            "object-id": bracketed(object_id(table)),
        }
        records.append(new_record(texts, type_))


def _add_table_column(root: Element, table: str) -> None:
    """Add the field that represents a table; its aggregation counts the rows of the table."""
    attributes = {
        "caption": table,
        "datatype": "table",
        "name": f"{TABLE_COLUMN}.{bracketed(object_id(table))}",
        "role": "measure",
        "type": "quantitative",
    }
    etree.SubElement(root, "column", attributes)


def _add_graph(
    root: Element,
    tables: TypesByTable,
    relationships: Sequence[Relationship],
    *,
    connection: str,
    local: _Locals,
) -> None:
    graph = etree.SubElement(root, "object-graph")
    objects = etree.SubElement(graph, "objects")
    for table in tables:
        element = etree.SubElement(objects, "object", {"caption": table, "id": object_id(table)})
        _add_relation(etree.SubElement(element, "properties", {"context": ""}), table, connection)
    if not relationships:
        return
    edges = etree.SubElement(graph, "relationships")
    for edge in relationships:
        operands = relationship = etree.SubElement(edges, "relationship")
        if len(edge.on) > 1:
            operands = etree.SubElement(relationship, "expression", {"op": "AND"})
        for many, one in edge.on:
            equal = etree.SubElement(operands, "expression", {"op": "="})
            for side in (local[edge.many, many], local[edge.one, one]):
                etree.SubElement(equal, "expression", {"op": side})
        for end, table in (("first", edge.many), ("second", edge.one)):
            etree.SubElement(relationship, f"{end}-end-point", {"object-id": object_id(table)})


def _local_names(tables: TypesByTable) -> _Locals:
    """Return a unique name for each column; names that differ only in case count as equal."""
    names: dict[tuple[str, str], str] = {}
    used: set[str] = set()
    for table, columns in tables.items():
        for column, _ in columns:
            numbered = (f"{column} ({table}) {number}" for number in count(1))
            candidates = chain([column, f"{column} ({table})"], numbered)
            name = next(candidate for candidate in candidates if candidate.casefold() not in used)
            used.add(name.casefold())
            names[table, column] = bracketed(name)
    return names


def object_id(table: str) -> str:
    """Return the id of a table, in the form that Tableau Desktop uses."""
    place = f"{EXTRACT_SCHEMA}.{table}"
    return f"{table} ({place})_{_digest(place)[:32].upper()}"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
