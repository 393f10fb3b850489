"""VizQL Data Service: rights, computed values, and answers that Tableau leaves open."""

from collections.abc import Generator
from pathlib import Path

import pytest
import tableauserverclient as tsc

from tableau_sandbox.faults import HideRows, StaleRows
from tableau_sandbox.testing import Sandbox, running_sandbox
from tableau_sandbox_tests.conftest import ALICE
from tableau_sandbox_tests.contract.conftest import ENVIRONMENT
from tableau_sandbox_tests.contract.files import related_file
from tableau_sandbox_tests.contract.session import Session
from tableau_sandbox_tests.contract.vds import call, fields, query, refused, values
from tableau_sandbox_tests.samples import publish, signed_in, write_hyper, write_package
from tableau_sandbox_tests.test_updates import APPEND, finished, update


@pytest.fixture(scope="module")
def vds(tmp_path_factory: pytest.TempPathFactory) -> Generator[Sandbox, None, None]:
    """Yield a sandbox for all tests of this module; each test resets the quirks that it changes."""
    with running_sandbox(tmp_path_factory.mktemp("vds") / "data", users=(ALICE,)) as sandbox:
        yield sandbox


@pytest.fixture(scope="module")
def admin(vds: Sandbox) -> tsc.Server:
    """Return Tableau's own client of the administrator, who owns all data sources here."""
    return signed_in(vds)


@pytest.fixture(scope="module")
def session(vds: Sandbox) -> Session:
    """Return another session of the administrator, for requests without Tableau's client."""
    return Session(vds.url, ENVIRONMENT)


@pytest.fixture(scope="module")
def alice(vds: Sandbox) -> Session:
    """Return the session of a user who owns none of the data sources."""
    ((name, value),) = ALICE.tokens
    return Session(vds.url, {"TABLEAU_TOKEN_NAME": name, "TABLEAU_TOKEN_VALUE": value})


@pytest.fixture(scope="module")
def single(admin: tsc.Server, one_row: Path) -> str:
    """Return the LUID of a data source with the table "Extract", whose row is (1, 'one')."""
    return publish(admin, one_row, name="Single").id


COUNT = {"fieldCaption": "n", "calculation": "COUNT([id])"}
REFUSED = {
    "400800": (
        *("", "[id]", "COUNT()", "COUNT([])", "COUNT(id)", "COUNT([id]", "COUNT([id]))"),
        *("COUNT([i]d])", "COUNT([id]])", "COUNT([id],[id])", "COUNT([One].[id])"),
        *("COUNT([id]) + 1", "COUNT(1)", "SUM(1)", "AVG([id])", "\u017fUM([id])", "CO UNT([id])"),
        *("SUM(IIF(ISNULL([id]),1,0))", "SUM(IIF(ISNULL([id]),1,11))", "COUNT([id]) // rows"),
        *("COUNT([x])", "COUNT([Id])", "COUNTD([One])", "SUM(IIF(ISNULL([One]),1,1))"),
    ),
    "400803": ({**COUNT, "fieldCaption": ""},),
    "501000": ({"fieldCaption": "id"},),
}


def test_refused_queries(admin: tsc.Server, session: Session, tmp_path: Path):
    """Prevents: the sandbox answers a query that servers refuse, or whose joins are unknown."""
    file = tmp_path / "two.hyper"
    file.write_bytes(related_file('INSERT INTO "Extract"."One" VALUES (1)'))
    two = publish(admin, file, name="Two").id
    answer = query(session, two, " count ( [id]\t)", "Sum(iif(IsNull([id]) ,1, 1))")
    assert values(answer) == [1, 1]
    for code, wrong in REFUSED.items():
        for field in wrong:
            refused(query(session, two, field), code)
    alias = {**COUNT, "fieldCaption": "m", "fieldAlias": "n"}
    refused(query(session, two, COUNT, alias), "501000")
    refused(query(session, two, "COUNT([id])", "COUNT([id (Two)])"), "501000")
    refused(query(session, two, "COUNT([One])", "COUNT([Two])"), "501000")


