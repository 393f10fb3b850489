"""Data sources in the shapes of real documents, and the form that a server of 2025.3 gives them.

Each shape has the common features of one kind of public document. Tableau's own products saved
these documents. They are in the repositories tableau/tabcmd
(`tests/assets/WorldIndicators.tdsx`, also in a server's form), tableau/Logshark,
tableau/document-api-python and tableau/tableau-mcp. Names, ids and formulas are made up.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from random import Random
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from tableau_pipeline.metadata.columns import TypesByTable

USER = "http://www.tableausoftware.com/xml/user"
ElementTree.register_namespace("user", USER)
_FEATURE = re.compile(r"_\.fcp\.\w+\.(true|false)\.\.\.")
_LEGACY, _FOLDERS = "ObjectModelEncapsulateLegacy", "SchemaViewerObjectModel"
_MANIFEST = f"<{_LEGACY} /><ObjectModelTableType /><{_FOLDERS} />"
_REMOTE = {"string": "129", "integer": "20", "real": "5", "date": "133", "datetime": "135"}


def record(local: str, type_: str, parent: str, *, name: str = "", table: str = "") -> str:
    """A column's metadata record. `name` is the column's name; "" if the field has the same one."""
    of = f"<object-id>[{table}]</object-id>" if table else ""
    remote = name or local
    return (
        f"<metadata-record class='column'><remote-name>{remote}</remote-name>"
        f"<remote-type>{_REMOTE[type_]}</remote-type><local-name>[{local}]</local-name>"
        f"<parent-name>[{parent}]</parent-name><remote-alias>{remote}</remote-alias>"
        f"<ordinal>0</ordinal><local-type>{type_}</local-type><aggregation>Count</aggregation>"
        f"<approx-count>7</approx-count><contains-null>true</contains-null>{of}</metadata-record>"
    )


def table(name: str, *, connection: str = "hyper.1", stored: str = "") -> str:
    """The relation of a table in the schema Extract."""
    at = f"[Extract].[{stored or name}]"
    return f"<relation connection='{connection}' name='{name}' table='{at}' type='table' />"


def counted(id_: str) -> str:
    """The field by which Tableau represents a whole table."""
    return (
        f"<column caption='{id_.split('_')[0]}' datatype='table' role='measure' "
        f"name='[__tableau_internal_object_id__].[{id_}]' type='quantitative' />"
    )


def graph(objects: Mapping[str, str], *edges: tuple[str, str, str, str]) -> str:
    """The object graph: the logical tables with their content, and the relationships."""
    found = "".join(
        f"<object caption='{id_.split(' ')[0].split('_')[0]}' id='{id_}'>"
        f"<properties context=''>{inside}</properties></object>"
        for id_, inside in objects.items()
    )
    between = "".join(
        f"<relationship><expression op='='><expression op='[{many}]' /><expression op='[{one}]' />"
        f"</expression><first-end-point object-id='{first}' />"
        f"<second-end-point object-id='{second}' /></relationship>"
        for first, many, second, one in edges
    )
    between = f"<relationships>{between}</relationships>" if between else ""
    return f"<object-graph><objects>{found}</objects>{between}</object-graph>"


def document(
    relation: str,
    records: str,
    *,
    cols: Mapping[str, str] | None = None,
    inner: str = "<connection class='hyper' dbname='C:/Users/ann/Shop.hyper' schema='Extract' />",
    between: str = "",
    after: str = "",
) -> str:
    """A data source: its connection, then `between`, then its layout, then `after`."""
    maps = "".join(f"<map key='[{key}]' value='{value}' />" for key, value in (cols or {}).items())
    return (
        "<datasource formatted-name='federated.1' inline='true' version='18.1' "
        f"source-build='2025.3.0 (20253.25.1021.0000)' xmlns:user='{USER}'>"
        f"<document-format-change-manifest>{_MANIFEST}</document-format-change-manifest>"
        "<connection class='federated'><named-connections>"
        f"<named-connection caption='Shop' name='hyper.1'>{inner}</named-connection>"
        f"</named-connections>{relation}{f'<cols>{maps}</cols>' if maps else ''}"
        f"<metadata-records>{records}</metadata-records></connection>"
        f"<aliases enabled='yes' />{between}<layout dim-ordering='alphabetic' "
        f"measure-ordering='alphabetic' show-structure='true' />{after}</datasource>"
    )


# Elements that people have made, and elements that Tableau's products make by themselves.
WORK = """
<column caption='Net amount' datatype='real' default-format='n#,##0.00;-#,##0.00' name='[net]'
    role='measure' type='quantitative' />
<column caption='Twice' datatype='real' name='[Calculation_7]' role='measure' type='quantitative'>
  <calculation class='tableau' formula='2 * [net]' /></column>
<column datatype='integer' name='[Number of Records]' role='measure' type='quantitative'
    user:auto-column='numrec'><calculation class='tableau' formula='1' /></column>
