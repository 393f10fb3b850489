"""The form in which a server of release 2025.3 returns a published `.tds`."""

import zipfile
from pathlib import Path
from typing import Any

import pytest
import tableauserverclient as tsc

from tableau_sandbox.content.served import served_path, served_tds
from tableau_sandbox.content.tds import inspect_tds
from tableau_sandbox.testing import Sandbox
from tableau_sandbox_tests.contract.files import related_file
from tableau_sandbox_tests.samples import publish, signed_in, tds_of, write_package

PATH = "Data/WI/World Indicators.hyper"
# A document as Tableau Desktop saves it, and as a server returns it.
SAVED = """<?xml version='1.0' encoding='utf-8' ?>

<!-- build 20203.20.1018.2303  <connection> -->
<datasource inline='true' xmlns:user='http://www.tableausoftware.com/xml/user'>
  <document-format-change-manifest>
    <_.fcp.ObjectModelEncapsulateLegacy.true...ObjectModelEncapsulateLegacy />
    <_.fcp.SchemaViewerObjectModel.false.../>
  </document-format-change-manifest>
  <connection class='federated'>
    <_.fcp.Legacy.false...relation name='a > b'><old /></_.fcp.Legacy.false...relation>
    <_.fcp.Legacy.true...relation name='a > b' />
    <named-connections>
      <named-connection name='h'>
        <connection class='hyper' dbname='C:\\Data\\World Indicators.hyper' sslmode='' />
      </named-connection>
      <named-connection name='i'>
        <connection access_mode='all' class='hyper' dbname='C:\\Data\\Other.hyper' sslmode='' />
      </named-connection>
    </named-connections>
  </connection>
  <column caption="It's &lt;mine>&#10;" datatype = 'real' name='[Calc]'>
    <calculation formula='[a] &gt; &quot;x&quot;&#13;&#10;// old' />
    <desc><formatted-text><run>One

 two</run></formatted-text></desc><![CDATA[ <kept> ]]>
  </column>
  <_.fcp.SchemaViewerObjectModel.false...folder name='F'>
    <folder-item name='[Calc]' />
  </_.fcp.SchemaViewerObjectModel.false...folder>
  <_.fcp.SchemaViewerObjectModel.true...folders-common>
    <folder name='F' />
  </_.fcp.SchemaViewerObjectModel.true...folders-common>
  <extract _.fcp.V.true...user-specific='false' _.fcp.V.false...x='1' enabled='true'>
    <connection access_mode='readonly' class='hyper' dbname='Data/WI/World Indicators.hyper'
     schema='Extract' sslmode='' username='me'>
      <relation name='Extract' table='[Extract].[Extract]' type='table' />
    </connection>
  </extract>
  <layout _.fcp.SchemaViewerObjectModel.false...dim-percentage='0.5' dim-ordering='alphabetic' />
</datasource>
"""
SERVED = """<?xml version='1.0' encoding='utf-8' ?>

<!-- build 20203.20.1018.2303  <connection> -->
<datasource inline='true' xml:base='https://tableau-sandbox.example.com' xmlns:user='http://www.tableausoftware.com/xml/user'>
  <document-format-change-manifest>
    <ObjectModelEncapsulateLegacy />
  </document-format-change-manifest>
  <repository-location id='WorldIndicators' path='/t/shop/datasources' revision='1.0' site='shop' />
  <connection class='federated'>
    <relation name='a > b' />
    <named-connections>
      <named-connection name='h'>
        <connection class='hyper' dbname='Data/Extracts/World Indicators.hyper' sslmode='' />
      </named-connection>
      <named-connection name='i'>
        <connection access_mode='all' class='hyper' dbname='C:\\Data\\Other.hyper' sslmode='' />
      </named-connection>
    </named-connections>
  </connection>
  <column caption="It's &lt;mine>&#10;" datatype = 'real' name='[Calc]'>
    <calculation formula='[a] &gt; &quot;x&quot;&#13;&#10;// old' />
    <desc><formatted-text><run>One

 two</run></formatted-text></desc><![CDATA[ <kept> ]]>
  </column>
  <folders-common>
    <folder name='F' />
  </folders-common>
  <extract user-specific='false' enabled='true'>
    <connection class='hyper' dbname='Data/Extracts/World Indicators.hyper'
     schema='Extract'>
      <relation name='Extract' table='[Extract].[Extract]' type='table' />
    </connection>
  </extract>
  <layout dim-ordering='alphabetic' />
</datasource>
"""


