"""What a site says of a data source beside its content: permissions, warnings, people."""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any
from xml.etree import ElementTree

import defusedxml.ElementTree
import tableauserverclient as TSC
from tableauserverclient.server import RequestFactory

from tableau_pipeline.core.drift import RemoteDatasource
from tableau_pipeline.errors import RefreshError, RefusedError
from tableau_pipeline.metadata.merge import (
    CERTIFIED,
    DESCRIPTION,
    NOTE,
    OWNER,
    FieldPath,
    Values,
    quoted,
    shown,
)
from tableau_pipeline.outcome import Code
from tableau_pipeline.publishing import rest
from tableau_pipeline.publishing.site import TableauSite

# The LUID of a group and the capability, with "Allow" or "Deny".
Rules = Mapping[tuple[str, str], str]
# Values that are to be there; None is one that is not.
Aim = Mapping[FieldPath, str | None]
# The server has no warning of this asset, which is no error where one is looked for.
_NO_WARNINGS = "404030"
_CHANGE = {
    "403027": "Only administrators may change the owner, and perhaps the leaders of its project: "
    "make this user one, or leave the owner as it is",
    "403141": "Only its owner, a leader of its project or an administrator may change that: make "
    "this user one of them, or do not declare it",
}
_LIST = {"403004": "Only administrators may list them: publish as one, or do not declare it"}
_MANAGE = {
    "403004": "Its project locks the permissions, or this user lacks Set Permissions",
    "400009": "The site does not know one of these capabilities",
}


