"""Decide what users may do, by their site roles, by ownership, and by permission rules.

The sources are these pages of Tableau's help: "Permission Capabilities and Templates";
"Permissions, Site Roles, and Licenses"; "Effective permissions", for the order in which roles,
ownership, leadership and rules count; and "Access Scopes for Connected Apps".
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache

from tableau_sandbox.errors import refusal
from tableau_sandbox.store import accounts
from tableau_sandbox.store.database import Database
from tableau_sandbox.store.records import SITE_ROLES, Datasource, Project, Record, Site, User

READ = "Read"
WRITE = "Write"
PROJECT_LEADER = "ProjectLeader"
CONNECT = "Connect"
DOWNLOAD = "ExportXml"
MOVE = "ChangeHierarchy"
DELETE = "Delete"
CHANGE_PERMISSIONS = "ChangePermissions"
REFRESH = "ExtractRefresh"
QUERY_BY_API = "VizqlDataApiAccess"

OF_PROJECTS = frozenset({READ, WRITE, PROJECT_LEADER})
OF_DATASOURCES = frozenset(
    {
        READ,
        WRITE,
        CONNECT,
        DOWNLOAD,
        MOVE,
        DELETE,
        CHANGE_PERMISSIONS,
        REFRESH,
        QUERY_BY_API,
        "PulseMetricDefine",
        "SaveAs",
    }
)
_ALL = OF_PROJECTS | OF_DATASOURCES
_VIEWER = frozenset({READ, CONNECT, QUERY_BY_API})
# The capabilities that each site role allows at most. Rules cannot add others.
CEILINGS: Mapping[str, frozenset[str]] = {
    **dict.fromkeys(SITE_ROLES, _ALL),
    "Explorer": _VIEWER | {DOWNLOAD, "PulseMetricDefine"},
    "Viewer": _VIEWER,
    "Unlicensed": frozenset(),
}


MANAGED_BY_OWNER = "ManagedByOwner"
LOCKED = "LockedToProject"
LOCKED_WITHOUT_NESTED = "LockedToProjectWithoutNested"

ALLOW = "Allow"
DENY = "Deny"


class Subject(StrEnum):
    """What rules are about: a project, a data source, or the future data sources of a project."""

    PROJECT = "project"
    DEFAULTS = "datasources"
    DATASOURCE = "datasource"


# The subjects of the rule sets that belong to a project.
OF_A_PROJECT = tuple(subject for subject in Subject if subject is not Subject.DATASOURCE)


@dataclass(frozen=True)
class RuleSet:
    """The rules about one subject; `luid` is the LUID of the project or of the data source."""

    luid: str
    subject: Subject


@dataclass(frozen=True)
class Rule(Record):
    """Whether a grantee has a capability; `grantee` is the LUID of a user or of a group."""

    TABLE = "rule"

    grantee: str
    capability: str
    mode: str


@dataclass(frozen=True, kw_only=True)
class Access:
    """The permissions of the users of a site.

    Attributes:
        projects: all projects of the site, by LUID.
        rules_of: returns the rules of a set.
        groups_of: takes the LUID of a user, and returns the LUIDs of the user's groups.
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
        """Return the project of a data source; return a project unchanged."""
        return thing if isinstance(thing, Project) else self.projects[thing.project]

    def governing(self, rules: RuleSet, project: Project) -> RuleSet:
        """Return the rule set that counts for an object: `rules`, or the set of a locking project.

        If the project, or a project around it, locks the permissions of its content, the rules of
        the locking project count.
        """
        around = self._around(project)
        nested = [outer for outer in around if outer.content_permissions == LOCKED]
        if nested:
            is_project = rules.subject is Subject.PROJECT
            return RuleSet(nested[-1].luid, Subject.PROJECT if is_project else Subject.DEFAULTS)
        if rules.subject is Subject.DATASOURCE and project.content_permissions != MANAGED_BY_OWNER:
            return RuleSet(project.luid, Subject.DEFAULTS)
        return rules

    def _leads(self, user: User, project: Project) -> bool:
        """Whether a user owns or leads the project or a project around it."""
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
        # A rule about the user overrides the rules about groups. Among rules about groups, a denial
        # wins.
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


def scopes_allow(granted: Sequence[str], needed: Sequence[str]) -> bool:
    """Whether a `granted` scope equals one of the `needed` scopes, or covers it as a wildcard.

    A wildcard covers all actions on one kind of resource: `tableau:datasources:*`. Tableau's list
    has no wildcard for all resources.
    """
    return any(scope in granted or _wildcard(scope) in granted for scope in needed)


