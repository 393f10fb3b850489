"""Whether a user may do something with a project or a data source.

The order in which site roles, ownership, leadership and rules count is that of "Effective
permissions" in Tableau's help.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from tableau_sandbox.access.capabilities import CEILINGS, PROJECT_LEADER
from tableau_sandbox.store.records import Datasource, Project, User

MANAGED_BY_OWNER = "ManagedByOwner"
LOCKED = "LockedToProject"
LOCKED_WITHOUT_NESTED = "LockedToProjectWithoutNested"

ALLOW = "Allow"
DENY = "Deny"


class Subject(StrEnum):
    """What rules are about: a project, a data source, or the content to come in a project."""

    PROJECT = "project"
    DEFAULTS = "datasources"
    DATASOURCE = "datasource"
    WORKBOOKS = "workbooks"
    FLOWS = "flows"
    LENSES = "lenses"


# Each project has rules about them.
OF_A_PROJECT = tuple(subject for subject in Subject if subject is not Subject.DATASOURCE)


@dataclass(frozen=True)
class RuleSet:
    """The rules about one subject; `luid` is that of the project or of the data source."""

    luid: str
    subject: Subject


@dataclass(frozen=True)
class Rule:
    """What a user, or the users of a group, may or may not do; `grantee` is the LUID of either."""

    grantee: str
    capability: str
    mode: str


@dataclass(frozen=True, kw_only=True)
class Access:
    """What the users of a site may do.

    Attributes:
        projects: all projects of the site, by LUID.
        rules_of: returns the rules of a set.
        groups_of: returns the LUIDs of the groups of a user, given by LUID.
    """

    projects: Mapping[str, Project]
    rules_of: Callable[[RuleSet], Sequence[Rule]]
    groups_of: Callable[[str], Collection[str]]

    def may(self, user: User, capability: str, thing: Project | Datasource) -> bool:
        """Whether a user has a capability for a project or a data source."""
        if capability not in CEILINGS.get(user.site_role, ()):
            return False
        project = self.project_of(thing)
        if user.is_admin or thing.owner == user.luid or self._leads(user, project):
            return True
        subject = Subject.PROJECT if isinstance(thing, Project) else Subject.DATASOURCE
        rules = self.governing(RuleSet(thing.luid, subject), project)
        return self._rules_allow(user, capability, rules)

    def project_of(self, thing: Project | Datasource) -> Project:
        """Return a project itself, or the project that a data source is in."""
        return thing if isinstance(thing, Project) else self.projects[thing.project]

    def governing(self, rules: RuleSet, project: Project) -> RuleSet:
        """Return the rules that count in place of `rules`, which belong to `project` or inside it.

        They are others where the project, or one around it, locks the permissions of its content.
        """
        around = self._around(project)
        nested = [outer for outer in around if outer.content_permissions == LOCKED]
        if rules.subject is Subject.PROJECT:
            return RuleSet(nested[-1].luid, Subject.PROJECT) if nested else rules
        if nested:
            of_content = rules.subject is Subject.DATASOURCE
            return RuleSet(nested[-1].luid, Subject.DEFAULTS if of_content else rules.subject)
        if rules.subject is Subject.DATASOURCE and project.content_permissions != MANAGED_BY_OWNER:
            return RuleSet(project.luid, Subject.DEFAULTS)
        return rules

    def _leads(self, user: User, project: Project) -> bool:
        """Whether a user owns or leads a project, or one around it."""
        return any(
            each.owner == user.luid
            or self._rules_allow(
                user, PROJECT_LEADER, self.governing(RuleSet(each.luid, Subject.PROJECT), each)
            )
            for each in (project, *self._around(project))
        )

    def _rules_allow(self, user: User, capability: str, rules: RuleSet) -> bool:
        modes = {
            rule.grantee: rule.mode
            for rule in self.rules_of(rules)
            if rule.capability == capability
        }
        # A rule for the user counts before those for groups; of these, a denial counts first.
        if user.luid in modes:
            return modes[user.luid] == ALLOW
        of_groups = [modes[group] for group in self.groups_of(user.luid) if group in modes]
        return DENY not in of_groups and ALLOW in of_groups

    def _around(self, project: Project) -> list[Project]:
        """Return the projects around a project, the innermost first."""
        around: list[Project] = []
        while project.parent is not None:
            project = self.projects[project.parent]
            around.append(project)
        return around
