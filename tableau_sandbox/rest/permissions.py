"""Show and change the permission rules of projects and data sources by the REST API."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from xml.etree.ElementTree import Element

from starlette.responses import Response

from tableau_sandbox import access
from tableau_sandbox.access import PROJECT_LEADER, Rule, RuleSet, Subject
from tableau_sandbox.errors import malformed, not_found, refusal
from tableau_sandbox.rest.answers import Reply, permissions_element
from tableau_sandbox.rest.datasources import find_datasource
from tableau_sandbox.rest.projects import find_project
from tableau_sandbox.rest.requests import Call, parse_request
from tableau_sandbox.rest.router import Route
from tableau_sandbox.services import Services
from tableau_sandbox.store.records import Datasource, Group, Project, User


@dataclass(frozen=True)
class _Resource:
    """A kind of object with permission rules.

    Attributes:
        path: the path of the permissions.
        subject: the subject of the rules.
        find: returns the project or the data source of a call.
        capabilities: the capabilities for which rules are possible.
        manage: the capability that a user needs to see and change the rules.
    """

    path: str
    subject: Subject
    find: Callable[[Services, Call], Project | Datasource]
    capabilities: frozenset[str]
    manage: str

    def query(self, services: Services, call: Call) -> Reply:
        """Return the rules that count for the object."""
        return Reply(200, self._written(services, self._found(services, call)))

    def add(self, services: Services, call: Call) -> Reply:
        """Add rules. An earlier rule about the same grantee and capability stays as it is."""
        request = parse_request(call.body, "permissions")
        with services.database.transaction():
            thing = self._found(services, call)
            _check_named(request, thing)
            rules = self._unlocked(services, thing)
            access.add_rules(
                services.database, rules, list(self._requested(services, call, request))
            )
            return Reply(200, self._written(services, thing))

    def delete(self, services: Services, call: Call) -> Response:
        """Remove one rule."""
        with services.database.transaction():
            rules = self._unlocked(services, self._found(services, call))
            kind, luid = call.path["grantees"], call.path["grantee"]
            _check_grantee(services, call, kind=kind.removesuffix("s"), luid=luid)
            rule = Rule(luid, call.path["capability"], call.path["mode"])
            if not services.database.delete("rule", **vars(rules), **vars(rule)):
                raise not_found("Capability", f"{rule.capability} {rule.mode}", code="404013")
        return Response(status_code=204)

    def routes(self) -> Iterator[Route]:
        """Yield the routes of the object's permissions."""
        rule = f"{self.path}/{{grantees}}/{{grantee}}/{{capability}}/{{mode}}"
        yield Route("GET", self.path, self.query, ("tableau:permissions:read",))
        yield Route("PUT", self.path, self.add, ("tableau:permissions:update",))
        yield Route("DELETE", rule, self.delete, ("tableau:permissions:delete",))

    def _found(self, services: Services, call: Call) -> Project | Datasource:
        thing = self.find(services, call)
        database, user = services.database, call.user
        access.check_may(database, self.manage, user=user, thing=thing, code="403004")
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
                if name not in self.capabilities or mode not in (access.ALLOW, access.DENY):
                    raise malformed(f"'{name}' is not a capability, or '{mode}' is not a mode.")
                yield Rule(luid, name, mode)

    def _written(self, services: Services, thing: Project | Datasource) -> Element:
        rules = RuleSet(thing.luid, self.subject)
        governing = _governing(services, rules, thing)
        return permissions_element(
            thing,
            access.rules_of(services.database, governing),
            groups={group.luid for group in services.database.all(Group, site=thing.site)},
            parent=None if governing == rules else governing.luid,
        )


def _governing(services: Services, rules: RuleSet, thing: Project | Datasource) -> RuleSet:
    decision = access.access_to(services.database, thing.site)
    return decision.governing(rules, decision.project_of(thing))


def _check_named(request: Element, thing: Project | Datasource) -> None:
    """Refuse a request whose body names a different object from its path."""
    kind = "project" if isinstance(thing, Project) else "datasource"
    for child in request:
        if child.tag not in (kind, "granteeCapabilities"):
            raise malformed(f"The permissions of a {kind} have no element '{child.tag}'.")
        if child.tag == kind and child.get("id", thing.luid) != thing.luid:
            raise refusal("404009", f"The request is about another {kind} than its path.")


def _check_grantee(services: Services, call: Call, *, kind: str, luid: str) -> None:
    if kind == "user":
        services.known(User, luid, code="404002")
    if kind == "group":
        services.known(Group, luid, site=call.site.luid, code="404012")
    if kind not in ("user", "group"):
        raise refusal("404003", f"There are no permissions of '{kind}'.")


_PROJECT = "sites/{site}/projects/{project}"
_DATASOURCE = "sites/{site}/datasources/{datasource}"
# The path of the default rules for future data sources of a project.
_DEFAULTS = f"{_PROJECT}/default-permissions/datasources"
_OF_PROJECT, _OF_DATASOURCE = access.OF_PROJECTS, access.OF_DATASOURCES
_MANAGE = access.CHANGE_PERMISSIONS
_RESOURCES = (
    (f"{_PROJECT}/permissions", Subject.PROJECT, find_project, _OF_PROJECT, PROJECT_LEADER),
    (_DEFAULTS, Subject.DEFAULTS, find_project, _OF_DATASOURCE, PROJECT_LEADER),
    (f"{_DATASOURCE}/permissions", Subject.DATASOURCE, find_datasource, _OF_DATASOURCE, _MANAGE),
)
ROUTES = tuple(route for each in _RESOURCES for route in _Resource(*each).routes())