<group caption='Action (city)' hidden='true' name='[Action (city)]' name-style='unqualified'
    user:auto-column='sheet_link'><groupfilter function='crossjoin'>
  <groupfilter function='level-members' level='[city]' /></groupfilter></group>
<group caption='Large' name='[Large]' name-style='unqualified'>
  <groupfilter function='member' level='[city]' member='"Rome"' /></group>
<drill-paths><drill-path name='Place'><field>[country]</field><field>[city]</field></drill-path>
</drill-paths>
<folders-common><folder name='Where'><folder-item name='Place' type='drillpath' /></folder>
  <folder name='Money'><folder-item name='[net]' type='field' />
    <folder-item name='[Calculation_7]' type='field' /></folder></folders-common>
"""
COLUMNS = (("id", "integer"), ("net", "real"), ("city", "string"), ("country", "string"))
COLUMNS = (*COLUMNS, ("day", "date"))


@dataclass(frozen=True)
class Shape:
    """A data source, and the tables of its `.hyper` file."""

    tds: str
    tables: TypesByTable

    @property
    def content(self) -> bytes:
        return self.tds.encode()


_SQL = {"string": "TEXT", "integer": "BIGINT", "real": "DOUBLE PRECISION", "date": "DATE"}


def _columns(found: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    return [(name, _SQL[type_]) for name, type_ in found]


_HEX = "0123456789ABCDEF" * 2
_OF_ORDERS = {"Orders": _columns(COLUMNS)}
_OF_TWO = {**_OF_ORDERS, "People": [("id", "BIGINT"), ("name", "TEXT")]}


def _two(ids: tuple[str, str], relations: tuple[str, str], *, collection: bool = True) -> str:
    """A data source of two tables, as Desktop saves it. Both tables have a column `id`."""
    (first, second), (orders, people) = ids, relations
    parts = [table(orders, stored="Orders"), table(people, stored="People")]
    records = [record(name, type_, orders, table=first) for name, type_ in COLUMNS]
    records.append(record("id (People)", "integer", people, name="id", table=second))
    records.append(record("name", "string", people, table=second))
    cols = {name: f"[{orders}].[{name}]" for name, _ in COLUMNS}
    cols |= {"id (People)": f"[{people}].[id]", "name": f"[{people}].[name]"}
    return document(
        f"<relation type='collection'>{''.join(parts)}</relation>",
        "".join(records),
        cols=cols,
        between=counted(first) + counted(second) + WORK,
        after=graph(dict(zip(ids, parts, strict=True)), (first, "id", second, "id (People)")),
    )


def _one(id_: str, name: str = "Orders", **more: str) -> str:
    records = "".join(record(column, type_, name, table=id_) for column, type_ in COLUMNS)
    between = counted(id_) + WORK
    after = graph({id_: table(name)}) + more.pop("after", "")
    return document(table(name), records, between=between, after=after, **more)


_JOIN = (
    "<relation join='inner' type='join'><clause type='join'><expression op='='>"
    "<expression op='[Orders].[id]' /><expression op='[People].[id]' /></expression></clause>"
    f"{table('Orders')}{table('People')}</relation>"
)
_JOINED = document(
    _JOIN,
    "".join(record(name, type_, "Orders", table="Migrated Data") for name, type_ in COLUMNS)
    + record("id (People)", "integer", "People", name="id", table="Migrated Data")
    + record("name", "string", "People", table="Migrated Data"),
    cols={name: f"[Orders].[{name}]" for name, _ in COLUMNS}
    | {"id (People)": "[People].[id]", "name": "[People].[name]"},
    between=counted("Migrated Data") + WORK,
    after=graph({"Migrated Data": _JOIN}),
)
# In the database, the column "day" has times. The extract is rolled up and has only dates.
_DATABASE = document(
    "<relation connection='hyper.1' name='orders1' table='[shop].[orders]' type='table' />",
    "".join(
        record(name, "datetime" if name == "day" else type_, "orders1", table="orders_A1")
        for name, type_ in COLUMNS
    ),
    cols={name: f"[orders1].[{name}]" for name, _ in COLUMNS},
    inner="<connection class='postgres' dbname='shop' server='db' username='ann' />",
    between=counted("orders_A1")
    + WORK
    + "<extract count='-1' enabled='true' units='records'><connection access_mode='readonly' "
    "author-locale='en_US' class='hyper' dbname='Data/Datasources/shop.hyper' schema='Extract' "
    "sslmode='' tablename='Extract' username='tableau_internal_user'>"
    "<relation name='Extract' table='[Extract].[Extract]' type='table' /><metadata-records>"
    + "".join(record(name, type_, "Extract") for name, type_ in COLUMNS)
    + "</metadata-records></connection></extract>",
    after=graph({"orders_A1": table("orders1")}),
)
_OLD_FOLDERS = WORK.replace("<folders-common>", "").replace("</folders-common>", "")
_OLD_FOLDERS = _OLD_FOLDERS.replace("<folder name", "<folder role='measures' name")
_TREE = (
    "<_.fcp.ExtendedPublishedDataSourceUI.true...data-source-tree><tree-node id='1' />"
    "</_.fcp.ExtendedPublishedDataSourceUI.true...data-source-tree>"
)
DESKTOP_IDS = (f"Orders (Extract.Orders)_{_HEX}", f"People (Extract.People)_{_HEX[::-1]}")

SHAPES: dict[str, Shape] = {
    "several tables by Desktop": Shape(_two(DESKTOP_IDS, ("Orders", "People")), _OF_TWO),
    "relations with their schema": Shape(
        _two(DESKTOP_IDS, ("Orders (Extract.Orders)", "People (Extract.People)")), _OF_TWO
    ),
    "plain ids": Shape(
        _two((f"Orders_{_HEX}", f"People_{_HEX[::-1]}"), ("Orders", "People")), _OF_TWO
    ),
    "short ids": Shape(_two(("Orders_35B9C215", "People_0A0B0C0D"), ("Orders", "People")), _OF_TWO),
    "physical join": Shape(_JOINED, _OF_TWO),
    "migrated": Shape(_one("Migrated Data"), _OF_ORDERS),
    "composed": Shape(_one(f"Orders_{_HEX}", after=_TREE), _OF_ORDERS),
    "folders of old products": Shape(
        _one("Migrated Data").replace(WORK, _OLD_FOLDERS).replace(f"<{_FOLDERS} />", ""),
        _OF_ORDERS,
    ),
    "extract of a database": Shape(_DATABASE, {"Extract": _columns(COLUMNS)}),
}


def _marked(feature: str, mark: str, name: str) -> str:
    return f"_.fcp.{feature}.{mark}...{name}"


def by_an_old_build(content: bytes, chance: Random) -> bytes:
    """The form that products of 2020.2 to 2023.3 save: new elements have prefixes (`_.fcp...`)."""
    root = ElementTree.fromstring(content)
    for change in (_mark_folders, _mark_tables, _mark_relations):
        if chance.random() < 0.7:
            change(root)
    for layout in root.findall("layout"):
        for side in ("dim", "measure"):
            layout.set(_marked(_FOLDERS, "false", f"{side}-percentage"), "0.5")
    return ElementTree.tostring(root, "utf-8")


def _mark_folders(root: Element) -> None:
    for each in root.findall("folders-common"):
        each.tag = _marked(_FOLDERS, "true", each.tag)
        for folder in each:
            old = Element(_marked(_FOLDERS, "false", "folder"), folder.attrib, role="dimensions")
            old.extend(ElementTree.fromstring(ElementTree.tostring(one)) for one in folder)
            root.insert([*root].index(each), old)


def _mark_tables(root: Element) -> None:
    for each in root.findall("column[@datatype='table']"):
        each.tag = _marked("ObjectModelTableType", "true", "column")
        attributes = {**each.attrib, "datatype": "integer", "caption": "Number of Records"}
        old = Element(_marked("ObjectModelTableType", "false", "column"), attributes)
        root.insert([*root].index(each), old)


def _mark_relations(root: Element) -> None:
    for connection in root.findall("connection"):
        for each in connection.findall("relation"):
            each.tag = _marked(_LEGACY, "true", each.tag)
            first = next(one for one in each.iter() if one.get("table"))
            old = Element(_marked(_LEGACY, "false", "relation"), first.attrib)
            connection.insert([*connection].index(each), old)
        for each in [*connection.iter("object-id")]:
            each.tag = _marked(_LEGACY, "true", each.tag)
    for each in root.findall("object-graph"):
        each.tag = _marked(_LEGACY, "true", each.tag)


def by_a_server(content: bytes, *, name: str = "Shop", revision: str = "1.0") -> bytes:
    """The form that a server of 2025.3 gives a published document."""
    root = ElementTree.fromstring(content)
    _without_marks(root)
    root.set("{http://www.w3.org/XML/1998/namespace}base", "https://tableau.example.com")
    for each in root.findall("repository-location"):
        root.remove(each)
    place = {"id": name, "path": "/datasources", "revision": revision, "site": "shop"}
    has_manifest = root.find("document-format-change-manifest") is not None
    root.insert(int(has_manifest), Element("repository-location", place))
    for each in root.findall(".//connection[@class='hyper']"):
        file = re.split(r"[/\\]", each.get("dbname", ""))[-1]
        each.set("dbname", f"Data/Extracts/{file}")
        for gone in ("access_mode", "sslmode", "username"):
            each.attrib.pop(gone, None)
    return ElementTree.tostring(root, "utf-8", xml_declaration=True)


def _without_marks(element: Element) -> None:
    """Remove elements and attributes with a prefix `.false...`, and the prefixes of all others."""
    for child in [*element]:
        if found := _FEATURE.match(child.tag):
            child.tag = child.tag[found.end() :]
            if found[1] == "false":
                element.remove(child)
        _without_marks(child)
    for key in [*element.attrib]:
        if found := _FEATURE.match(key):
            value = element.attrib.pop(key)
            if found[1] == "true":
                element.set(key[found.end() :], value)
