"""Rules that locks of projects around a data source replace."""

from typing import Any

import pytest

from tableau_sandbox.access import (
    LOCKED,
    LOCKED_WITHOUT_NESTED,
    MANAGED_BY_OWNER,
    Access,
    Rule,
    RuleSet,
    Subject,
)
from tableau_sandbox.store.records import Datasource, Project, User

OF_D = RuleSet("d", Subject.DATASOURCE)
PLACES = ("top", "outer", "inner")
OF_TOP, OF_OUTER, OF_INNER = (RuleSet(luid, Subject.PROJECT) for luid in PLACES)
IN_TOP, IN_OUTER, IN_INNER = (RuleSet(luid, Subject.DEFAULTS) for luid in PLACES)
ALLOW = ("ann", "Read", "Allow")
LEADS = ("ann", "ProjectLeader", "Allow")
FREE = (MANAGED_BY_OWNER,) * 3


def may_read(thing: str, rules: dict[RuleSet, tuple], *, locks: tuple[str, ...]) -> bool:
    """Whether "ann" may read "d", in "inner", in "outer", in "top", or one of these projects."""

    def project(luid: str, parent: str | None, lock: str) -> Project:
        return Project(luid, "s", parent, "boss", luid, "", lock, "", "")

    blank: dict[str, Any] = dict.fromkeys(Datasource.__dataclass_fields__, "")
    around = zip(PLACES, (None, *PLACES), locks, strict=False)
    projects = {luid: project(luid, parent, lock) for luid, parent, lock in around}
    access = Access(
        projects=projects,
        rules_of=lambda of: [Rule(*each) for each in rules.get(of, ())],
        groups_of=lambda _: (),
    )
    one = Datasource(**blank | {"luid": "d", "project": "inner", "owner": "boss"})
    return access.may(
        User("ann", "ann", "Creator"), "Read", one if thing == "d" else projects[thing]
    )


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
    found = {each for each in every if may_read(thing, {each: (ALLOW,)}, locks=locks)}
    assert found == {counts}
    # Leadership of the inner project is a rule about it, too.
    assert may_read("d", {OF_INNER: (LEADS,)}, locks=locks) is (LOCKED not in locks[:2])
