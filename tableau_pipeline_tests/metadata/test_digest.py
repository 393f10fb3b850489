import random
import zipfile
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tableau_pipeline.metadata.contents import Metadata, read_metadata
from tableau_pipeline_tests.differences import tds_in

# A document as Tableau's products write it: two tables, and the work of an analyst on them.
TDS = """<?xml version='1.0' encoding='utf-8' ?>
<datasource caption='Flights' formatted-name='federated.0a1b' inline='true'
    source-build='2025.3.0 (20253.25.1021.0000)' source-platform='linux' version='18.1'
    xml:base='https://tableau.example.com' xmlns:user='http://www.tableausoftware.com/xml/user'>
  <document-format-change-manifest>
    <_.fcp.ObjectModelEncapsulateLegacy.true...ObjectModelEncapsulateLegacy />
  </document-format-change-manifest>
  <repository-location derived-from='/datasources/Flights?rev=1.4' id='Flights' revision='1.4' />
  <connection class='federated'>
    <named-connections>
      <named-connection caption='Flights' name='hyper.1'>
        <connection class='hyper' dbname='Data/Extracts/Flights.hyper' server='' />
      </named-connection>
    </named-connections>
    <_.fcp.ObjectModelEncapsulateLegacy.true...relation type='collection'>
      <relation connection='hyper.1' name='flights' table='[Extract].[flights]' type='table' />
    </_.fcp.ObjectModelEncapsulateLegacy.true...relation>
    <cols><map key='[carrier]' value='[flights].[carrier]' /></cols>
    <metadata-records>
      <metadata-record class='column'>
        <remote-name>carrier</remote-name>
        <local-name>[carrier]</local-name>
        <parent-name>[flights]</parent-name>
        <ordinal>0</ordinal>
        <local-type>string</local-type>
        <_.fcp.ObjectModelEncapsulateLegacy.true...object-id>[flights_A]</_.fcp.ObjectModelEncapsulateLegacy.true...object-id>
      </metadata-record>
      <metadata-record class='column'>
        <remote-name>[odd]</remote-name>
        <local-name>[[odd]]]</local-name>
        <parent-name>[Extract].[air]]lines]</parent-name>
      </metadata-record>
      <metadata-record class='capability'>
        <remote-name />
        <parent-name>[flights]</parent-name>
      </metadata-record>
    </metadata-records>
  </connection>
  <overridable-settings><date-options start-of-week='monday' /></overridable-settings>
  <aliases enabled='yes' />
  <column caption='Late' datatype='integer' name='[Calculation_1]' role='measure'
      type='quantitative'>
    <calculation class='tableau' formula='IF [delay] &gt; 15 THEN 1 END' />
  </column>
  <column caption='Carrier' datatype='string' default-format='*' name='[carrier]'
      role='dimension' type='nominal'>
    <desc><formatted-text><run>Of the plane</run></formatted-text></desc>
    <aliases><alias key='"AA"' value='American' /></aliases>
  </column>
  <column datatype='integer' hidden='true' name='[delay]' role='measure' type='quantitative' />
  <_.fcp.ObjectModelTableType.true...column caption='flights' datatype='table'
      name='[__tableau_internal_object_id__].[flights_A]' role='measure' type='quantitative' />
  <group name='[Set 1]' name-style='unqualified'>
    <groupfilter function='member' level='[carrier]' member='"AA"' />
  </group>
  <drill-paths><drill-path name='Where'><field>[carrier]</field></drill-path></drill-paths>
  <folders-common>
    <folder name='Times' role='measures'><folder-item name='[delay]' type='field' /></folder>
  </folders-common>
  <extract enabled='true'><refresh><refresh-event rows='8' /></refresh></extract>
  <style><style-rule element='mark'><encoding attr='color' type='palette' /></style-rule></style>
  <datasource-dependencies datasource='Parameters'>
    <column caption='Limit' name='[Parameter 1]' param-domain-type='range' value='15' />
  </datasource-dependencies>
  <_.fcp.ObjectModelEncapsulateLegacy.true...object-graph>
    <objects>
      <object caption='flights' id='flights_A'>
        <properties context=''><relation connection='hyper.1' name='flights' /></properties>
      </object>
      <object caption='airlines' id='airlines_B'>
        <properties context=''><relation connection='hyper.1' name='airlines' /></properties>
      </object>
    </objects>
    <relationships>
      <relationship>
        <expression op='='><expression op='[carrier]' /><expression op='[code]' /></expression>
        <first-end-point object-id='flights_A' />
        <second-end-point object-id='airlines_B' />
      </relationship>
    </relationships>
  </_.fcp.ObjectModelEncapsulateLegacy.true...object-graph>
</datasource>
"""


