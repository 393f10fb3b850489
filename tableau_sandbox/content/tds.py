"""The `.tds` of published data: write it for a `.hyper` file, inspect it in a `.tdsx`."""

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
    """Facts from a `.tds`: the class of its connection, and whether it is an extract."""

    connection_class: str
    has_extract: bool


def inspect_tds(tds: bytes) -> TdsFacts:
    """Read an uploaded `.tds`.

    Raises:
        NotPublishableError: it is not a data source in XML, or has no connection.
    """
    try:
        root = defusedxml.ElementTree.fromstring(tds, forbid_dtd=True)
    except (ParseError, DefusedXmlException, ValueError, LookupError) as error:
        raise NotPublishableError(f"the .tds is not well-formed XML: {error}") from error
    if root.tag != "datasource":
        raise NotPublishableError(f"the .tds begins with '{root.tag}' instead of 'datasource'")
    connection = root.find("./connection/named-connections/named-connection/connection")
    # A connection that is not federated has no named ones inside.
    if connection is None:
        connection = root.find("./connection")
    if connection is None or not connection.get("class"):
        raise NotPublishableError("the .tds names no connection")
    extract = root.find("./extract")
    has_extract = extract is not None and extract.get("enabled", "true") == "true"
    return TdsFacts(connection.attrib["class"], has_extract)


def write_tds(content: HyperContent, *, name: str, packaged_path: str) -> bytes:
    """Return the `.tds` that a server writes for a published `.hyper` file.

    Args:
        content: the content of the file.
        name: the name of the data source.
        packaged_path: the path of the file in the package.
    """
    root = Element(
        "datasource",
        {
            "formatted-name": f"federated.{_digest(name)}",
            "inline": "true",
            "source-platform": "linux",
            "version": "18.1",
        },
    )
    connection_name = f"hyper.{_digest(packaged_path)}"
    local_names = _local_names(content)
    connection = SubElement(root, "connection", {"class": "federated"})
    _add_hyper_connection(
        connection, name=connection_name, caption=name, packaged_path=packaged_path
    )
    _add_relations(connection, content, connection_name=connection_name)
    _add_column_map(connection, local_names)
    _add_metadata(connection, content, local_names)
    SubElement(root, "aliases", {"enabled": "yes"})
    for table in content.tables:
        SubElement(root, "column", _table_column(table))
    _add_object_graph(root, content, connection_name=connection_name, local_names=local_names)
    ElementTree.indent(root)
    return b"<?xml version='1.0' encoding='utf-8' ?>\n" + ElementTree.tostring(root, "utf-8")


def _add_hyper_connection(parent: Element, *, name: str, caption: str, packaged_path: str) -> None:
    named = SubElement(
        SubElement(parent, "named-connections"),
        "named-connection",
        {"caption": caption, "name": name},
    )
    attributes = {
        "authentication": "auth-none",
        "class": "hyper",
        "dbname": packaged_path,
        "default-settings": "yes",
        "server": "",
        "username": "tableau_internal_user",
    }
    SubElement(named, "connection", attributes)


def _add_relations(parent: Element, content: HyperContent, *, connection_name: str) -> None:
    several = len(content.tables) > 1
    target = SubElement(parent, "relation", {"type": "collection"}) if several else parent
    for table in content.tables:
        SubElement(target, "relation", _relation(table, connection_name))


def _relation(table: Table, connection_name: str) -> dict[str, str]:
    return {
        "connection": connection_name,
        "name": table.name,
        "table": f"{_quoted(table.schema)}.{_quoted(table.name)}",
        "type": "table",
    }


def _add_column_map(parent: Element, local_names: dict[tuple[str, str, str], str]) -> None:
    columns = SubElement(parent, "cols")
    for (_, table, column), local_name in local_names.items():
        SubElement(
            columns, "map", {"key": local_name, "value": f"{_quoted(table)}.{_quoted(column)}"}
        )


