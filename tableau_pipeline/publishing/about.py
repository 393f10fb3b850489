"""What a site says of a data source beside its content: permissions, warnings, people."""

import re
from collections.abc import Mapping, Sequence
from xml.etree import ElementTree

import tableauserverclient as TSC
from tableauserverclient.server import RequestFactory

from tableau_pipeline.publishing import rest
from tableau_pipeline.publishing.site import TableauSite

# ("group" or "user", its LUID, the capability), with "Allow" or "Deny".
Rules = Mapping[tuple[str, str, str], str]
_LUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_BY_LUID = {"403004": "Only administrators may list them: write its LUID in place of its name"}
_MANAGE = {
    "403004": "Its project locks the permissions, or this user lacks Set Permissions",
    "400009": "The site does not know one of these capabilities",
}


def grantee(site: TableauSite, kind: str, name: str) -> str | None:
    """Return the LUID of a "group" or "user"; None if the site has none of this name."""
    if _LUID.fullmatch(name):
        return name
    endpoint = site.tsc.groups if kind == "group" else site.tsc.users

    def find() -> str | None:
        return next((str(item.id) for item in rest.named(endpoint, name)), None)

    return site.ask(f'Looking for the {kind} "{name}"', find, remedies=_BY_LUID)


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
    site.ask(f"Setting {what} of data source {luid}", lambda: endpoint.put_request(url, body))


def permissions(site: TableauSite, luid: str) -> Rules:
    """Return what groups and users were allowed and denied for a data source."""
    endpoint = site.tsc.datasources

    def read() -> Rules:
        answer = endpoint.get_request(f"{endpoint.baseurl}/{luid}/permissions")
        rules = TSC.PermissionsRule.from_response(answer.content, site.tsc.namespace)
        return {
            (rule.grantee.tag_name, str(rule.grantee.id), name): mode
            for rule in rules
            for name, mode in rule.capabilities.items()
        }

    return site.ask(f"Reading the permissions of data source {luid}", read, remedies=_MANAGE)


def set_permissions(site: TableauSite, luid: str, rules: Rules, *, remove: Rules) -> None:
    """Take rules away from a data source, then add others."""
    endpoint = site.tsc.datasources
    url = f"{endpoint.baseurl}/{luid}/permissions"
    kinds = {"group": TSC.GroupItem, "user": TSC.UserItem}
    added: dict[tuple[str, str], dict[str, str]] = {}
    for (kind, who, capability), mode in rules.items():
        added.setdefault((kind, who), {})[capability] = mode
    each = [TSC.PermissionsRule(kinds[k].as_reference(who), v) for (k, who), v in added.items()]

    def change() -> None:
        # The server ignores a rule for what the grantee is allowed or denied already.
        for (kind, who, capability), mode in remove.items():
            endpoint.delete_request(f"{url}/{kind}s/{who}/{capability}/{mode}")
        if each:
            endpoint.put_request(url, RequestFactory.Permission.add_req(each))

    site.ask(f"Setting the permissions of data source {luid}", change, remedies=_MANAGE)


def quality_warnings(site: TableauSite, luid: str) -> Sequence[tuple[str, str]]:
    """Return the data quality warnings of a data source, each with its id and its message."""

    def read() -> Sequence[tuple[str, str]]:
        answer = site.tsc.datasources.get_request(f"{_warnings(site)}/datasource/{luid}")
        found = TSC.DQWItem.from_response(answer.content, site.tsc.namespace)
        return [(str(each.id), each.message or "") for each in found]

    return site.ask(f"Reading the data quality warnings of {luid}", read)


def add_quality_warning(site: TableauSite, luid: str, message: str) -> None:
    """Warn of old data."""
    request = RequestFactory.DQW.add_req(TSC.DQWItem(TSC.DQWItem.WarningType.STALE, message))
    endpoint, url = site.tsc.datasources, f"{_warnings(site)}/datasource/{luid}"
    site.ask(
        f"Adding a data quality warning to {luid}", lambda: endpoint.post_request(url, request)
    )


def remove_quality_warning(site: TableauSite, warning: str) -> None:
    """Remove a data quality warning; TSC itself knows only how to remove all of them."""
    endpoint, url = site.tsc.datasources, f"{_warnings(site)}/{warning}"
    site.ask(f"Removing data quality warning {warning}", lambda: endpoint.delete_request(url))


def _warnings(site: TableauSite) -> str:
    return f"{site.tsc.baseurl}/sites/{site.tsc.site_id}/dataQualityWarnings"