def read(tds: str | bytes, *, name: str = "x.tds") -> Metadata:
    with TemporaryDirectory() as folder:
        file = Path(folder, name)
        file.write_bytes(tds if isinstance(tds, bytes) else tds.encode())
        return read_metadata(tds_in(file))


def packed(tds: str, *, level: int = 9, year: int = 1980, extra: bool = False) -> bytes:
    with TemporaryDirectory() as folder:
        file = Path(folder, "x.tdsx")
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=level) as package:
            if extra:
                package.writestr("Data/Extracts/x.hyper", b"12")
            member = zipfile.ZipInfo("x.tds", (year, 1, 1, 0, 0, 0))
            package.writestr(member, tds, zipfile.ZIP_DEFLATED)
        return file.read_bytes()


WHOLE = read(TDS)


def test_columns():
    # Prevents: the pipeline overlooks that another user's publish has removed a column.
    assert WHOLE.columns == {("flights", "carrier"), ("air]lines", "[odd]")}


def test_work_has_names():
    # Prevents: a refusal does not name the analyst's work that an overwrite would drop.
    assert WHOLE.work == {
        "calculated fields": ("Late",),
        "captions": ("Carrier",),
        "formats": ("Carrier",),
        "descriptions": ("Carrier",),
        "aliases": ("Carrier",),
        "hidden fields": ("delay",),
        "groups and sets": ("Set 1",),
        "folders": ("Times",),
        "hierarchies": ("Where",),
        "parameters": ("Limit",),
    }
    assert read("<datasource><connection /></datasource>").work == {}


def test_several_features_of_one_element():
    """Prevents: all data sources of a site seem to be edited after an upgrade of the server."""
    style = "<style><style-rule element='mark' marks='x'/></style>"
    saved = (
        "<style><_.fcp.A.true..._.fcp.B.true...style-rule element='mark' "
        "_.fcp.A.true..._.fcp.B.true...marks='x' _.fcp.A.true..._.fcp.B.false...marks='y'/>"
        "<_.fcp.A.true..._.fcp.B.false...style-rule element='cell'/></style>"
    )
    documents = (TDS.replace("</datasource>", f"{each}</datasource>") for each in (style, saved))
    new, old = map(read, documents)
    assert new.digest == old.digest != WHOLE.digest


def test_columns_of_an_extract():
    # Prevents: packages that wrap an extract seem to have no columns.
    record = (
        "<metadata-record class='column'><remote-name>a</remote-name>"
        "<parent-name>[Extract]</parent-name></metadata-record>"
    )
    extract = f"<extract><connection>{record}</connection></extract>"
    of_a_table = f"<connection class='postgres'>{record.replace('Extract', 'a table')}</connection>"
    for around in ("", of_a_table):
        found = read(f"<datasource>{around}{extract}</datasource>")
        assert found.columns == {("Extract", "a")}
        assert found.source == ("postgres" if around else None)
    assert read("<datasource><connection /></datasource>").columns is None


@given(
    seed=st.integers(0, 2**32),
    build=st.from_regex(r"[0-9]{5}\.[0-9]{2}", fullmatch=True),
    identity=st.from_regex(r"[A-F0-9]{8}", fullmatch=True),
    level=st.integers(0, 9),
    year=st.integers(1980, 2100),
    package=st.booleans(),
    extra=st.booleans(),
    feature=st.booleans(),
)
@settings(max_examples=60)
@pytest.mark.slow
def test_what_products_write_changes_nothing(
    seed: int,
    build: str,
    identity: str,
    level: int,
    year: int,
    package: bool,
    extra: bool,
    feature: bool,
):
    # Prevents: an update or a repacking by the server passes for an analyst's edit.
    text = TDS.replace("20253.25.1021.0000", build).replace("version='18.1'", f"version='{build}'")
    text = text.replace("federated.0a1b", identity).replace("hyper.1", f"hyper.{identity}")
    text = text.replace("rev=1.4", f"rev={build}").replace("revision='1.4'", f"revision='{build}'")
    text = text.replace("flights_A", f"flights_{identity}").replace("rows='8'", "rows='9'")
    if feature:
        text = text.replace(
            "_.fcp.ObjectModelEncapsulateLegacy.true...object-graph", "object-graph"
        )
    root = ElementTree.fromstring(text)
    shuffle = random.Random(seed)
    for element in root.iter():
        attributes = list(element.attrib.items())
        shuffle.shuffle(attributes)
        element.attrib.clear()
        element.attrib.update(attributes)
    ElementTree.indent(root, " " * shuffle.randrange(5))
    written = ElementTree.tostring(root, "unicode")
    content = packed(written, level=level, year=year, extra=extra) if package else written
    assert read(content) == WHOLE


