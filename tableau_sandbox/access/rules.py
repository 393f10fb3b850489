"""The permission rules in the store."""

from collections import defaultdict
from collections.abc import Iterable
from functools import cache

from tableau_sandbox.access.capabilities import CONNECT, READ, WRITE
from tableau_sandbox.access.decision import (
    ALLOW,
    OF_A_PROJECT,
    Access,
    Rule,
    RuleSet,
    Subject,
)
from tableau_sandbox.store import accounts, projects
from tableau_sandbox.store.database import Database
from tableau_sandbox.store.records import Datasource, Project

# The rules of a new site let its users publish to the default project, and use what is there.
_FIRST_CAPABILITIES = {
    Subject.PROJECT: (READ, WRITE),
    Subject.DEFAULTS: (READ, CONNECT),
    Subject.DATASOURCE: (READ, CONNECT),
    Subject.WORKBOOKS: (READ,),
    Subject.FLOWS: (READ,),
    Subject.LENSES: (READ,),
}


def access_to(database: Database, site: str) -> Access:
    """Return who may do what on a site; rules are read when they are asked for."""
    return Access(
        projects={project.luid: project for project in projects.projects(database, site)},
        rules_of=lambda rules: rules_of(database, rules),
        groups_of=lambda user: accounts.groups_of_user(database, site, user),
    )


def access_to_all(database: Database, site: str) -> Access:
    """Return the same for questions about many objects: all rules are read at once."""
    found: dict[RuleSet, list[Rule]] = defaultdict(list)
    for row in database.rows("SELECT * FROM rule ORDER BY rowid"):
        found[RuleSet(row["luid"], Subject(row["subject"]))].append(_rule(row))
    return Access(
        projects={project.luid: project for project in projects.projects(database, site)},
        rules_of=lambda rules: found.get(rules, ()),
        groups_of=cache(lambda user: accounts.groups_of_user(database, site, user)),
    )


def rules_of(database: Database, rules: RuleSet) -> list[Rule]:
    """Return the rules of a set, oldest first."""
    sql = "SELECT * FROM rule WHERE luid = ? AND subject = ? ORDER BY rowid"
    return [_rule(row) for row in database.rows(sql, rules.luid, rules.subject)]


def add_rules(database: Database, rules: RuleSet, added: Iterable[Rule]) -> None:
    """Add rules to a set; a capability that a grantee was given or denied before stays as it is."""
    with database.transaction():
        for rule in added:
            database.change(
                "INSERT OR IGNORE INTO rule (luid, subject, grantee, capability, mode)"
                " VALUES (?, ?, ?, ?, ?)",
                rules.luid,
                rules.subject,
                rule.grantee,
                rule.capability,
                rule.mode,
            )


def delete_rule(database: Database, rules: RuleSet, rule: Rule) -> bool:
    """Remove a rule; return False if the set does not have it."""
    deleted = database.change(
        "DELETE FROM rule"
        " WHERE luid = ? AND subject = ? AND grantee = ? AND capability = ? AND mode = ?",
        rules.luid,
        rules.subject,
        rule.grantee,
        rule.capability,
        rule.mode,
    )
    return deleted > 0


def copy_rules(database: Database, source: RuleSet, target: RuleSet) -> None:
    """Replace the rules of a set by those of another."""
    if source == target:
        return
    with database.transaction():
        sql = "DELETE FROM rule WHERE luid = ? AND subject = ?"
        database.change(sql, target.luid, target.subject)
        _begin(database, target)
        add_rules(database, target, rules_of(database, source))


def give_project_rules(database: Database, project: Project, *, template: str) -> None:
    """Give a new project the rules of the project around it, or of the default project."""
    access = access_to(database, project.site)
    for subject in OF_A_PROJECT:
        source = access.governing(RuleSet(template, subject), access.projects[template])
        copy_rules(database, source, RuleSet(project.luid, subject))


def give_datasource_rules(database: Database, datasource: Datasource) -> None:
    """Give a new data source the rules that its project has for the data sources to come."""
    access = access_to(database, datasource.site)
    defaults = RuleSet(datasource.project, Subject.DEFAULTS)
    source = access.governing(defaults, access.projects[datasource.project])
    copy_rules(database, source, RuleSet(datasource.luid, Subject.DATASOURCE))


def keep_rules(database: Database, things: Iterable[Project | Datasource]) -> None:
    """Make the rules that count for each object its own, before another project governs it."""
    access: Access | None = None
    with database.transaction():
        for thing in things:
            access = access or access_to(database, thing.site)
            for rules in own_rules(thing):
                copy_rules(database, access.governing(rules, access.project_of(thing)), rules)


def own_rules(thing: Project | Datasource) -> tuple[RuleSet, ...]:
    """Return the sets of rules that belong to an object."""
    if isinstance(thing, Datasource):
        return (RuleSet(thing.luid, Subject.DATASOURCE),)
    return tuple(RuleSet(thing.luid, subject) for subject in OF_A_PROJECT)


def seed_rules(database: Database) -> None:
    """Give the first rules to all content without any: of a new site, or older than rules are."""
    with database.transaction():
        for subject, capabilities in _FIRST_CAPABILITIES.items():
            table = "datasource" if subject is Subject.DATASOURCE else "project"
            rows = database.rows(
                f"SELECT luid, site FROM {table} AS thing WHERE NOT EXISTS"  # noqa: S608
                " (SELECT 1 FROM rule_set WHERE luid = thing.luid AND subject = ?)",
                subject,
            )
            for row in rows:
                rules = RuleSet(row["luid"], subject)
                everyone = accounts.all_users_luid(row["site"])
                first = [Rule(everyone, name, ALLOW) for name in capabilities]
                _begin(database, rules)
                add_rules(database, rules, first)


def _begin(database: Database, rules: RuleSet) -> None:
    """Record that a set exists, so that it stays empty if all its rules are deleted."""
    sql = "INSERT OR IGNORE INTO rule_set (luid, subject) VALUES (?, ?)"
    database.change(sql, rules.luid, rules.subject)


def _rule(row: dict[str, str]) -> Rule:
    return Rule(row["grantee"], row["capability"], row["mode"])