def _add_metadata(
    parent: Element, content: HyperContent, local_names: dict[tuple[str, str, str], str]
) -> None:
    records = SubElement(parent, "metadata-records")
    columns = [(table, column) for table in content.tables for column in table.columns]
    for ordinal, (table, column) in enumerate(columns):
        record = SubElement(records, "metadata-record", {"class": "column"})
        local_name = local_names[table.schema, table.name, column.name]
        for tag, text in _metadata(table, column, local_name=local_name, ordinal=ordinal).items():
            SubElement(record, tag).text = text


def _metadata(table: Table, column: Column, *, local_name: str, ordinal: int) -> dict[str, str]:
    kind = local_type(column.type)
    return {
        "remote-name": column.name,
        "remote-type": kind.remote_type,
        "local-name": local_name,
        "parent-name": _quoted(table.name),
        "remote-alias": column.name,
        "ordinal": str(ordinal),
        "local-type": kind.name,
        "aggregation": kind.aggregation,
        "contains-null": str(column.nullable).lower(),
        "object-id": _quoted(_object_id(table.schema, table.name)),
    }


def _table_column(table: Table) -> dict[str, str]:
    """Return the column that represents a whole table, whose aggregation is its number of rows."""
    identifier = _object_id(table.schema, table.name)
    return {
        "aggregation": "Count",
        "caption": table.name,
        "datatype": "table",
        "name": f"[__tableau_internal_object_id__].{_quoted(identifier)}",
        "role": "measure",
        "type": "quantitative",
    }


def _add_object_graph(
    root: Element,
    content: HyperContent,
    *,
    connection_name: str,
    local_names: dict[tuple[str, str, str], str],
) -> None:
    graph = SubElement(root, "object-graph")
    objects = SubElement(graph, "objects")
    for table in content.tables:
        identity = {"caption": table.name, "id": _object_id(table.schema, table.name)}
        properties = SubElement(
            SubElement(objects, "object", identity), "properties", {"context": ""}
        )
        SubElement(properties, "relation", _relation(table, connection_name))
    relationships = SubElement(graph, "relationships")
    for key in content.foreign_keys:
        relationship = SubElement(relationships, "relationship")
        expressions = relationship
        if len(key.columns) > 1:
            expressions = SubElement(relationship, "expression", {"op": "AND"})
        for child, parent in key.columns:
            equality = SubElement(expressions, "expression", {"op": "="})
            SubElement(equality, "expression", {"op": local_names[*key.child, child]})
            SubElement(equality, "expression", {"op": local_names[*key.parent, parent]})
        SubElement(relationship, "first-end-point", {"object-id": _object_id(*key.child)})
        SubElement(relationship, "second-end-point", {"object-id": _object_id(*key.parent)})


def _local_names(content: HyperContent) -> dict[tuple[str, str, str], str]:
    """Return a unique name in the data source for each (schema, table, column)."""
    names: dict[tuple[str, str, str], str] = {}
    for table in content.tables:
        for column in table.columns:
            name = _unused_name(column.name, table.name, used=names.values())
            names[table.schema, table.name, column.name] = name
    return names


def _unused_name(column: str, table: str, *, used: Collection[str]) -> str:
    """Return the name of a column; the name of its table, and a number, distinguish equal ones."""
    numbered = (_quoted(f"{column} ({table}) {number}") for number in itertools.count(1))
    names = itertools.chain((_quoted(column), _quoted(f"{column} ({table})")), numbered)
    return next(name for name in names if name not in used)


def _quoted(name: str) -> str:
    return f"[{name.replace(']', ']]')}]"


def _object_id(schema: str, table: str) -> str:
    return f"{table}_{_digest(f'{schema}.{table}').upper()}"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:32]


@dataclass(frozen=True)
class LocalType:
    """How a `.tds` describes a type: its name, the code of the remote type, its aggregation."""

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
    """Return the type of a column with this Hyper type, such as "NUMERIC(18, 2)"."""
    return _BY_HYPER_TYPE.get(hyper_type.partition("(")[0], _STRING)