def renamed(where: str, key: str) -> Callable[[Element, str], None]:
    def change(root: Element, text: str) -> None:
        element = root if where == "." else root.find(where)
        assert element is not None
        assert key in element.attrib
        element.set(key, text)

    return change


def described(root: Element, text: str) -> None:
    run = root.find("./column/desc/formatted-text/run")
    assert run is not None
    run.text = text


def added(parent: str, tag: str) -> Callable[[Element, str], None]:
    def change(root: Element, text: str) -> None:
        element = root.find(parent)
        assert element is not None
        element.append(Element(tag, {"name": text}))

    return change


GRAPH = "./_.fcp.ObjectModelEncapsulateLegacy.true...object-graph"
EDITS: dict[str, Callable[[Element, str], None]] = {
    "the data source's caption": renamed(".", "caption"),
    "caption": renamed("./column[@name='[carrier]']", "caption"),
    "role": renamed("./column[@name='[carrier]']", "role"),
    "type": renamed("./column[@name='[carrier]']", "type"),
    "default format": renamed("./column[@name='[carrier]']", "default-format"),
    "alias": renamed("./column/aliases/alias", "value"),
    "formula": renamed("./column/calculation", "formula"),
    "hidden": renamed("./column[@hidden]", "hidden"),
    "set": renamed("./group/groupfilter", "member"),
    "hierarchy": renamed("./drill-paths/drill-path", "name"),
    "folder": renamed("./folders-common/folder", "name"),
    "folder's field": renamed("./folders-common/folder/folder-item", "name"),
    "parameter": renamed("./datasource-dependencies/column", "value"),
    "style": renamed("./style/style-rule/encoding", "type"),
    "date options": renamed("./overridable-settings/date-options", "start-of-week"),
    "relationship": renamed(f"{GRAPH}/relationships/relationship/expression/expression", "op"),
    "caption of a table": renamed(f"{GRAPH}/objects/object", "caption"),
    "description": described,
    "new column": added(".", "column"),
    "new folder": added("./folders-common", "folder"),
    "something new": added(".", "invented-in-2031"),
}


@pytest.mark.parametrize("edit", EDITS.values(), ids=EDITS)
@given(text=st.text(st.characters(min_codepoint=33, max_codepoint=0xD000), min_size=1))
@settings(max_examples=15)
def test_the_work_of_people_is_seen(edit: Callable[[Element, str], None], text: str):
    # Prevents: a full publish overwrites an analyst's work without their consent.
    root = ElementTree.fromstring(TDS)
    before = ElementTree.tostring(root)
    edit(root, text)
    changed = ElementTree.tostring(root) != before
    assert (read(ElementTree.tostring(root)).digest != WHOLE.digest) == changed


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "ends too early"),
        (b"<datasource>", "not a .tds"),
        (b"<workbook />", 'begins with "workbook"'),
        (b"<!DOCTYPE x [<!ENTITY a 'b'>]><datasource>&a;</datasource>", "not a .tds"),
        (b"PK\x03\x04 and then nothing", "ends too early"),
    ],
)
def test_what_is_none(content: bytes, message: str):
    # Prevents: a broken or malicious download ends in an error of a library.
    with pytest.raises(ValueError, match=message):
        read(content)


def test_package_without_a_tds(tmp_path: Path):
    # Prevents: a package without a .tds ends in an IndexError.
    file = tmp_path / "x.tdsx"
    with zipfile.ZipFile(file, "w") as package:
        package.writestr("x.txt", "nothing")
    with pytest.raises(ValueError, match=r"no \.tds"):
        read_metadata(tds_in(file))


@pytest.mark.parametrize(
    "attribute",
    [
        "approximate-count='7'",
        "auto-hidden='true'",
        "is-auto-gen-lod-field='true'",
        "_.fcp.Explain.true...explainability='x'",
    ],
)
def test_what_products_maintain(attribute: str):
    # Prevents: a value that the server recomputes is taken for an analyst's edit.
    for at in ("<column caption='Carrier'", "<folders-common"):
        assert read(TDS.replace(at, f"{at} {attribute}")).digest == WHOLE.digest
