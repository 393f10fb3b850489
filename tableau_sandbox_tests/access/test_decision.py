"""The one decision about rights: how roles, owners, leaders, rules and locks count together."""

from typing import Any

import pytest

from tableau_sandbox.access import (
    CEILINGS,
    LOCKED,
    LOCKED_WITHOUT_NESTED,
    MANAGED_BY_OWNER,
    OF_DATASOURCES,
    Access,
    Rule,
    RuleSet,
    Subject,
)
from tableau_sandbox.store.records import SITE_ROLES, Datasource, Project, User

OF_D = RuleSet("d", Subject.DATASOURCE)
PLACES = ("top", "outer", "inner")
OF_TOP, OF_OUTER, OF_INNER = (RuleSet(luid, Subject.PROJECT) for luid in PLACES)
IN_TOP, IN_OUTER, IN_INNER = (RuleSet(luid, Subject.DEFAULTS) for luid in PLACES)
ALLOW, DENY = ("ann", "Read", "Allow"), ("ann", "Read", "Deny")
LEADS = ("ann", "ProjectLeader", "Allow")
ONE_MAY, ONE_MAY_NOT = ("everyone", "Read", "Allow"), ("others", "Read", "Deny")
FREE = (MANAGED_BY_OWNER,) * 3


def may(
    capability: str,
    thing: str,
    rules: dict[RuleSet, tuple],
    *,
    locks: tuple[str, ...] = FREE,
    role: str = "Creator",
    **owners: str,
) -> bool:
    """Whether "ann", in two groups, may do it with "d", in "inner", in "outer", in "top"."""

    def project(luid: str, parent: str | None, lock: str) -> Project:
        return Project(luid, "s", parent, owners.get(luid, "boss"), luid, "", lock, "", "")

    blank: dict[str, Any] = dict.fromkeys(Datasource.__dataclass_fields__, "")
    facts = {"luid": "d", "project": "inner", "owner": owners.get("d", "boss")}
    around = zip(PLACES, (None, *PLACES), locks, strict=False)
    projects = {luid: project(luid, parent, lock) for luid, parent, lock in around}
    access = Access(
        projects=projects,
        rules_of=lambda of: [Rule(*each) for each in rules.get(of, ())],
        groups_of=lambda _: ("everyone", "others"),
    )
    asked = Datasource(**{**blank, **facts}) if thing == "d" else projects[thing]
    return access.may(User("ann", "ann", role), capability, asked)


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        ({}, False),
        ({OF_D: (ALLOW,)}, True),
        ({OF_D: (ONE_MAY,)}, True),
        ({OF_D: (ONE_MAY, ONE_MAY_NOT)}, False),
        ({OF_D: (ONE_MAY_NOT, ALLOW)}, True),
        ({OF_D: (ONE_MAY, DENY)}, False),
        ({OF_D: (("ann", "Write", "Allow"),)}, False),
        ({OF_OUTER: (LEADS,)}, True),
        ({OF_INNER: (LEADS,), OF_D: (DENY,)}, True),
        ({IN_INNER: (ALLOW,), OF_INNER: (ALLOW,)}, False),
    ],
)
def test_rules(rules: dict, expected: bool):
    """Prevents: a group counts before its user, or a denial after what another group may."""
    assert may("Read", "d", rules) is expected


NONE, WITHOUT = MANAGED_BY_OWNER, LOCKED_WITHOUT_NESTED


@pytest.mark.parametrize(
    ("locks", "thing", "counts"),
    [
        (FREE, "d", OF_D),
        (FREE, "inner", OF_INNER),
        ((NONE, NONE, WITHOUT), "d", IN_INNER),
        ((NONE, NONE, WITHOUT), "inner", OF_INNER),
        ((NONE, WITHOUT, NONE), "d", OF_D),
        ((NONE, NONE, LOCKED), "d", IN_INNER),
        ((NONE, LOCKED, NONE), "d", IN_OUTER),
        ((NONE, LOCKED, NONE), "inner", OF_OUTER),
        ((NONE, LOCKED, NONE), "outer", OF_OUTER),
        ((NONE, LOCKED, WITHOUT), "d", IN_OUTER),
        ((LOCKED, LOCKED, LOCKED), "d", IN_TOP),
        ((LOCKED, LOCKED, NONE), "inner", OF_TOP),
    ],
)
def test_locks(locks: tuple[str, ...], thing: str, counts: RuleSet):
    """Prevents: a rule counts that a lock has replaced, or one that replaces it does not."""
    every = (OF_D, OF_TOP, OF_OUTER, OF_INNER, IN_TOP, IN_OUTER, IN_INNER)
    found = {each for each in every if may("Read", thing, {each: (ALLOW,)}, locks=locks)}
    assert found == {counts}
    # Leadership of the inner project is a rule about it, too.
    assert may("Read", "d", {OF_INNER: (LEADS,)}, locks=locks) is (LOCKED not in locks[:2])


def test_owners_and_roles():
    """Prevents: an owner lacks a right, or a rule gives more than a site role."""
    assert all(may("Delete", "d", {}, **{owned: "ann"}) for owned in (*PLACES, "d"))
    assert not may("Write", "inner", {}, d="ann")
    assert may("Delete", "d", {}, role="SiteAdministratorExplorer")
    everything = {OF_D: tuple(("ann", each, "Allow") for each in OF_DATASOURCES)}
    for role in SITE_ROLES:
        found = {each for each in OF_DATASOURCES if may(each, "d", everything, role=role)}
        assert found == CEILINGS[role] & OF_DATASOURCES