# The document of an extract of one database table, as Tableau Desktop saves it.
RECORD = """<metadata-record class='column'><remote-name>{0}</remote-name>
  <local-name>[{1}]</local-name><local-type>{2}</local-type>
  <_.fcp.ObjectModelEncapsulateLegacy.true...object-id>[people_1]</_.fcp.ObjectModelEncapsulateLegacy.true...object-id>
</metadata-record>"""
ORIGIN = RECORD.format("ID_OF_IT", "id", "integer") + RECORD.format("NAME", "name", "string")
STORED = RECORD.format("id", "id", "integer") + RECORD.format("name", "name", "string")
TDS = f"""<datasource version='18.1'>
  <connection class='federated'><metadata-records>{ORIGIN}</metadata-records></connection>
  <column caption='Twice' datatype='integer' name='[Calculation_1]' role='measure'
      type='quantitative'><calculation class='tableau' formula='[id] * 2' /></column>
  <column caption='Number' datatype='integer' name='[id]' role='dimension' type='ordinal' />
  <column datatype='string' name='[name]' role='dimension' type='nominal' NAME />
  <extract enabled='true'><connection class='hyper' dbname='Data/e.hyper'>
    <metadata-records>{STORED}</metadata-records>
  </connection></extract>
  <_.fcp.ObjectModelEncapsulateLegacy.true...object-graph><objects>
    <object caption='People' id='people_1'>
      <properties context=''><relation name='people' table='[public].[people]' type='table' />
      </properties>
      <properties context='extract'>
        <relation name='Extract' table='[Extract].[Extract]' type='table' />
      </properties>
    </object>
  </objects></_.fcp.ObjectModelEncapsulateLegacy.true...object-graph>
</datasource>"""


def analysts(admin: tsc.Server, folder: Path, hyper: Path, name: str) -> str:
    """Publish a data source as an analyst makes it, and return its LUID.

    Args:
        name: an XML attribute to add to the field "name".
    """
    members = {"e.tds": TDS.replace("NAME />", f"{name} />"), "Data/e.hyper": hyper}
    return publish(admin, write_package(folder / "p.tdsx", members), name=f"Analyst {name}").id


def test_model_of_an_analyst(admin: tsc.Server, session: Session, tmp_path: Path, one_row: Path):
    """Prevents: a client understands only the models that our pipeline makes."""
    luid = analysts(admin, tmp_path, one_row, "hidden='true'")
    number, twice = fields(session, luid)
    assert (number["fieldName"], number["fieldCaption"]) == ("id", "Number")
    assert (number["fieldRole"], number["fieldType"]) == ("DIMENSION", "ORDINAL")
    assert number["logicalTableId"] == "people_1"
    assert (twice["columnClass"], twice["formula"]) == ("CALCULATION", "[id] * 2")
    body = {"datasource": {"datasourceLuid": luid}, "options": {"includeHiddenFields": True}}
    shown = call(session, "read-metadata", body).json()["data"]
    assert [each["hidden"] for each in shown] == [False, True, False]
    assert values(query(session, luid, "COUNT([People])", "MAX([Number])")) == [1, 1]
    named = {"interpretFieldCaptionsAsFieldNames": True}
    answer = query(session, luid, "COUNT([people_1])", "MAX([id])", options=named)
    assert values(answer) == [1, 1]
    for formula, code in (("id", "400800"), ("name", "400800"), ("Twice", "501000")):
        refused(query(session, luid, f"COUNT([{formula}])"), code)


COUNTED = "COUNT([Extract])"
ROWS = "SUM(IIF(ISNULL([id]),1,1))"
SINCE = {
    **dict.fromkeys(("debug", "disaggregate"), "20251"),
    **dict.fromkeys(("bypassMetadataCache", "interpretFieldCaptionsAsFieldNames"), "20253"),
    **dict.fromkeys(("includeHiddenFields", "includeGroupFormulas"), "20261"),
    "returnServerSentEvents": "20261",
    "withNewSession": "20262",
}


