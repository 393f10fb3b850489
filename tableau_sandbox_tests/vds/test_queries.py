"""What queries compute of published data, and what they refuse."""

from pathlib import Path

import tableauserverclient as tsc
from tableauhyperapi import escape_name

from tableau_sandbox_tests.contract.files import related_file
from tableau_sandbox_tests.contract.session import Session
from tableau_sandbox_tests.contract.vds import call, fields, query, refused, values
from tableau_sandbox_tests.samples import execute, publish, write_package

TYPES = {
    "NUMERIC(18, 2)": ("0.1", 0.1),
    "DOUBLE PRECISION": ("'NaN'", None),
    "CHAR(3)": ("'ab'", "ab "),
    "BOOL": ("TRUE", True),
    "DATE": ("'0001-01-01'", "0001-01-01"),
    "TIMESTAMP": ("'2024-02-29 23:59:59.999990'", "2024-02-29T23:59:59.99999"),
    "TIMESTAMPTZ": ("'2024-02-29 23:59:59+02'", "2024-02-29T21:59:59"),
}
UNKNOWN = ("TIME", "BYTES", "GEOGRAPHY")


def test_types(admin: tsc.Server, session: Session, tmp_path: Path):
    """Prevents: a value that is no JSON, or an answer about a type that nobody knows."""
    columns = ", ".join(f"{escape_name(each)} {each}" for each in (*TYPES, *UNKNOWN))
    row = ", ".join(f"CAST({sql} AS {kind})" for kind, (sql, _) in TYPES.items())
    file = execute(
        tmp_path / "types.hyper",
        f'CREATE TABLE "Extract"."Extract" ({columns})',
        f'INSERT INTO "Extract"."Extract" VALUES ({row}, NULL, NULL, NULL)',
    )
    luid = publish(admin, file, name="Types").id
    answer = query(session, luid, *(f"MAX([{each}])" for each in TYPES))
    assert values(answer) == [value for _, value in TYPES.values()]
    for unknown in UNKNOWN:
        refused(query(session, luid, f"MAX([{unknown}])"), "400800")
        assert values(query(session, luid, f"SUM(IIF(ISNULL([{unknown}]),1,1))")) == [1]


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
    """Prevents: a query is answered that a server refuses, or whose joins nobody knows."""
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


# As Tableau Desktop saves an extract of one table of a database.
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
    """Publish a data source as an analyst made it, with an attribute of the field "name"."""
    members = {"e.tds": TDS.replace("NAME />", f"{name} />"), "Data/e.hyper": hyper}
    return publish(admin, write_package(folder / "p.tdsx", members), name=f"Analyst {name}").id


def test_model_of_an_analyst(admin: tsc.Server, session: Session, tmp_path: Path, one_row: Path):
    """Prevents: a client that knows our own models only is lost in those that people made."""
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
