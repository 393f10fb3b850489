import json
import random
import re
import zipfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lxml import etree

from tableau_pipeline.metadata.columns import TypesByTable
from tableau_pipeline.metadata.contents import read_metadata
from tableau_pipeline.metadata.merge import TAKEN, Values, merge
from tableau_pipeline.metadata.tds import Tds, pack
from tableau_pipeline_tests.metadata.shapes import SHAPES
from tableau_pipeline_tests.metadata.test_digest import TDS

ODD = [("[odd]", "TEXT")]
TABLES: TypesByTable = {
    "flights": [("carrier", "TEXT"), ("delay", "BIGINT"), ("day", "DATE")],
    "air]lines": ODD,
}
# The document `TDS` with the columns of `TABLES`.
FILE = Tds(Tds(TDS.encode()).edited({}, TABLES))
FIELDS: Values = {
    ("field", "flights", "delay", "caption"): "Delay <in> 'minutes' & more",
    ("field", "flights", "delay", "format"): "n#,##0.00;-#,##0.00",
    ("field", "flights", "delay", "description"): "In minutes <60",
    ("field", "flights", "delay", "aggregation"): "Avg",
    ("field", "flights", "delay", "folder"): "Facts",
    ("calculation", "Delayed", "caption"): "Delayed",
    ("calculation", "Delayed", "type"): "boolean",
    ("calculation", "Delayed", "formula"): "SUM([flights.delay]) > 15",
    ("calculation", "Delayed", "folder"): "Facts",
}
WANTED: Values = {
    **FIELDS,
    ("field", "flights", "delay", "description"): "of the plane,\nat its arrival",
    ("field", "flights", "day", "role"): "measure",
    ("field", "flights", "day", "hidden"): "true",
    ("field", "air]lines", "[odd]", "caption"): "Odd",
    ("field", "air]lines", "[odd]", "geo"): "[City].[Name]",
    ("calculation", "Share", "caption"): "Share",
    ("calculation", "Share", "type"): "real",
    ("calculation", "Share", "formula"): "[Twice] / SUM([flights.delay]) // [delay] '[delay]'",
    ("calculation", "Share", "folder"): "Facts",
    ("calculation", "Twice", "caption"): "Twice",
    ("calculation", "Twice", "type"): "integer",
    ("calculation", "Twice", "formula"): 'IF [air]]lines.[odd]]] = "[x]" THEN 2 END',
    ("hierarchy", "Route", "fields"): json.dumps(["flights.carrier", "air]lines.[odd]", "Twice"]),
}


def canonical(content: bytes | etree._Element) -> str:
    root = etree.fromstring(content) if isinstance(content, bytes) else content
    return etree.canonicalize(root, strip_text=True, with_comments=True)


def applied(file: Tds, wanted: Values, tables: TypesByTable = TABLES) -> Tds:
    return Tds(file.edited(dict(wanted), tables))


def test_what_is_written_is_read():
    # Prevents: each refresh sets a value again, or takes its own value for a person's edit.
    edited = applied(FILE, WANTED)
    found = edited.values(WANTED, [WANTED])
    assert {path: found.get(path) for path in WANTED} == WANTED
    assert not merge(WANTED, [WANTED], found, on_conflict="refuse").changes
    assert applied(edited, {}).content is edited.content


# The elements of `DataSource-CT` in Tableau's workbook schema of 2026.2.
SCHEMA = re.findall(
    r"\S+",
    """
    document-format-change-manifest repository-location connection utility-dimensions dimension
    overridable-settings aliases column column-instance group mapped-images drill-paths
    unlinked-server-hierarchies folders-common folders-parameters actions calculated-members extract
    layout style semantic-values date-options default-date-format default-sorts field-sort-info
    datasource-dependencies explainability filter analytic-model object-graph default-calendar-type
    """,
)
WRITTEN = {"document-format-change-manifest", "column", "drill-paths", "folders-common"}


def test_all_is_written_in_the_order_of_the_schema():
    # Prevents: Tableau refuses a file because its elements are in the wrong order.
    root = etree.fromstring(FILE.content)
    present = {tag_of(each): each for each in root}
    root[:] = [present.get(tag, etree.Element(tag)) for tag in SCHEMA if tag not in WRITTEN]
    edited = applied(Tds(etree.tostring(root)), WANTED)
    tags = [tag_of(each) for each in etree.fromstring(edited.content)]
    assert [*dict.fromkeys(tags)] == SCHEMA