def _wildcard(scope: str) -> str:
    resource, _, _ = scope.rpartition(":")
    return f"{resource}:*"


# On a new site, these rules let all users publish to the default project and use its content.
_FIRST_CAPABILITIES = {
    Subject.PROJECT: (READ, WRITE),
    Subject.DEFAULTS: (READ, CONNECT),
}


def access_to(database: Database, site: str) -> Access:
    """Return the permissions on a site. All rules are read when the first is needed."""

    @cache
    def read() -> Mapping[RuleSet, Sequence[Rule]]:
        found: dict[RuleSet, list[Rule]] = defaultdict(list)
        for row in database.rows("SELECT * FROM rule ORDER BY rowid"):
            found[RuleSet(row["luid"], Subject(row["subject"]))].append(Rule.of(row))
        return found

    return Access(
        projects={project.luid: project for project in database.all(Project, site=site)},
        rules_of=lambda rules: read().get(rules, ()),
        groups_of=cache(lambda user: accounts.groups_of(database, user, site=site)),
    )


def rules_of(database: Database, rules: RuleSet) -> list[Rule]:
    """Return the rules of a set, oldest first."""
    return database.all(Rule, **vars(rules))


def add_rules(database: Database, rules: RuleSet, added: Iterable[Rule]) -> None:
    """Add rules to a set. An earlier rule about the same grantee and capability stays as it is."""
    with database.transaction():
        for rule in added:
            database.add("rule", **vars(rules), **vars(rule))


def copy_rules(database: Database, source: RuleSet, target: RuleSet) -> None:
    """Replace the rules of the target set by the rules of the source set."""
    if source == target:
        return
    with database.transaction():
        database.delete("rule", **vars(target))
        _begin(database, target)
        add_rules(database, target, rules_of(database, source))


def give_project_rules(database: Database, project: Project, *, template: str) -> None:
    """Give a new project the rules that count for the project `template`.

    Args:
        template: the LUID of the parent or, for a project at the top level, of the default project.
    """
    access = access_to(database, project.site)
    for subject in OF_A_PROJECT:
        source = access.governing(RuleSet(template, subject), access.projects[template])
        copy_rules(database, source, RuleSet(project.luid, subject))


def give_datasource_rules(database: Database, datasource: Datasource) -> None:
    """Give a new data source the rules that its project has for its future data sources."""
    access = access_to(database, datasource.site)
    defaults = RuleSet(datasource.project, Subject.DEFAULTS)
    source = access.governing(defaults, access.projects[datasource.project])
    copy_rules(database, source, RuleSet(datasource.luid, Subject.DATASOURCE))


def keep_rules(database: Database, things: Iterable[Project | Datasource]) -> None:
    """Give each object its own copy of the rules that count now, before a move or a new lock."""
    access: Access | None = None
    with database.transaction():
        for thing in things:
            access = access or access_to(database, thing.site)
            for rules in own_rules(thing):
                copy_rules(database, access.governing(rules, access.project_of(thing)), rules)


def own_rules(thing: Project | Datasource) -> tuple[RuleSet, ...]:
    """Return the rule sets that belong to an object."""
    if isinstance(thing, Datasource):
        return (RuleSet(thing.luid, Subject.DATASOURCE),)
    return tuple(RuleSet(thing.luid, subject) for subject in OF_A_PROJECT)


def seed_rules(database: Database) -> None:
    """Give the first rules to the default project of each new site."""
    with database.transaction():
        for site in database.all(Site):
            everyone = accounts.all_users_luid(site.luid)
            for subject, capabilities in _FIRST_CAPABILITIES.items():
                rules = RuleSet(accounts.default_project_luid(site.luid), subject)
                if _begin(database, rules):
                    add_rules(
                        database, rules, [Rule(everyone, each, ALLOW) for each in capabilities]
                    )


def _begin(database: Database, rules: RuleSet) -> bool:
    """Record that a rule set exists, even without rules; return whether the set is new."""
    return database.add("rule_set", **vars(rules))


def check_may(
    database: Database, capability: str, *, user: User, thing: Project | Datasource, code: str
) -> None:
    """Check that a user has a capability for a project or a data source.

    Raises:
        RestError: the user lacks the capability; the error has the code `code`.
    """
    if not access_to(database, thing.site).may(user, capability, thing):
        raise refusal(code, f"The user '{user.name}' may not '{capability}' '{thing.name}'.")