def served(tds: str, *, path: str = PATH, encoding: str = "utf-8", **more: str) -> str:
    place = {"content_url": "WorldIndicators", "site": "shop"} | more
    content = served_tds(tds.encode(encoding), packaged_path=path, **place)
    inspect_tds(content)
    return content.decode(encoding)


def test_form_of_a_server():
    """Prevents: the sandbox returns a form of `.tds` that no server uses, or drops users' work."""
    assert served(SAVED) == SERVED
    assert served(SERVED, path=served_path(PATH)) == SERVED


@pytest.mark.parametrize(
    ("saved", "expected"),
    [
        (
            "<datasource xml:base='https://old'><repository-location id='Old' derived-from='x' />"
            "<connection class='postgres' dbname='d' /></datasource>",
            "<datasource xml:base='https://tableau-sandbox.example.com'>"
            "<repository-location id='S' path='/datasources' revision='1.0' />"
            "<connection class='postgres' dbname='d' /></datasource>",
        ),
        (
            "<datasource>\r\n\t<document-format-change-manifest/>\r\n\t"
            "<_.fcp.A.true..._.fcp.B.false...x>t</_.fcp.A.true..._.fcp.B.false...x>\r\n\t"
            "<connection class='x' a='1' _.fcp.A.true...a='2'\n/>\r\n</datasource>",
            "<datasource xml:base='https://tableau-sandbox.example.com'>\r\n\t"
            "<document-format-change-manifest/>\r\n\t"
            "<repository-location id='S' path='/datasources' revision='1.0' />\r\n\t"
            "<connection class='x' a='2'\n/>\r\n</datasource>",
        ),
        (
            "<datasource>text<!-- ' --><connection class='x'/></datasource>",
            "<datasource xml:base='https://tableau-sandbox.example.com'>text<!-- ' -->"
            "<repository-location id='S' path='/datasources' revision='1.0' />"
            "<connection class='x'/></datasource>",
        ),
    ],
)
def test_other_documents(saved: str, expected: str):
    """Prevents: the sandbox breaks a document that has no manifest or comes from a server."""
    assert served(saved, path="", content_url="S", site="") == expected
    assert served(expected, path="", content_url="S", site="") == expected


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "iso-8859-1"])
def test_encodings(encoding: str):
    """Prevents: characters of a document or of its name change, or cause an error."""
    declared = encoding.removesuffix("-sig")
    tds = f"<?xml version='1.0' encoding='{declared}'?><datasource><connection class='\xe9' />"
    found = served(f"{tds}</datasource>", encoding=encoding, content_url="\u03a9")
    assert "class='\xe9'" in found
    assert ("id='\u03a9'" in found) == (declared != "iso-8859-1")
    assert ("id='&#937;'" in found) == (declared == "iso-8859-1")


def test_round_trips(start_sandbox: Any, tmp_path: Path, one_row: Path):
    """Prevents: a document from a server changes when it is published again, or loses its data."""
    sandbox: Sandbox = start_sandbox(sites=("shop",))
    auth = tsc.TableauAuth(sandbox.user, sandbox.password, "shop")
    server = signed_in(sandbox, auth)
    star = tmp_path / "star.hyper"
    star.write_bytes(related_file())
    package = write_package(tmp_path / "p.tdsx", {"World.tds": SAVED, PATH: one_row})
    bare = tds_of(server, publish(server, star, name="Star of tables").id, tmp_path)
    for name, file, model in (
        ("World Indicators", package, SERVED),
        ("Star of tables", star, bare),
    ):
        for mode in ("Overwrite", "Overwrite"):
            item = publish(server, file, name=name, mode=mode)
            file = Path(server.datasources.download(item.id, str(tmp_path / "again")))
            with zipfile.ZipFile(file) as archive:
                names = [f"{name.replace(' ', '')}.tds", f"Data/Extracts/{name}.hyper"]
                assert archive.namelist() == names
                assert archive.read(names[0]).decode() == model
