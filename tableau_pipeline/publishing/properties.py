"""Read and set the properties of a data source, which a site keeps separately from the content.

The properties are the description, certification, tags, owner, permissions and data quality
warnings.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any
from xml.etree import ElementTree

import defusedxml.ElementTree
import tableauserverclient as TSC

from tableau_pipeline.core.drift import RemoteDatasource
from tableau_pipeline.errors import RefreshError, RefusedError
from tableau_pipeline.metadata.merge import (
    CERTIFIED,
    DESCRIPTION,
    NOTE,
    OWNER,
    FieldPath,
    Values,
    is_property,
    quoted,
    shown,
)
from tableau_pipeline.outcome import Code
from tableau_pipeline.publishing import rest
from tableau_pipeline.publishing.errors import SignInError
from tableau_pipeline.publishing.site import TableauSite
from tableau_pipeline.publishing.tsc_internals import RequestFactory

# "Allow" or "Deny", by the LUID of a group and the capability.
Rules = Mapping[tuple[str, str], str]
# The desired values; None stands for a value that must be absent.
DesiredValues = Mapping[FieldPath, str | None]
# A refusal with this code means that a data source has no quality warnings.
_NO_WARNINGS = "404030"
# A refusal with this code means that a permission rule does not exist.
_NO_RULE = "404013"
_CHANGE_REMEDIES = {
    "403027": "Only administrators may change the owner (perhaps also leaders of its project): "
    "make this user one of them, or leave the owner as it is",
    "403141": "Only its owner, a leader of its project or an administrator may change that: make "
    "this user one of them, or do not declare it",
}
_LIST_REMEDIES = {
    "403004": "Only administrators may list them: publish as one, or do not declare it"
}
_PERMISSION_REMEDIES = {
    "403004": "Its project locks the permissions, or this user lacks Set Permissions",
    "400009": "The site does not know one of these capabilities",
}


class PropertiesOnServer:
    """The properties of a data source on the server, read before anything is sent.

    Attributes:
        found: the values on the server. Permissions are included only for declared groups, and for
            groups in `written`.

    Args:
        remote: None if the data source does not exist yet.
        wanted: the declared values. Like `written`, they may include the metadata of fields, which
            are no properties.
        written: the values that we wrote last.

    Raises:
        RefusedError: a declared group or user is unknown or ambiguous, or may not be listed.
    """

    def __init__(
        self, site: TableauSite, remote: RemoteDatasource | None, wanted: Values, written: Values
    ) -> None:
        # `written` also has the values of fields, which are in the `.tds`.
        self.site, self._ours = site, {path for path in {*wanted, *written} if is_property(path)}
        self._has_rules = any(path[0] == "permission" for path in self._ours)
        self._luids: dict[tuple[str, str], str] = {}
        declared, unknown = _groups_and_owner(wanted), []
        for kind, name in sorted(declared | _groups_and_owner(written)):
            try:
                luid = find_named(site, kind, name)
            except RefusedError:
                # Do not refuse because of a name that is no longer declared. The permissions of
                # such a group stay as they are.
                if (kind, name) in declared:
                    raise
                continue
            if luid:
                self._luids[kind, name] = luid
            elif (kind, name) in declared:
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
            # A publish may have made our own user the owner. If our user is the owner now, report
            # the owner that we set last, if any.
            owner = {OWNER: written[OWNER]} if OWNER in written else {}
            self.found = {**owner, **self._values(remote)}

    def read_again(self, remote: RemoteDatasource, *, is_new: bool) -> None:
        """Read the values again, because users may have changed them since the first reading.

        Args:
            remote: the data source as it is now.
            is_new: whether a file with metadata has been published since the values were read, so
                that values set by users may be gone.

        Raises:
            RefreshError: the values cannot be read.
        """
        self._rules = permissions(self.site, remote.luid) if self._has_rules else {}
        # Our publish may have dropped values, made our user the owner, or set default permissions.
        # So start from the values that we found before.
        before = {path: v for path, v in self.found.items() if is_new or path == OWNER}
        now = {p: v for p, v in self._values(remote).items() if p[0] != "permission" or not is_new}
        self.found = {**before, **now}

    def all_failed(self, error: RefreshError) -> Mapping[FieldPath, str]:
        """Return an error as the reason why no value was set."""
        return dict.fromkeys(self._ours, str(error))

    def differs(self, remote: RemoteDatasource, aim: DesiredValues) -> bool:
        """Whether `set` would set a value."""
        current = self._values(remote)
        return any(aim.get(path) != current.get(path) for path in self._ours)

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
            # The session of a connected app may lack the right to look up users.
            with suppress(RefreshError):
                values[OWNER] = self.site.user(remote.owner_id)[0]
            self._luids["user", values[OWNER]] = remote.owner_id
        return values

    def set(
        self, remote: RemoteDatasource, aim: DesiredValues
    ) -> tuple[int, Mapping[FieldPath, str]]:
        """Set each value that is declared now, or was declared before, to its value in `aim`.

        Args:
            remote: the data source as it is now.

        Returns:
            The number of values to set, and the reason for each failure, by the path of the value.
        """
        current = self._values(remote)
        changes = {path: aim.get(path) for path in self._ours if aim.get(path) != current.get(path)}
        failed: dict[FieldPath, str] = {}
        for paths, request in self._requests(remote.luid, changes, aim, current):
            try:
                request()
            except RefreshError as error:
                failed |= dict.fromkeys(paths, str(error))
        return len(changes), failed

    def dropped(self, remote: RemoteDatasource, aim: DesiredValues) -> Mapping[FieldPath, str]:
        """Explain, by path, which values the server accepted but did not keep.

        Permissions are left out, because `remote` does not include them.

        Args:
            remote: the data source after `set`.
        """
        now = self._values(remote)
        # Without a certification, the server shows no note, so do not look for the note.
        paths = self._ours if aim.get(CERTIFIED) else self._ours - {NOTE}
        return {
            path: f"{shown(path)} was set to {quoted(path, aim.get(path))}, and the server shows "
            f"{quoted(path, now.get(path))}: its REST API does not accept this value, or a user "
            "has changed the value since"
            for path in paths
            if path[0] != "permission" and _words(aim.get(path)) != _words(now.get(path))
        }

    def _requests(
        self, luid: str, changes: DesiredValues, aim: DesiredValues, before: Values
    ) -> Iterator[tuple[Collection[FieldPath], Callable[[], None]]]:
        """Yield the requests that make the changes, each with the paths that the request sets."""
        site, change = self.site, partial(set_properties, self.site, luid)
        for is_added, call in ((True, site.tag), (False, site.untag)):
            if tags := [p for p in changes if p[0] == "tag" and bool(changes[p]) == is_added]:
                yield tags, partial(call, luid, [tag for _, tag in tags])
        if DESCRIPTION in changes:
            yield [DESCRIPTION], partial(change, description=aim.get(DESCRIPTION) or "")
        if certification := changes.keys() & {CERTIFIED, NOTE}:
            certified = {"isCertified": "true" if aim.get(CERTIFIED) else "false"}
            yield certification, partial(change, **certified, certificationNote=aim.get(NOTE) or "")
        if rule_paths := [path for path in changes if path[0] == "permission"]:
            rules, remove = {}, {}
            for path in rule_paths:
                _, name, capability = path
                if group := self._luids.get(("group", name)):
                    key = (group, capability)
                    rules |= {key: mode} if (mode := changes[path]) else {}
                    remove |= {key: before[path]} if path in before else {}
            yield rule_paths, partial(set_permissions, site, luid, rules, remove=remove)
        # Set the owner last: under another owner, our user may lack the right to change the data
        # source.
        if OWNER in changes:
            name = changes[OWNER]
            owner = self._luids.get(("user", name), name) if name else site.user_id
            yield [OWNER], partial(change, owner=owner)


def _words(value: str | None) -> Sequence[str]:
    """Return the words of a value, to compare values although servers may change line ends."""
    return (value or "").split()


def _groups_and_owner(values: Values) -> set[tuple[str, str]]:
    """Return the groups and the owner in values, as pairs such as ("group", "Analysts")."""
    groups = {("group", path[1]) for path in values if path[0] == "permission"}
    return groups | ({("user", values[OWNER])} if OWNER in values else set())


def find_named(site: TableauSite, kind: str, name: str) -> str | None:
    """Return the LUID of a "group" or "user"; None if the site has none with this name.

    Args:
        name: the name, optionally after a domain and a backslash.

    Raises:
        RefusedError: several domains have a group or user with this name, or our user may not list
            groups or users.
    """
    endpoint = site.tsc.groups if kind == "group" else site.tsc.users

    def find() -> Sequence[Any]:
        domain, _, rest_of_name = name.partition("\\")
        matches = rest.principals_named(endpoint, name)
        if matches or not rest_of_name:
            return matches
        alike = rest.principals_named(endpoint, rest_of_name)
        return [item for item in alike if rest.same_name(item.domain_name, domain)]

    items = site.ask(f'Looking for the {kind} "{name}"', find, remedies=_LIST_REMEDIES)
    if len(items) > 1:
        domains = sorted(str(item.domain_name) for item in items)
        raise RefusedError(
            f'The site has the {kind} "{name}" in several domains: {", ".join(domains)}. Name the '
            f"one that is meant: {domains[0]}\\{name}. Nothing was sent",
            code=Code.NOT_ON_SITE,
        )
    return str(items[0].id) if items else None


def has_any_user(site: TableauSite, names: Collection[str]) -> bool | None:
    """Whether a site has a user with one of these names; None if our user may not list users."""
    wanted = {name.casefold() for name in names}

    def find() -> bool | None:
        try:
            users = rest.iterate(site.tsc.users)
            return any((user.name or "").casefold() in wanted for user in users)
        except TSC.ServerResponseError as error:
            if error.code not in _LIST_REMEDIES:
                raise
            return None

    # If a connected app may not read users, the server answers that the session has ended.
    with suppress(SignInError):
        return site.ask("Listing the users", find)
    return None


def set_properties(
    site: TableauSite, luid: str, *, owner: str | None = None, **values: str
) -> None:
    """Change properties of a data source; the server keeps all other properties.

    Args:
        owner: the LUID of the new owner.
        values: further properties, by the names of their attributes in the REST API.
    """
    # TSC's own request always sets the certification, and cannot remove the certification note.
    request = ElementTree.Element("tsRequest")
    datasource = ElementTree.SubElement(request, "datasource", values)
    if owner:
        ElementTree.SubElement(datasource, "owner", id=owner)
    endpoint = site.tsc.datasources
    url, body = f"{endpoint.baseurl}/{luid}", ElementTree.tostring(request)
    names = ", ".join([*values, *(["owner"] if owner else [])])
    doing = f"Setting {names} of data source {luid}"
    site.ask(doing, lambda: endpoint.put_request(url, body), remedies=_CHANGE_REMEDIES)


def permissions(site: TableauSite, luid: str) -> Rules:
    """Return the capabilities that groups are allowed and denied for a data source."""
    endpoint = site.tsc.datasources

    def read() -> Rules:
        answer = endpoint.get_request(f"{endpoint.baseurl}/{luid}/permissions").content
        root = defusedxml.ElementTree.fromstring(answer, forbid_dtd=True)
        # TSC's own call fails if any grantee is of a kind that TSC does not know.
        return {
            (group.get("id", ""), capability.get("name", "")): capability.get("mode", "")
            for rule in root.iterfind(".//{*}granteeCapabilities")
            if (group := rule.find("{*}group")) is not None
            for capability in rule.iterfind("{*}capabilities/{*}capability")
        }

    return site.ask(
        f"Reading the permissions of data source {luid}", read, remedies=_PERMISSION_REMEDIES
    )


def set_permissions(site: TableauSite, luid: str, rules: Rules, *, remove: Rules) -> None:
    """Remove the rules in `remove` from a data source, then add the rules in `rules`."""
    endpoint = site.tsc.datasources
    url = f"{endpoint.baseurl}/{luid}/permissions"
    added: dict[str, dict[str, str]] = defaultdict(dict)
    for (group, capability), mode in rules.items():
        added[group][capability] = mode
    additions = [
        TSC.PermissionsRule(TSC.GroupItem.as_reference(grantee), modes)
        for grantee, modes in added.items()
    ]

    def change() -> None:
        # Remove first: if a capability has a rule already, the server ignores a new rule for it.
        for (group, capability), mode in remove.items():
            try:
                endpoint.delete_request(f"{url}/groups/{group}/{capability}/{mode}")
            except TSC.ServerResponseError as error:
                # A user has removed the rule. Or our first attempt has removed the rule, and `ask`
                # has then renewed the session and called this function again.
                if error.code != _NO_RULE:
                    raise
        if additions:
            endpoint.put_request(url, RequestFactory.Permission.add_req(additions))

    site.ask(
        f"Setting the permissions of data source {luid}", change, remedies=_PERMISSION_REMEDIES
    )


def quality_warnings(site: TableauSite, luid: str) -> Sequence[tuple[str, str]]:
    """Return the id and message of each data quality warning of a data source."""

    def read() -> Sequence[tuple[str, str]]:
        try:
            answer = site.tsc.datasources.get_request(f"{_warnings_url(site)}/datasource/{luid}")
        except TSC.ServerResponseError as error:
            if error.code == _NO_WARNINGS:
                return []
            raise
        warnings = TSC.DQWItem.from_response(answer.content, site.tsc.namespace)
        return [(str(warning.id), warning.message or "") for warning in warnings]

    return site.ask(f"Reading the data quality warnings of {luid}", read)


def set_warning(site: TableauSite, luid: str, tag: str, text: str | None) -> None:
    """Make `text` our only data quality warning; if `text` is None, remove our warning.

    Args:
        tag: the mark at the end of our warnings, which users' warnings do not have.
    """
    warning, endpoint = f"{text} ({tag})" if text else None, site.tsc.datasources
    warnings = quality_warnings(site, luid)
    ours = {id_: message for id_, message in warnings if message.endswith(f"({tag})")}
    # TSC's own call removes all warnings, including users' warnings.
    for outdated in [id_ for id_, message in ours.items() if message != warning]:
        url = f"{_warnings_url(site)}/{outdated}"
        site.ask(f"Removing data quality warning {outdated}", partial(endpoint.delete_request, url))
    if warning and warning not in ours.values():
        request = RequestFactory.DQW.add_req(TSC.DQWItem(TSC.DQWItem.WarningType.STALE, warning))
        url = f"{_warnings_url(site)}/datasource/{luid}"
        doing = f"Adding a data quality warning to {luid}"
        site.ask(doing, partial(endpoint.post_request, url, request))


def _warnings_url(site: TableauSite) -> str:
    return f"{site.tsc.baseurl}/sites/{site.tsc.site_id}/dataQualityWarnings"
