"""Who may query, what Tableau leaves open about the answers, and faults of queries."""

from pathlib import Path

import pytest
import tableauserverclient as tsc

from tableau_sandbox.faults import HideRows, StaleRows
from tableau_sandbox.testing import Sandbox
from tableau_sandbox_tests.contract.session import Session
from tableau_sandbox_tests.contract.vds import call, query, refused, values
from tableau_sandbox_tests.samples import publish, write_hyper
from tableau_sandbox_tests.updates.test_update_data import APPEND, finished, update

QUERY = "vizql-data-service/query-datasource"
COUNT = "COUNT([Extract])"
ROWS = "SUM(IIF(ISNULL([id]),1,1))"
SINCE = {
    **dict.fromkeys(("debug", "disaggregate"), "20251"),
    **dict.fromkeys(("bypassMetadataCache", "interpretFieldCaptionsAsFieldNames"), "20253"),
    **dict.fromkeys(("includeHiddenFields", "includeGroupFormulas"), "20261"),
    "returnServerSentEvents": "20261",
    "withNewSession": "20262",
}


def test_capability(vds: Sandbox, admin: tsc.Server, alice: Session, session: Session, single: str):
    """Prevents: whoever sees a data source may query it here, and is refused in production."""
    item, herself = admin.datasources.get_by_id(single), tsc.UserItem.as_reference(alice.user)

    def rule(capability: str, mode: str) -> None:
        rules = [tsc.PermissionsRule(herself, {capability: mode})]
        admin.datasources.update_permissions(item, rules)

    refused(query(alice, single, COUNT), "403800")
    refused(call(alice, "read-metadata", {"datasource": {"datasourceLuid": single}}), "403800")
    with vds.quirks(vds_access="everybody"):
        assert values(query(alice, single, COUNT)) == [1]
    rule("VizqlDataApiAccess", "Allow")
    assert values(query(alice, single, COUNT)) == [1]
    with vds.quirks(vds_access="nobody"):
        refused(query(alice, single, COUNT), "403800")
        refused(query(session, single, COUNT), "403800")
    rule("Connect", "Deny")
    refused(query(alice, single, COUNT), "403800")
    rule("Read", "Deny")
    refused(query(alice, single, COUNT), "404937")


@pytest.mark.parametrize("schema", ["20251", "20252", "20253", "20261", "20262"])
def test_each_version(vds: Sandbox, session: Session, single: str, schema: str):
    """Prevents: a client sends what older servers refuse, and never learns of it."""
    with vds.quirks(vds_schema=schema):
        for option, since in SINCE.items():
            answer = query(session, single, "COUNT([id])", options={option: False})
            if schema >= since:
                assert values(answer) == [1]
            else:
                refused(answer, "400802")
        counted = query(session, single, COUNT)
        if schema < "20261":
            refused(counted, "400800")
        else:
            assert values(counted) == [1]


def test_answers_to_empty_aggregates(
    vds: Sandbox, admin: tsc.Server, session: Session, single: str, tmp_path: Path
):
    """Prevents: a client knows one form of zero only."""
    file = write_hyper(tmp_path / "empty.hyper", "SELECT 1 AS id WHERE FALSE")
    empty = publish(admin, file, name="Empty").id
    assert values(query(session, empty, ROWS)) == []
    with vds.quirks(vds_empty="zero"):
        assert values(query(session, empty, COUNT, ROWS)) == [0, None]
    with vds.quirks(vds_empty="error"):
        refused(query(session, empty, COUNT), "500810")
        assert values(query(session, single, COUNT)) == [1]


def test_rows_that_the_user_may_not_see(
    vds: Sandbox, admin: tsc.Server, session: Session, single: str, two_rows: Path
):
    """Prevents: a client calls rows lost that only its user cannot see."""
    double = publish(admin, two_rows, name="Double").id
    with vds.armed(HideRows(rows=1)) as fault:
        assert values(query(session, double, COUNT)) == [1]
        assert values(query(session, single, COUNT)) == []
        assert fault.fired == 2


def test_answers_of_before_a_change(
    vds: Sandbox, admin: tsc.Server, session: Session, one_row: Path
):
    """Prevents: a client compares counts of before its update, and calls the update lost."""
    item = publish(admin, one_row, name="Stale")

    def counts(times: int) -> list[int]:
        return [values(query(session, item.id, COUNT))[0] for _ in range(times)]

    with vds.armed(StaleRows(times=3)):
        assert counts(1) == [1]
        finished(admin, update(admin, item, APPEND, payload=one_row))
        assert counts(3) == [1, 1, 2]
    with vds.armed(StaleRows()):
        publish(admin, one_row, name="Stale", mode="Overwrite")
        assert counts(2) == [2, 1]