class PropertiesOnServer:
    """The values of a data source itself on a server, read before anything is sent.

    Attributes:
        found: the values; permissions of those groups alone that are wanted, or were.

    Args:
        remote: None if it is not there yet.
        wanted: the values that are declared, of whatever kind, like `written`.
        written: those that we wrote last.

    Raises:
        RefusedError: a group or user is unknown.
    """

    def __init__(
        self, site: TableauSite, remote: RemoteDatasource | None, wanted: Values, written: Values
    ) -> None:
        self.site, self._ours = site, {*wanted, *written}
        self._has_rules = any(path[0] == "permission" for path in self._ours)
        self._luids: dict[tuple[str, str], str] = {}
        asked, unknown = _named(wanted), []
        for kind, name in sorted(asked | _named(written)):
            try:
                luid = find_named(site, kind, name)
            except RefusedError:
                # Who is gone has no permissions left that could be taken away.
                if (kind, name) in asked:
                    raise
                continue
            if luid:
                self._luids[kind, name] = luid
            elif (kind, name) in asked:
                key = "permissions" if kind == "group" else "owner"
                unknown.append(f'{kind} "{name}", which `{key}` names')
        if unknown:
            raise RefusedError(
                f"The site has no {'; and no '.join(unknown)}: correct the name, or create it. "
                "Nothing was sent",
                code=Code.NOT_ON_SITE,
            )
        self._rules: Rules = {}
        self.found: Values = {}
        if remote:
            self._rules = permissions(site, remote.luid) if self._has_rules else {}
            # Whoever publishes a data source owns it from then on, which is nobody's wish.
            owner = {OWNER: written[OWNER]} if OWNER in written else {}
            self.found = {**owner, **self._values(remote)}

    def _values(self, remote: RemoteDatasource) -> Values:
        values: dict[FieldPath, str] = {("tag", tag): "yes" for tag in remote.tags}
        values |= {DESCRIPTION: remote.description} if remote.description else {}
        if remote.certification is not None:
            values[CERTIFIED] = "yes"
            values |= {NOTE: remote.certification} if remote.certification else {}
        names = {(kind, luid): (kind, name) for (kind, name), luid in self._luids.items()}
        for (luid, capability), mode in self._rules.items():
            if group := names.get(("group", luid)):
                values["permission", group[1], capability] = mode
        if owner := names.get(("user", remote.owner_id)):
            values[OWNER] = owner[1]
        elif remote.owner_id != self.site.user_id:
            values[OWNER] = remote.owner_id
            # Sessions of connected apps may not ask for users.
            with suppress(RefreshError):
                values[OWNER] = self.site.user(remote.owner_id)[0]
            self._luids["user", values[OWNER]] = remote.owner_id
        return values

    def set(
        self, remote: RemoteDatasource, aim: Aim, *, is_new: bool
    ) -> tuple[int, Mapping[FieldPath, str]]:
        """Make the server say this, as far as it is declared or was.

        Args:
            remote: as it is now.
            is_new: its metadata came with a file since, so that what people have set may be gone.

        Returns:
            The number of values that were to be set; and why some were not, by their paths.
        """
        try:
            if is_new and self._has_rules:
                self._rules = permissions(self.site, remote.luid)
            before = self._values(remote)
        except RefreshError as error:
            return 0, dict.fromkeys(self._ours, str(error))
        changes = {path: aim.get(path) for path in self._ours if aim.get(path) != before.get(path)}
        failed: dict[FieldPath, str] = {}
        for paths, request in self._requests(remote.luid, changes, aim, before):
            try:
                request()
            except RefreshError as error:
                failed |= dict.fromkeys(paths, str(error))
        return len(changes), failed

    def dropped(self, remote: RemoteDatasource, aim: Aim) -> Mapping[FieldPath, str]:
        """Return why values do not count as set that the server took without an error.

        Args:
            remote: as it is after `set`.
        """
        now = self._values(remote)
        # What is not certified shows no note.
        paths = self._ours if aim.get(CERTIFIED) else self._ours - {NOTE}
        return {
            path: f"{shown(path)} was set to {quoted(path, aim.get(path))}, and the server shows "
            f"{quoted(path, now.get(path))}: it does not take that by its REST API, or somebody "
            "has changed it since"
            for path in paths
            if path[0] != "permission" and _words(aim.get(path)) != _words(now.get(path))
        }

    def _requests(
        self, luid: str, changes: Aim, aim: Aim, before: Values
    ) -> Iterator[tuple[Collection[FieldPath], Callable[[], None]]]:
        """Yield the requests that are needed, each with the values that it sets."""
        site, say = self.site, partial(describe, self.site, luid)
        for is_added, call in ((True, site.tag), (False, site.untag)):
            if tags := [p for p in changes if p[0] == "tag" and bool(changes[p]) == is_added]:
                yield tags, partial(call, luid, [tag for _, tag in tags])
        if DESCRIPTION in changes:
            yield [DESCRIPTION], partial(say, description=aim.get(DESCRIPTION) or "")
        if certification := changes.keys() & {CERTIFIED, NOTE}:
            certified = {"isCertified": "true" if aim.get(CERTIFIED) else "false"}
            yield certification, partial(say, **certified, certificationNote=aim.get(NOTE) or "")
        if given := [path for path in changes if path[0] == "permission"]:
            rules, remove = {}, {}
            for path in given:
                _, name, capability = path
                if group := self._luids.get(("group", name)):
                    key = (group, capability)
                    rules |= {key: mode} if (mode := changes[path]) else {}
                    remove |= {key: before[path]} if path in before else {}
            yield given, partial(set_permissions, site, luid, rules, remove=remove)
        # The last one: who gives a data source away may no longer change it.
        if OWNER in changes:
            name = changes[OWNER]
            owner = self._luids.get(("user", name), name) if name else site.user_id
            yield [OWNER], partial(say, owner=owner)


def _words(value: str | None) -> Sequence[str]:
    """What is to be equal in two values: servers may write the ends of lines in another way."""
    return (value or "").split()


def _named(values: Values) -> set[tuple[str, str]]:
    """The groups and the user that values are about: ("group", "Analysts")."""
    found = {("group", path[1]) for path in values if path[0] == "permission"}
    return found | ({("user", values[OWNER])} if OWNER in values else set())


def find_named(site: TableauSite, kind: str, name: str) -> str | None:
    """Return the LUID of a "group" or "user"; None if the site has none of this name.

    Args:
        name: perhaps with the domain and a backslash before it.

    Raises:
        RefusedError: several domains have this name, or this user may not list them.
    """
    endpoint = site.tsc.groups if kind == "group" else site.tsc.users

    def find() -> Sequence[Any]:
        domain, _, rest_of_name = name.partition("\\")
        found = rest.alike(endpoint, name)
        if found or not rest_of_name:
            return found
        alike = rest.alike(endpoint, rest_of_name)
        return [each for each in alike if rest.same_name(each.domain_name, domain)]

    found = site.ask(f'Looking for the {kind} "{name}"', find, remedies=_LIST)
    if len(found) > 1:
        domains = sorted(str(each.domain_name) for each in found)
        raise RefusedError(
            f'The site has the {kind} "{name}" in several domains: {", ".join(domains)}. Name the '
            f"one that is meant: {domains[0]}\\{name}. Nothing was sent",
            code=Code.NOT_ON_SITE,
        )
    return str(found[0].id) if found else None