def tag_of(element: etree._Element) -> str:
    return etree.QName(element).localname.rpartition("...")[2]


def test_what_is_taken_back_leaves_nothing():
    # Prevents: a removed folder, hierarchy or calculation leaves traces, which look like an edit.
    # First give each field a `<column>`, and list folders as a feature: edits never remove these.
    before, role = FILE, {("field", "flights", "day", "role"): "measure"}
    for _ in range(2):
        before = applied(before, {path: "x" for path in WANTED if path[0] == "field"} | role)
        before = applied(before, {path: None for path in WANTED if path[0] == "field"})
    edited = applied(before, WANTED)
    assert canonical(applied(edited, dict.fromkeys(WANTED)).content) == canonical(before.content)


def test_edits_keep_the_rest():
    # Prevents: an edit loses comments, unknown elements, feature prefixes or namespaces.
    strange = TDS.replace(
        "<aliases enabled='yes' />",
        "<aliases enabled='yes' /><!-- kept --><new-in-2031 user:x='1'><a>b<c/>d</a></new-in-2031>",
    ).replace("<?xml version='1.0' encoding='utf-8' ?>", "<?xml version='1.0'?><!-- build 1 -->")
    edited = Tds(strange.encode()).edited(
        {("field", "flights", "carrier", "caption"): "X"},
        {"flights": [("carrier", "TEXT")], "air]lines": [("[odd]", "TEXT")]},
    )
    root = etree.fromstring(edited)
    (column,) = root.iterfind("./column[@name='[carrier]']")
    column.set("caption", "Carrier")
    assert canonical(root) == canonical(strange.encode())
    assert edited.startswith(b"<?xml version='1.0' encoding='utf-8'?>\n<!-- build 1 -->")


def test_columns_follow_the_file():
    # Prevents: a new column gets no field, or a field stays after its column has gone.
    file = applied(FILE, WANTED)
    tables: TypesByTable = {
        "flights": [("carrier", "TEXT"), ("delay", "TIMESTAMP"), ("[odd]", "NUMERIC(10,2)")],
        "air]lines": [("[odd]", "TEXT"), ("delay", "BOOLEAN")],
    }
    changed = Tds(file.edited({}, tables))
    assert read_metadata(changed.content).columns == {
        (table, column) for table, columns in tables.items() for column, _ in columns
    }
    root = etree.fromstring(changed.content)
    assert [(each.get("key"), each.get("value")) for each in root.iter("map")] == [
        ("[carrier]", "[flights].[carrier]"),
        ("[delay]", "[flights].[delay]"),
        ("[[odd]] (flights)]", "[flights].[[odd]]]"),
    ]
    names = [each.text for each in root.iterfind(".//metadata-record[@class='column']/local-name")]
    assert names == [
        "[carrier]", "[delay]", "[[odd]] (flights)]", "[[odd]]]", "[delay (air]]lines)]",
    ]  # fmt: skip
    ordinals = [each.text for each in root.iterfind(".//metadata-record/ordinal")]
    assert ordinals == ["0", "1", "3"], "a new column has the next ordinal"
    (delay,) = root.iterfind("./column[@name='[delay]']")
    values = [delay.get(name) for name in ("datatype", "role", "type", "caption")]
    assert values == ["datetime", "dimension", "ordinal", "Delay <in> 'minutes' & more"]
    assert "[day]" not in changed.content.decode()
    wanted = {("field", "air]lines", "delay", "caption"): "Late"}
    assert (
        applied(changed, wanted, tables).values()["field", "air]lines", "delay", "caption"]
        == "Late"
    )


def test_new_columns_that_differ_only_in_case():
    """Prevents: Tableau sees two fields of the same name, or a column is renamed for no reason."""
    shape = SHAPES["migrated"]
    columns = [each for each in shape.tables["Orders"] if each[0] != "day"]
    columns += [("DAY", "DATE"), ("TWICE", "TEXT"), ("large", "TEXT")]
    edited = Tds(Tds(shape.content).edited({}, {"Orders": columns}))
    new = [record.local for record in edited.records][-3:]
    assert new == ["[DAY]", "[TWICE (Orders)]", "[large (Orders)]"]


