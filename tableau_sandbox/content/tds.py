"""Write the `.tds` for a bare `.hyper` file, and inspect the `.tds` of an upload."""

import hashlib
import itertools
from collections.abc import Collection
from dataclasses import dataclass
from xml.etree import ElementTree
from xml.etree.ElementTree import Element, ParseError, SubElement

import defusedxml.ElementTree
from defusedxml.common import DefusedXmlException

from tableau_sandbox.content.hyper_file import Column, HyperContent, Table
from tableau_sandbox.content.package import NotPublishableError


@dataclass(frozen=True)
class TdsFacts:
    """Facts from a `.tds`: the class of the connection, and whether there is an extract."""

    connection_class: str
    has_extract: bool


def inspect_tds(tds: bytes) -> TdsFacts:
    """Parse an uploaded `.tds`, and return facts about it.

    Raises:
        NotPublishableError: the document is not a data source in XML, or names no connection.
    """
    try:
        root = defusedxml.ElementTree.fromstring(tds, forbid_dtd=True)
    except (ParseError, DefusedXmlException, ValueError, LookupError) as error:
        raise NotPublishableError(f"the .tds is not well-formed XML: {error}") from error
    if root.tag != "datasource":
        raise NotPublishableError(f"the .tds begins with '{root.tag}' instead of 'datasource'")
    connection = root.find("./connection/named-connections/named-connection/connection")
    # Only a federated connection contains named connections.
    if connection is None:
        connection = root.find("./connection")
    if connection is None or not connection.get("class"):
        raise NotPublishableError("the .tds names no connection")
    extract = root.find("./extract")
    has_extract = extract is not None and extract.get("enabled", "true") == "true"
    return TdsFacts(connection.attrib["class"], has_extract)


def write_tds(content: HyperContent, *, name: str, packaged_path: str, table_ids: str) -> bytes:
    """Return the `.tds` that a server writes for a published `.hyper` file.

    No such document of a server is public. So this document has the content that Tableau's other
    products write for `.hyper` files.

    Args:
        content: the content of the `.hyper` file.
        name: the name of the data source.
        packaged_path: the path of the `.hyper` file in the package.
        table_ids: a value of the option `table_ids`: the form of the ids of tables.
    """
    model = _Model(
        content, f"hyper.{_digest(packaged_path)[:28]}", _local_names(content), table_ids
    )
    root = Element(
        "datasource",
        {
            "formatted-name": f"federated.{_digest(name)[:28]}",
            "inline": "true",
            "source-platform": "linux",
            "version": "18.1",
            "xmlns:user": "http://www.tableausoftware.com/xml/user",
        },
    )
    manifest = SubElement(root, "document-format-change-manifest")
    for feature in _FEATURES:
        SubElement(manifest, feature)
    connection = SubElement(root, "connection", {"class": "federated"})
    _add_hyper_connection(connection, model, caption=name, packaged_path=packaged_path)
    _add_relations(connection, model)
    _add_column_map(connection, model)
    _add_metadata(connection, model)
    SubElement(root, "aliases", {"enabled": "yes"})
    for table in content.tables:
        SubElement(root, "column", _table_column(table, model))
    SubElement(root, "layout", _LAYOUT)
    values = SubElement(root, "semantic-values")
    SubElement(values, "semantic-value", _COUNTRY)
    _add_object_graph(root, model)
    ElementTree.indent(root)
    return b"<?xml version='1.0' encoding='utf-8' ?>\n" + ElementTree.tostring(root, "utf-8")


# The manifest lists these features of the document, because older products do not know them.
_FEATURES = ("ObjectModelEncapsulateLegacy", "ObjectModelTableType", "SchemaViewerObjectModel")
_LAYOUT = {"dim-ordering": "alphabetic", "measure-ordering": "alphabetic", "show-structure": "true"}
_COUNTRY = {"key": "[Country].[Name]", "value": '"United States"'}


@dataclass(frozen=True)
class _Model:
    """The input for writing a `.tds`.

    Attributes:
        content: the content of the `.hyper` file.
        connection: the name of the connection to the file.
        local_names: the names of fields in the data source, by (schema, table, column).
        table_ids: a value of the option `table_ids`: the form of the ids of tables.
    """

    content: HyperContent
    connection: str
    local_names: dict[tuple[str, str, str], str]
    table_ids: str

    def table_id(self, schema: str, table: str) -> str:
        """Return the id of a table, made from the schema and the name of the table."""
        place = f"{schema}.{table}"
        name = f"{table} ({place})" if self.table_ids == "desktop" else table
        return f"{name}_{_digest(place).upper()}"

    def relation(self, table: Table) -> dict[str, str]:
        """Return the attributes of the relation of a table."""
        return {
            "connection": self.connection,
            "name": table.name,
            "table": f"{_quoted(table.schema)}.{_quoted(table.name)}",
            "type": "table",
        }


def _add_hyper_connection(
    parent: Element, model: _Model, *, caption: str, packaged_path: str
) -> None:
    named = SubElement(
        SubElement(parent, "named-connections"),
        "named-connection",
        {"caption": caption, "name": model.connection},
    )
    first = model.content.tables[0]
    attributes = {
        "authentication": "auth-none",
        "author-locale": "en_US",
        "class": "hyper",
        "dbname": packaged_path,
        "default-settings": "yes",
        "schema": first.schema,
        "server": "",
        "sslmode": "",
        "tablename": first.name,
        "username": "tableau_internal_user",
    }
    SubElement(named, "connection", attributes)


def _add_relations(parent: Element, model: _Model) -> None:
    several = len(model.content.tables) > 1
    target = SubElement(parent, "relation", {"type": "collection"}) if several else parent
    for table in model.content.tables:
        SubElement(target, "relation", model.relation(table))


