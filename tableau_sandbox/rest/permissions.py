"""The permission rules of projects and data sources, as the REST API shows and changes them."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from xml.etree.ElementTree import Element

from starlette.responses import Response

from tableau_sandbox.access import (
    ALLOW,
    CHANGE_PERMISSIONS,
    DENY,
    OF_DATASOURCES,
    OF_PROJECTS,
    PROJECT_LEADER,
    Rule,
    RuleSet,
    Subject,
    access_to,
    add_rules,
    check_may,
    delete_rule,
    rules_of,
)
from tableau_sandbox.errors import malformed, not_found, refusal
from tableau_sandbox.rest.answers import Reply, permissions_element
from tableau_sandbox.rest.datasources import find_datasource
from tableau_sandbox.rest.projects import find_project
from tableau_sandbox.rest.requests import Call, parse_request
from tableau_sandbox.rest.router import Route
from tableau_sandbox.services import Services
from tableau_sandbox.store import accounts
from tableau_sandbox.store.records import Datasource, Project


@dataclass(frozen=True)
class _Resource:
    """What permissions can be asked about.

    Attributes:
        path: its path, below which its permissions are.
        subject: what its rules are about.
        find: returns the project or the data source of a call.
        capabilities: those that its rules may be about.
        manage: the capability to see and to change its rules.
    """

    path: str
    subject: Subject
    find: Callable[[Services, Call], Project | Datasource]
    capabilities: frozenset[str]
    manage: str

    def query(self, services: Services, call: Call) -> Reply:
        """Return the rules that count."""
        return Reply(200, self._written(services, self._found(services, call)))

    def add(self, services: Services, call: Call) -> Reply:
        """Add rules; what a grantee was allowed or denied before stays so."""
        request = parse_request(call.body, "permissions")
        with services.database.transaction():
            thing = self._found(services, call)
            _check_named(request, thing)
            rules = self._unlocked(services, thing)
            add_rules(services.database, rules, list(self._requested(services, call, request)))
            return Reply(200, self._written(services, thing))

    def delete(self, services: Services, call: Call) -> Response:
        """Remove one rule."""
        with services.database.transaction():
            rules = self._unlocked(services, self._found(services, call))
            kind, luid = call.path["grantees"], call.path["grantee"]
            _check_grantee(services, call, kind=kind.removesuffix("s"), luid=luid)
            rule = Rule(luid, call.path["capability"], call.path["mode"])
            if not delete_rule(services.database, rules, rule):
                raise not_found("Capability", f"{rule.capability} {rule.mode}", code="404013")
        return Response(status_code=204)

    def routes(self) -> Iterator[Route]:
        """Return the methods of its permissions."""
        rule = f"{self.path}/{{grantees}}/{{grantee}}/{{capability}}/{{mode}}"
        for method, path, handler, action in (
            ("GET", self.path, self.query, "read"),
            ("PUT", self.path, self.add, "update"),
            ("DELETE", rule, self.delete, "delete"),
        ):
            scopes = (f"tableau:permissions:{action}",)
            yield Route(method, path, handler, scopes)

    def _found(self, services: Services, call: Call) -> Project | Datasource:
        thing = self.find(services, call)
        check_may(services.database, self.manage, user=call.user, thing=thing, code="403004")
        return thing

    def _unlocked(self, services: Services, thing: Project | Datasource) -> RuleSet:
        rules = RuleSet(thing.luid, self.subject)
        if _governing(services, rules, thing) != rules:
            raise refusal("403004", f"The project around '{thing.name}' locks its permissions.")
        return rules

    def _requested(self, services: Services, call: Call, request: Element) -> Iterator[Rule]:
        for grantee in request.findall("granteeCapabilities"):
            named = [each for each in grantee if each.tag in ("user", "group")]
            if len(named) != 1:
                raise malformed("Each 'granteeCapabilities' needs one user or one group.")
            luid = named[0].get("id", "")
            _check_grantee(services, call, kind=named[0].tag, luid=luid)
            for capability in grantee.iterfind("capabilities/capability"):
                name, mode = capability.get("name", ""), capability.get("mode", "")
                if name not in self.capabilities or mode not in (ALLOW, DENY):
                    raise malformed(f"'{name}' '{mode}' is no capability with its mode.")
                yield Rule(luid, name, mode)

    def _written(self, services: Services, thing: Project | Datasource) -> Element:
        rules = RuleSet(thing.luid, self.subject)
        governing = _governing(services, rules, thing)
        return permissions_element(
            thing,
            rules_of(services.database, governing),
            groups={group.luid for group in accounts.groups(thing.site)},
            parent=None if governing == rules else governing.luid,
        )


def _governing(services: Services, rules: RuleSet, thing: Project | Datasource) -> RuleSet:
    access = access_to(services.database, thing.site)
    return access.governing(rules, access.project_of(thing))


def _check_named(request: Element, thing: Project | Datasource) -> None:
    """Refuse a request that names something else than its path does; it need not name anything."""
    kind = "project" if isinstance(thing, Project) else "datasource"
    for child in request:
        if child.tag not in (kind, "granteeCapabilities"):
            raise malformed(f"The permissions of a {kind} have no element '{child.tag}'.")
        if child.tag == kind and child.get("id", thing.luid) != thing.luid:
            raise refusal("404009", f"The request is about another {kind} than its path.")


def _check_grantee(services: Services, call: Call, *, kind: str, luid: str) -> None:
    if kind == "user" and accounts.user(services.database, luid) is None:
        raise not_found("User", luid, code="404002")
    if kind == "group" and luid not in [each.luid for each in accounts.groups(call.site.luid)]:
        raise not_found("Group", luid, code="404012")
    if kind not in ("user", "group"):
        raise refusal("404003", f"There are no permissions of '{kind}'.")


_RESOURCES = (
    _Resource(
        "sites/{site}/projects/{project}/permissions",
        Subject.PROJECT,
        find_project,
        OF_PROJECTS,
        PROJECT_LEADER,
    ),
    # What the data sources to come in a project begin with.
    _Resource(
        "sites/{site}/projects/{project}/default-permissions/datasources",
        Subject.DEFAULTS,
        find_project,
        OF_DATASOURCES,
        PROJECT_LEADER,
    ),
    _Resource(
        "sites/{site}/datasources/{datasource}/permissions",
        Subject.DATASOURCE,
        find_datasource,
        OF_DATASOURCES,
        CHANGE_PERMISSIONS,
    ),
)
ROUTES = tuple(route for resource in _RESOURCES for route in resource.routes())