def test_names_with_odd_brackets():
    """Prevents: a bracket in a name makes a formula read another column, or cuts a folder name."""
    tables = {"flights": [*TABLES["flights"], ("a].[delay", "BIGINT")], "air]lines": ODD}
    path = ("calculation", "Sum", "formula")
    wanted = {path: "SUM([flights.a]].[delay])"}
    wanted["field", "flights", "delay", "folder"] = "Prices [EUR]"
    edited = applied(FILE, wanted, tables)
    assert edited.values(wanted)[path] == wanted[path]
    assert b"SUM([a]].[delay])" in edited.content
    assert "Prices [EUR]" in read_metadata(edited.content).work["folders"]


def test_other_tables_cannot_be_merged():
    # Prevents: the pipeline publishes fields of a table that the new file does not have.
    with pytest.raises(ValueError, match=r"flights, but the tables to be published are flights"):
        FILE.edited({}, {"flights": TABLES["flights"]})


def test_defaults_are_nobodys_work():
    # Prevents: each refresh sets Tableau's own default role again, or reports it as a conflict.
    role = ("field", "flights", "delay", "role")
    assert role not in FILE.values()
    assert FILE.values({role: "measure"})[role] == "measure"
    assert role not in FILE.values({role: "dimension"})
    assert FILE.values({role: "dimension"}, [{role: "measure"}])[role] == "measure"
    for now in ("dimension", "measure"):
        edited = applied(FILE, {role: now})
        again = merge({role: now}, [{role: now}], edited.values({role: now}), on_conflict="refuse")
        assert not again.changes


def test_a_field_of_somebody_else_with_that_name():
    # Prevents: our calculation replaces an analyst's, or two calculations get one name.
    wanted = {("calculation", "Late", part): "1" for part in ("formula", "caption")}
    found = FILE.values(wanted)
    assert found["calculation", "Late", TAKEN] == "[Calculation_1]"
    assert found["calculation", "Late", "formula"] == "IF [flights.delay] > 15 THEN 1 END"
    assert not merge(wanted, [], found, on_conflict="replace").changes


def test_who_uses_a_field():
    # Prevents: a refresh drops a column that an analyst's calculation, set or hierarchy needs.
    assert FILE.used_by("flights", "delay") == ('calculated field "Late"',)
    assert FILE.used_by("flights", "carrier") == ('group or set "Set 1"', 'hierarchy "Where"')
    assert FILE.used_by("flights", "day") == FILE.used_by("flights", "gone") == ()
    file = applied(FILE, WANTED)
    assert file.used_by("Twice") == ('calculated field "Share"', 'hierarchy "Route"')
    assert file.used_by("Twice", but=WANTED) == ()
    filtered = TDS.replace("<extract", "<filter column='[x].[none:day:ok]' /><extract")
    assert applied(Tds(filtered.encode()), {}).used_by("flights", "day") == ("a filter",)


def test_old_folders():
    # Prevents: a field ends up in two folders, and an old product shows the wrong folder.
    folder = (
        "<folder name='Times' role='measures'><folder-item name='[delay]' type='field' /></folder>"
    )
    old = TDS.replace("<folders-common>", "").replace("</folders-common>", "")
    assert folder in " ".join(old.split())
    file = applied(Tds(old.encode()), {})
    path = ("field", "flights", "delay", "folder")
    assert file.values()[path] == "Times"
    edited = applied(file, {path: "Facts"})
    assert edited.values()[path] == "Facts"
    root = etree.fromstring(edited.content)
    assert [(each.get("name"), each.get("role")) for each in root.iter("folder")] == [
        ("Facts", "measures")
    ]


def test_old_folders_of_dimensions_and_of_measures():
    """Prevents: a folder of measures becomes a folder of dimensions and loses its fields."""
    shape = SHAPES["folders of old products"]
    path = ("field", "Orders", "day", "folder")
    edited = Tds(shape.content).edited({path: "Money"}, shape.tables)
    root = etree.fromstring(edited)
    assert [
        (each.get("role"), [item.get("name") for item in each])
        for each in root.iterfind("folder[@name='Money']")
    ] == [("measures", ["[net]", "[Calculation_7]"]), ("dimensions", ["[day]"])]
    back = Tds(edited).edited({path: None}, shape.tables)
    assert canonical(etree.fromstring(back).findall("folder")[-1]) == canonical(
        etree.fromstring(shape.content).findall("folder")[-1]
    )


