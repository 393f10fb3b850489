from pathlib import Path

import pytest
import tableauserverclient as tsc

from tableau_sandbox.testing import Sandbox
from tableau_sandbox_tests.samples import publish, write_package
from tableau_sandbox_tests.vds.service.asking import ask, count_of, query, refused

# As Tableau Desktop saves an extract of one table of a database, here by other hands.
TDS = """<datasource version='18.1'>
  <connection class='federated'>
    <named-connections><named-connection name='postgres.1'><connection class='postgres' />
    </named-connection></named-connections>
    <metadata-records>
      <metadata-record class='column'>
        <remote-name>ID_OF_IT</remote-name><local-name>[id]</local-name>
        <parent-name>[people]</parent-name><local-type>integer</local-type>
        <_.fcp.ObjectModelEncapsulateLegacy.true...object-id>[people_1]</_.fcp.ObjectModelEncapsulateLegacy.true...object-id>
      </metadata-record>
      <metadata-record class='column'>
        <remote-name>NAME</remote-name><local-name>[name]</local-name>
        <parent-name>[people]</parent-name><local-type>string</local-type>
        <_.fcp.ObjectModelEncapsulateLegacy.true...object-id>[people_1]</_.fcp.ObjectModelEncapsulateLegacy.true...object-id>
      </metadata-record>
    </metadata-records>
  </connection>
  <column caption='Twice' datatype='integer' name='[Calculation_1]' role='measure'
      type='quantitative'><calculation class='tableau' formula='[id] * 2' /></column>
  <column caption='Number' datatype='integer' name='[id]' role='dimension' type='ordinal' />
  <column datatype='string' name='[name]' role='dimension' type='nominal' %s />
  <_.fcp.ObjectModelTableType.true...column caption='People' datatype='table'
      name='[__tableau_internal_object_id__].[people_1]' role='measure' type='quantitative' />
  <extract enabled='true'>
    <connection class='hyper' dbname='Data/e.hyper'>
      <metadata-records>
        <metadata-record class='column'>
          <remote-name>id</remote-name><local-name>[id]</local-name>
          <parent-name>[Extract]</parent-name><local-type>integer</local-type>
        </metadata-record>
        <metadata-record class='column'>
          <remote-name>name</remote-name><local-name>[name]</local-name>
          <parent-name>[Extract]</parent-name><local-type>string</local-type>
        </metadata-record>
      </metadata-records>
    </connection>
  </extract>
  <_.fcp.ObjectModelEncapsulateLegacy.true...object-graph>
    <objects><object caption='People' id='people_1'>
      <properties context=''>
        <relation connection='postgres.1' name='people' table='[public].[people]' type='table' />
      </properties>
      <properties context='extract'>
        <relation name='Extract' table='[Extract].[Extract]' type='table' />
      </properties>
    </object></objects>
  </_.fcp.ObjectModelEncapsulateLegacy.true...object-graph>
</datasource>"""


def published(server: tsc.Server, folder: Path, hyper: Path, tds: str, name: str) -> str:
    package = write_package(folder / "p.tdsx", {"e.tds": tds, "Data/e.hyper": hyper})
    return publish(server, package, name=name).id


def test_model_of_an_analyst(vds: Sandbox, admin: tsc.Server, tmp_path: Path, one_row: Path):
    """Prevents: a client that knows our own models only is lost in those that people made."""
    luid = published(admin, tmp_path, one_row, TDS % "hidden='true'", "Analyst")
    body = {"datasource": {"datasourceLuid": luid}}
    model = ask(vds, admin, "get-datasource-model", body).json()
    assert model["logicalTables"] == [{"logicalTableId": "people_1", "caption": "People"}]
    fields = ask(vds, admin, "read-metadata", body).json()["data"]
    assert [(each["fieldName"], each["fieldCaption"]) for each in fields] == [
        ("id", "Number"),
        ("Calculation_1", "Twice"),
    ]
    number, twice = fields
    assert (number["fieldRole"], number["fieldType"]) == ("DIMENSION", "ORDINAL")
    assert (twice["columnClass"], twice["formula"]) == ("CALCULATION", "[id] * 2")
    whole = ask(vds, admin, "read-metadata", {**body, "options": {"includeHiddenFields": True}})
    assert [each["hidden"] for each in whole.json()["data"]] == [False, True, False]
    assert count_of(vds, admin, luid, "COUNT([People])") == 1
    assert count_of(vds, admin, luid, "MAX([Number])") == 1
    named = {"interpretFieldCaptionsAsFieldNames": True}
    assert count_of(vds, admin, luid, "COUNT([people_1])", options=named) == 1
    assert count_of(vds, admin, luid, "MAX([id])", options=named) == 1
    for field, code in (("id", "400803"), ("name", "400803"), ("Twice", "501000")):
        assert refused(query(vds, admin, luid, {"fieldCaption": field})) == code


def test_captions_that_are_not_unique(
    vds: Sandbox, admin: tsc.Server, tmp_path: Path, one_row: Path
):
    """Prevents: one of two fields with a caption is asked, and nobody knows which."""
    luid = published(admin, tmp_path, one_row, TDS % "caption='Number'", "Twins")
    assert refused(query(vds, admin, luid, {"fieldCaption": "Number"})) == "404935"


@pytest.mark.parametrize("endpoint", ["read-metadata", "get-datasource-model"])
def test_data_that_are_elsewhere(vds: Sandbox, admin: tsc.Server, tmp_path: Path, endpoint: str):
    """Prevents: a live data source, whose data the sandbox does not have, fails the service."""
    file = tmp_path / "live.tds"
    file.write_text(TDS.partition("<extract")[0] % "" + "</datasource>")
    luid = publish(admin, file, name=f"Live {endpoint}").id
    answer = ask(vds, admin, endpoint, {"datasource": {"datasourceLuid": luid}})
    assert answer.status_code == 200
    assert refused(query(vds, admin, luid, {"fieldCaption": "Number"})) == "501000"