def test_capability(vds: Sandbox, admin: tsc.Server, alice: Session, session: Session, single: str):
    """Prevents: a user may query here without the capability that a real server requires."""
    item, herself = admin.datasources.get_by_id(single), tsc.UserItem.as_reference(alice.user)

    def rule(capability: str, mode: str) -> None:
        rules = [tsc.PermissionsRule(herself, {capability: mode})]
        admin.datasources.update_permissions(item, rules)

    refused(query(alice, single, COUNTED), "403800")
    refused(call(alice, "read-metadata", {"datasource": {"datasourceLuid": single}}), "403800")
    with vds.quirks(vds_access="everybody"):
        assert values(query(alice, single, COUNTED)) == [1]
    rule("VizqlDataApiAccess", "Allow")
    assert values(query(alice, single, COUNTED)) == [1]
    with vds.quirks(vds_access="nobody"):
        refused(query(alice, single, COUNTED), "403800")
        refused(query(session, single, COUNTED), "403800")
    rule("Connect", "Deny")
    refused(query(alice, single, COUNTED), "403800")
    rule("Read", "Deny")
    refused(query(alice, single, COUNTED), "404937")


@pytest.mark.parametrize("schema", ["20251", "20252", "20253", "20261", "20262"])
def test_each_version(vds: Sandbox, session: Session, single: str, schema: str):
    """Prevents: no test shows a client that older servers refuse its options."""
    with vds.quirks(vds_schema=schema):
        for option, since in SINCE.items():
            answer = query(session, single, "COUNT([id])", options={option: False})
            if schema >= since:
                assert values(answer) == [1]
            else:
                refused(answer, "400802")
        counted = query(session, single, COUNTED)
        if schema < "20261":
            refused(counted, "400800")
        else:
            assert values(counted) == [1]


def test_answers_to_empty_aggregates(
    vds: Sandbox, admin: tsc.Server, session: Session, single: str, tmp_path: Path
):
    """Prevents: a client is tested with only one answer to an aggregate over no rows."""
    file = write_hyper(tmp_path / "empty.hyper", "SELECT 1 AS id WHERE FALSE")
    empty = publish(admin, file, name="Empty").id
    assert values(query(session, empty, ROWS)) == []
    with vds.quirks(vds_empty="zero"):
        assert values(query(session, empty, COUNTED, ROWS)) == [0, None]
    with vds.quirks(vds_empty="error"):
        refused(query(session, empty, COUNTED), "500810")
        assert values(query(session, single, COUNTED)) == [1]


def test_rows_that_the_user_may_not_see(
    vds: Sandbox, admin: tsc.Server, session: Session, single: str, two_rows: Path
):
    """Prevents: a client reports lost rows, but its user may not see these rows."""
    double = publish(admin, two_rows, name="Double").id
    with vds.armed(HideRows(rows=1)) as fault:
        assert values(query(session, double, COUNTED)) == [1]
        assert values(query(session, single, COUNTED)) == []
        assert fault.fired == 2


def test_answers_of_before_a_change(
    vds: Sandbox, admin: tsc.Server, session: Session, one_row: Path
):
    """Prevents: a client reads counts from before its update, and reports a lost update."""
    item = publish(admin, one_row, name="Stale")

    def counts(times: int) -> list[int]:
        return [values(query(session, item.id, COUNTED))[0] for _ in range(times)]

    with vds.armed(StaleRows(times=3)):
        assert counts(1) == [1]
        finished(admin, update(admin, item, APPEND, payload=one_row))
        assert counts(3) == [1, 1, 2]
    with vds.armed(StaleRows()):
        publish(admin, one_row, name="Stale", mode="Overwrite")
        assert counts(2) == [2, 1]