@pytest.mark.parametrize(
    ("listed", "written"),
    [
        ("<SchemaViewerObjectModel />", "<folders-common>"),
        ("<ObjectModelEncapsulateLegacy />", "<folders-common>"),
        (
            "<_.fcp.ObjectModelEncapsulateLegacy.true...ObjectModelEncapsulateLegacy />",
            "<_.fcp.SchemaViewerObjectModel.true...folders-common>",
        ),
        ("", "<folders-common>"),
    ],
)
def test_folders_are_listed_as_a_feature(listed: str, written: str):
    # Prevents: Tableau ignores the folders because the file does not list them as a feature.
    tds = TDS.replace("<folders-common>", "<!--").replace("</folders-common>", "-->")
    old = "<_.fcp.ObjectModelEncapsulateLegacy.true...ObjectModelEncapsulateLegacy />"
    path = ("field", "flights", "delay", "folder")
    edited = applied(Tds(tds.replace(old, listed).encode()), {path: "Facts"})
    assert edited.values()[path] == "Facts"
    assert read_metadata(edited.content).work["folders"] == ("Facts",)
    text = edited.content.decode()
    assert written in text
    assert text.count("SchemaViewerObjectModel/>") == 1


@given(seed=st.integers(0, 2**32))
@settings(max_examples=30)
def test_any_edits(seed: int):
    # Prevents: after several edits, a field does not have the value that was set last.
    chance = random.Random(seed)
    file, now = FILE, dict(FILE.values(WANTED))
    for _ in range(5):
        changes = {
            path: chance.choice([WANTED[path], None])
            for path in chance.sample([*WANTED], 4)
            if path[0] != "calculation"
        }
        file = applied(file, changes)
        now.update(changes)
    found = file.values(WANTED)
    expected = {path: value for path, value in now.items() if value is not None}
    assert {path: found.get(path) for path in WANTED} == {
        path: expected.get(path) for path in WANTED
    }


BOMB = "<!DOCTYPE x [<!ENTITY a 'aaaaaaaaaa'><!ENTITY b '&a;&a;&a;&a;&a;&a;'>]>"


@pytest.mark.parametrize(
    "content",
    [
        BOMB + "<datasource caption='&b;'>&b;</datasource>",
        "<!DOCTYPE x SYSTEM 'file:///etc/passwd'><datasource />",
        "<!DOCTYPE x [<!ENTITY a SYSTEM 'file:///etc/passwd'>]><datasource>&a;</datasource>",
        (BOMB + "<datasource />").encode("utf-16"),
        f"<datasource>{'<a>' * 1000}{'</a>' * 1000}</datasource>",
        f"<datasource>{' ' * 16_000_000}</datasource>",
    ],
    ids=["entities", "DTD", "file", "UTF-16", "deep", "large"],
)
def test_hostile_files(content: str | bytes):
    # Prevents: a hostile document reads files of this machine, or takes all its memory.
    raw = content if isinstance(content, bytes) else content.encode()
    with pytest.raises(ValueError, match="it is not a"):
        Tds(raw)
    with pytest.raises(ValueError, match="it is not a"):
        read_metadata(raw)


@pytest.mark.parametrize(
    ("named", "packed"),
    [
        ("Data/Extracts/Flights.hyper", "Data/Extracts/Flights.hyper"),
        ("Data\\Extracts\\Flights.hyper", "Data/Extracts/Flights.hyper"),
        ("C:/Users/ann/Flights.hyper", "Data/Extracts/x.hyper"),
        ("../../etc/x.hyper", "Data/Extracts/x.hyper"),
    ],
)
def test_package(tmp_path: Path, named: str, packed: str):
    # Prevents: the server does not find the rows, or unpacks them outside of its own folder.
    hyper = tmp_path / "x.hyper"
    hyper.write_bytes(b"rows")
    tds = TDS.replace("Data/Extracts/Flights.hyper", named)
    pack(tds.encode(), hyper, tmp_path / "x.tdsx")
    with zipfile.ZipFile(tmp_path / "x.tdsx") as package:
        files = {each: package.read(each) for each in package.namelist()}
    assert files.pop(packed) == b"rows"
    (content,) = files.values()
    connection = etree.fromstring(content).find(".//connection[@class='hyper']")
    assert connection is not None
    assert connection.get("dbname", "").replace("\\", "/") == packed
    with pytest.raises(ValueError, match="no connection"):
        pack(
            b"<datasource><connection class='sqlserver' /></datasource>", hyper, tmp_path / "y.tdsx"
        )
