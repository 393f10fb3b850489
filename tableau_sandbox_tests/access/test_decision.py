"""The one decision about rights, against a plain model: Tableau's order, written step by step."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tableau_sandbox.access import (
    CEILINGS,
    DOWNLOAD,
    OF_PROJECTS,
    SITE_ROLES,
    Access,
    Rule,
    RuleSet,
    Subject,
)
from tableau_sandbox.store.records import Datasource, Project, User

PEOPLE = ("ann", "bob")
GROUPS = ("everyone", "others")
LOCKS = ("ManagedByOwner", "LockedToProject", "LockedToProjectWithoutNested")
# Few, so that rules meet each other.
CAPABILITIES = sorted(OF_PROJECTS | {DOWNLOAD})


@dataclass(frozen=True)
class World:
    """Three nested projects, the outermost first, and a data source in one of them."""

    owners: tuple[str, ...]
    locks: tuple[str, ...]
    depth: int
    datasource_owner: str
    members: Mapping[str, frozenset[str]]
    rules: Mapping[RuleSet, Mapping[tuple[str, str], str]]

    def rules_at(self, luid: str, subject: Subject) -> Mapping[tuple[str, str], str]:
        return self.rules.get(RuleSet(luid, subject), {})


def outermost_lock(world: World, depth: int) -> int | None:
    """The outermost project, down to this one, that locks all that is nested in it."""
    return next((at for at in range(depth + 1) if world.locks[at] == "LockedToProject"), None)


def rules_about_project(world: World, depth: int) -> Mapping[tuple[str, str], str]:
    locked = outermost_lock(world, depth - 1)
    return world.rules_at(f"p{depth if locked is None else locked}", Subject.PROJECT)


def rules_about_datasource(world: World) -> Mapping[tuple[str, str], str]:
    locked = outermost_lock(world, world.depth)
    if locked is None and world.locks[world.depth] != "ManagedByOwner":
        locked = world.depth
    if locked is None:
        return world.rules_at("d", Subject.DATASOURCE)
    return world.rules_at(f"p{locked}", Subject.DEFAULTS)


def evaluated(
    world: World, rules: Mapping[tuple[str, str], str], person: str, capability: str
) -> bool:
    own = rules.get((person, capability))
    of_groups = {
        rules.get((group, capability)) for group in GROUPS if person in world.members[group]
    }
    # A user's own rule, then what a group is denied, then what a group is allowed.
    return own == "Allow" if own else "Deny" not in of_groups and "Allow" in of_groups


def allowed(world: World, person: str, role: str, capability: str, *, depth: int | None) -> bool:
    """The model: `depth` is that of a project; None asks for the data source."""
    if capability not in CEILINGS[role]:
        return False
    if "Administrator" in role:
        return True
    for at in range((world.depth if depth is None else depth) + 1):
        if world.owners[at] == person:
            return True
        if evaluated(world, rules_about_project(world, at), person, "ProjectLeader"):
            return True
    if depth is not None:
        return evaluated(world, rules_about_project(world, depth), person, capability)
    if world.datasource_owner == person:
        return True
    return evaluated(world, rules_about_datasource(world), person, capability)


def records(world: World) -> tuple[dict[str, Project], Datasource]:
    projects = {
        f"p{at}": Project(
            f"p{at}", "site", f"p{at - 1}" if at else None, owner, f"p{at}", "", lock, "", ""
        )
        for at, (owner, lock) in enumerate(zip(world.owners, world.locks, strict=True))
    }
    blank: dict[str, Any] = dict.fromkeys(Datasource.__dataclass_fields__, "")
    facts = {"luid": "d", "project": f"p{world.depth}", "owner": world.datasource_owner}
    return projects, Datasource(**{**blank, **facts})


OWNERS = st.sampled_from((*PEOPLE, *["boss"] * 6))
MEMBERS = st.fixed_dictionaries(
    {"everyone": st.just(frozenset(PEOPLE)), "others": st.frozensets(st.sampled_from(PEOPLE))}
)
MODES = st.dictionaries(
    st.tuples(st.sampled_from((*PEOPLE, *GROUPS)), st.sampled_from(CAPABILITIES)),
    st.sampled_from(("Allow", "Deny")),
    max_size=6,
)
SETS = st.sampled_from(
    [
        RuleSet(f"p{at}", subject)
        for at in range(3)
        for subject in (Subject.PROJECT, Subject.DEFAULTS)
    ]
    + [RuleSet("d", Subject.DATASOURCE)]
)
WORLDS = st.builds(
    World,
    owners=st.tuples(OWNERS, OWNERS, OWNERS),
    locks=st.tuples(*[st.sampled_from(LOCKS)] * 3),
    depth=st.integers(0, 2),
    datasource_owner=OWNERS,
    members=MEMBERS,
    rules=st.dictionaries(SETS, MODES, min_size=4, max_size=7),
)


@settings(max_examples=250, deadline=None)
@given(world=WORLDS, person=st.sampled_from(PEOPLE), role=st.sampled_from(SITE_ROLES))
def test_decision_follows_the_model(world: World, person: str, role: str):
    """Prevents: a user may do what ownership, leadership, locks and rules together do not allow."""
    projects, datasource = records(world)
    access = Access(
        projects=projects,
        rules_of=lambda rules: [
            Rule(grantee, capability, mode)
            for (grantee, capability), mode in world.rules.get(rules, {}).items()
        ],
        groups_of=lambda person: [each for each in GROUPS if person in world.members[each]],
    )
    user = User(person, person, role)
    for capability in CAPABILITIES:
        answer = access.may(user, capability, datasource)
        assert answer is allowed(world, person, role, capability, depth=None), capability
        for depth in range(3):
            answer = access.may(user, capability, projects[f"p{depth}"])
            assert answer is allowed(world, person, role, capability, depth=depth), capability
