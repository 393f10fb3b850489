from collections.abc import Callable

import pytest
import tableauserverclient as TSC

from tableau_pipeline.core.server import RemoteDatasource
from tableau_pipeline.errors import RefusedError
from tableau_pipeline.publishing import about
from tableau_pipeline.publishing.session import Password
from tableau_pipeline.publishing.site import TableauSite
from tableau_pipeline_tests.publishing.conftest import VIEWER, SignIn
from tableau_sandbox.testing import Sandbox


def test_groups_and_users_by_name(tableau: TableauSite, sign_in: SignIn, name: str):
    # Prevents: permissions go to nobody, or to somebody else; or nothing tells what to do instead.
    made = str(tableau.tsc.groups.create(TSC.GroupItem(name)).id)
    found = [about.grantee(tableau, "group", each) for each in (name.upper(), made, "Nobody")]
    assert found == [made, made, None]
    vera = about.grantee(tableau, "user", VIEWER.name)
    assert about.user_name(tableau, str(vera)) == VIEWER.name
    with (
        sign_in(Password(VIEWER.name, VIEWER.password)) as hers,
        pytest.raises(RefusedError, match="write its LUID"),
    ):
        about.grantee(hers, "user", "admin")


def test_change_of_properties(tableau: TableauSite, sales: RemoteDatasource):
    # Prevents: a change of one property takes another along, or what is gone in YAML stays.
    luid, seen = sales.luid, []
    vera = str(about.grantee(tableau, "user", VIEWER.name))
    for change in (
        {"description": "All <sales> & more"},
        {"isCertified": "true", "certificationNote": "Equal"},
        {"certificationNote": ""},
        {"description": "", "isCertified": "false"},
        {"owner": vera},
    ):
        about.describe(tableau, luid, **change)
        found = tableau.find_by_luid(luid)
        assert found is not None
        seen.append((found.description, found.certification, found.owner_id == vera))
    text = "All <sales> & more"
    assert seen == [
        (text, None, False),
        (text, "Equal", False),
        (text, "", False),
        ("", None, False),
        ("", None, True),
    ]


def test_change_of_permissions(tableau: TableauSite, sales: RemoteDatasource):
    # Prevents: what was allowed stays so although it is to be denied, or other rules go with it.
    before = about.permissions(tableau, sales.luid)
    ((_, everyone, _), *_) = before
    read, query = (("group", everyone, each) for each in ("Read", "VizqlDataApiAccess"))
    mine = ("user", tableau.user_id, "Write")
    added = {read: "Deny", query: "Allow", mine: "Allow"}
    about.set_permissions(tableau, sales.luid, added, remove={read: "Allow"})
    assert about.permissions(tableau, sales.luid) == before | added
    about.set_permissions(tableau, sales.luid, {}, remove={query: "Allow", mine: "Allow"})
    assert about.permissions(tableau, sales.luid) == before | {read: "Deny"}


def test_quality_warnings(tableau: TableauSite, sales: RemoteDatasource, sandbox: Sandbox):
    # Prevents: a warning stays after the data are fresh, or a person's goes with ours.
    item = tableau.tsc.datasources.get_by_id(sales.luid)
    tableau.tsc.datasources.add_dqw(item, TSC.DQWItem("SENSITIVE_DATA", "Salaries"))
    about.add_quality_warning(tableau, sales.luid, "Old")
    (hers, _), (ours, message) = about.quality_warnings(tableau, sales.luid)
    assert message == "Old"
    about.remove_quality_warning(tableau, ours)
    assert about.quality_warnings(tableau, sales.luid) == [(hers, "Salaries")]
    refused: list[Callable[[], object]] = [
        lambda: about.quality_warnings(tableau, sales.luid),
        lambda: about.add_quality_warning(tableau, sales.luid, "Old"),
    ]
    with sandbox.quirks(data_management=False):
        for call in refused:
            with pytest.raises(RefusedError, match="403157"):
                call()