def _add_column_map(parent: Element, model: _Model) -> None:
    columns = SubElement(parent, "cols")
    for (_, table, column), key in sorted(model.local_names.items(), key=lambda item: item[1]):
        SubElement(columns, "map", {"key": key, "value": f"{_quoted(table)}.{_quoted(column)}"})


def _add_metadata(parent: Element, model: _Model) -> None:
    records = SubElement(parent, "metadata-records")
    columns = [(table, column) for table in model.content.tables for column in table.columns]
    for ordinal, (table, column) in enumerate(columns):
        record = SubElement(records, "metadata-record", {"class": "column"})
        for tag, text in _metadata(table, column, model, ordinal=ordinal).items():
            SubElement(record, tag).text = text
        if local_type(column.type) == _STRING:
            collation = Element("collation", {"flag": "0", "name": "binary"})
            record.insert(len(record) - 1, collation)


def _metadata(table: Table, column: Column, model: _Model, *, ordinal: int) -> dict[str, str]:
    kind = local_type(column.type)
    return {
        "remote-name": column.name,
        "remote-type": kind.remote_type,
        "local-name": model.local_names[table.schema, table.name, column.name],
        "parent-name": _quoted(table.name),
        "remote-alias": column.name,
        "ordinal": str(ordinal),
        "local-type": kind.name,
        "aggregation": kind.aggregation,
        # Products estimate the number of distinct values. The number of rows is an upper limit.
        "approx-count": str(table.row_count),
        "contains-null": str(column.nullable).lower(),
        "object-id": _quoted(model.table_id(table.schema, table.name)),
    }


def _table_column(table: Table, model: _Model) -> dict[str, str]:
    """Return the column that represents a whole table; its aggregation is the number of rows."""
    identifier = model.table_id(table.schema, table.name)
    return {
        "caption": table.name,
        "datatype": "table",
        "name": f"[__tableau_internal_object_id__].{_quoted(identifier)}",
        "role": "measure",
        "type": "quantitative",
    }


def _add_object_graph(root: Element, model: _Model) -> None:
    graph = SubElement(root, "object-graph")
    objects = SubElement(graph, "objects")
    for table in model.content.tables:
        identity = {"caption": table.name, "id": model.table_id(table.schema, table.name)}
        properties = SubElement(
            SubElement(objects, "object", identity), "properties", {"context": ""}
        )
        SubElement(properties, "relation", model.relation(table))
    if not model.content.foreign_keys:
        return
    relationships = SubElement(graph, "relationships")
    for key in model.content.foreign_keys:
        relationship = SubElement(relationships, "relationship")
        expressions = relationship
        if len(key.columns) > 1:
            expressions = SubElement(relationship, "expression", {"op": "AND"})
        for child, parent in key.columns:
            equality = SubElement(expressions, "expression", {"op": "="})
            for place in ((*key.child, child), (*key.parent, parent)):
                SubElement(equality, "expression", {"op": model.local_names[place]})
        for end, place in (("first", key.child), ("second", key.parent)):
            SubElement(relationship, f"{end}-end-point", {"object-id": model.table_id(*place)})


def _local_names(content: HyperContent) -> dict[tuple[str, str, str], str]:
    """Return a unique name in the data source for each (schema, table, column)."""
    names: dict[tuple[str, str, str], str] = {}
    # Tableau ignores the case of names.
    used: set[str] = set()
    for table in content.tables:
        for column in table.columns:
            name = _unused_name(column.name, table.name, used=used)
            used.add(name.casefold())
            names[table.schema, table.name, column.name] = name
    return names


def _unused_name(column: str, table: str, *, used: Collection[str]) -> str:
    """Return an unused name for a column; if necessary, add the name of the table and a number.

    Args:
        used: the case-folded names of other columns.
    """
    numbered = (_quoted(f"{column} ({table}) {number}") for number in itertools.count(1))
    names = itertools.chain((_quoted(column), _quoted(f"{column} ({table})")), numbered)
    return next(name for name in names if name.casefold() not in used)


def _quoted(name: str) -> str:
    return f"[{name.replace(']', ']]')}]"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:32]


@dataclass(frozen=True)
class LocalType:
    """How a `.tds` describes a type: its name, the code of the remote type, and the aggregation."""

    name: str
    remote_type: str
    aggregation: str


_STRING = LocalType("string", "129", "Count")
_BY_HYPER_TYPE = {
    "BOOL": LocalType("boolean", "11", "Count"),
    "SMALL_INT": LocalType("integer", "2", "Sum"),
    "INT": LocalType("integer", "3", "Sum"),
    "BIG_INT": LocalType("integer", "20", "Sum"),
    "OID": LocalType("integer", "20", "Sum"),
    "NUMERIC": LocalType("real", "131", "Sum"),
    "FLOAT": LocalType("real", "4", "Sum"),
    "DOUBLE": LocalType("real", "5", "Sum"),
    "DATE": LocalType("date", "133", "Year"),
    "TIME": LocalType("datetime", "134", "Year"),
    "TIMESTAMP": LocalType("datetime", "135", "Year"),
    "TIMESTAMP_TZ": LocalType("datetime", "135", "Year"),
    "BYTES": LocalType("string", "128", "Count"),
    "TABLEAU.TABGEOGRAPHY": LocalType("spatial", "WKB", "Collect"),
}


def local_type(hyper_type: str) -> LocalType:
    """Return the local type for a Hyper type, such as "NUMERIC(18, 2)"."""
    return _BY_HYPER_TYPE.get(hyper_type.partition("(")[0], _STRING)