def describe(site: TableauSite, luid: str, *, owner: str | None = None, **values: str) -> None:
    """Change properties of a data source; the server keeps what the request does not name.

    Args:
        owner: the LUID of the new owner.
    """
    # TSC's own request always says whether it is certified, and cannot take a note away.
    request = ElementTree.Element("tsRequest")
    about = ElementTree.SubElement(request, "datasource", values)
    if owner:
        ElementTree.SubElement(about, "owner", id=owner)
    endpoint = site.tsc.datasources
    url, body = f"{endpoint.baseurl}/{luid}", ElementTree.tostring(request)
    what = ", ".join([*values, *(["owner"] if owner else [])])
    doing = f"Setting {what} of data source {luid}"
    site.ask(doing, lambda: endpoint.put_request(url, body), remedies=_CHANGE)


def permissions(site: TableauSite, luid: str) -> Rules:
    """Return what groups were allowed and denied for a data source."""
    endpoint = site.tsc.datasources

    def read() -> Rules:
        answer = endpoint.get_request(f"{endpoint.baseurl}/{luid}/permissions").content
        root = defusedxml.ElementTree.fromstring(answer, forbid_dtd=True)
        # TSC's own call fails as a whole over a kind of grantee that it does not know.
        return {
            (group.get("id", ""), each.get("name", "")): each.get("mode", "")
            for rule in root.iterfind(".//{*}granteeCapabilities")
            if (group := rule.find("{*}group")) is not None
            for each in rule.iterfind("{*}capabilities/{*}capability")
        }

    return site.ask(f"Reading the permissions of data source {luid}", read, remedies=_MANAGE)


def set_permissions(site: TableauSite, luid: str, rules: Rules, *, remove: Rules) -> None:
    """Take rules away from a data source, then add others."""
    endpoint = site.tsc.datasources
    url = f"{endpoint.baseurl}/{luid}/permissions"
    added: dict[str, dict[str, str]] = defaultdict(dict)
    for (group, capability), mode in rules.items():
        added[group][capability] = mode
    each = [TSC.PermissionsRule(TSC.GroupItem.as_reference(g), v) for g, v in added.items()]

    def change() -> None:
        # The server ignores a rule for what the group is allowed or denied already.
        for (group, capability), mode in remove.items():
            endpoint.delete_request(f"{url}/groups/{group}/{capability}/{mode}")
        if each:
            endpoint.put_request(url, RequestFactory.Permission.add_req(each))

    site.ask(f"Setting the permissions of data source {luid}", change, remedies=_MANAGE)


def quality_warnings(site: TableauSite, luid: str) -> Sequence[tuple[str, str]]:
    """Return the data quality warnings of a data source, each with its id and its message."""

    def read() -> Sequence[tuple[str, str]]:
        try:
            answer = site.tsc.datasources.get_request(f"{_warnings(site)}/datasource/{luid}")
        except TSC.ServerResponseError as error:
            if error.code == _NO_WARNINGS:
                return []
            raise
        found = TSC.DQWItem.from_response(answer.content, site.tsc.namespace)
        return [(str(each.id), each.message or "") for each in found]

    return site.ask(f"Reading the data quality warnings of {luid}", read)


def set_warning(site: TableauSite, luid: str, tag: str, text: str | None) -> None:
    """Make a text our only data quality warning, or have none.

    Args:
        tag: by it, ours are told from those of people.
    """
    message, endpoint = f"{text} ({tag})" if text else None, site.tsc.datasources
    found = quality_warnings(site, luid)
    ours = {each: message for each, message in found if message.endswith(f"({tag})")}
    # TSC itself knows only how to remove all of them, with those of people.
    for other in [each for each, known in ours.items() if known != message]:
        url = f"{_warnings(site)}/{other}"
        site.ask(f"Removing data quality warning {other}", partial(endpoint.delete_request, url))
    if message and message not in ours.values():
        request = RequestFactory.DQW.add_req(TSC.DQWItem(TSC.DQWItem.WarningType.STALE, message))
        url = f"{_warnings(site)}/datasource/{luid}"
        doing = f"Adding a data quality warning to {luid}"
        site.ask(doing, partial(endpoint.post_request, url, request))


def _warnings(site: TableauSite) -> str:
    return f"{site.tsc.baseurl}/sites/{site.tsc.site_id}/dataQualityWarnings"
