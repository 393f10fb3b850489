import re
from collections.abc import Sequence
from dataclasses import replace
from xml.etree.ElementTree import Element as XmlElement

from tableau_sandbox.access.capabilities import WRITE
from tableau_sandbox.errors import malformed, not_found
from tableau_sandbox.rest.datasource.datasources import find_datasource
from tableau_sandbox.rest.wire.elements import Element, listing
from tableau_sandbox.rest.wire.records import connection_element
from tableau_sandbox.rest.wire.requests import Call, flag_attribute, parse_request
from tableau_sandbox.rest.wire.router import Reply, Route
from tableau_sandbox.services import Services
from tableau_sandbox.store import datasources
from tableau_sandbox.store.records import Datasource


def query_connections(services: Services, call: Call) -> Reply:
    """List the connections of a data source, which always has one."""
    datasource = find_datasource(services, call, unknown="404011")
    return Reply(200, (listing("connections", [_written(services, datasource)]),))


def update_connection(services: Services, call: Call) -> Reply:
    """Set the values that the request names; a password is accepted but not stored."""
    request = parse_request(call.body, "connection")
    connection = _changed(services, call, luids=[call.path["connection"]], request=request)
    return Reply(200, (connection,))


def update_connections(services: Services, call: Call) -> Reply:
    """Set the same values for several connections, as `update_connection` does for one."""
    request = parse_request(call.body, "connection")
    luids = [element.text or "" for element in parse_request(call.body, "connectionLUIDs")]
    if not luids:
        raise malformed("The request names no connections.")
    connection = _changed(services, call, luids=luids, request=request)
    return Reply(200, (listing("connections", [connection]),))


def _changed(
    services: Services, call: Call, *, luids: Sequence[str], request: XmlElement
) -> Element:
    """Change the one connection of a data source, if no other is named."""
    with services.database.transaction():
        datasource = find_datasource(services, call, to=WRITE, unknown="404011")
        for luid in luids:
            if luid != datasource.connection:
                raise not_found("Connection", luid, code="404020")
        old = datasources.connection_settings(services.database, datasource.luid)
        embed = flag_attribute(request, "embedPassword", default=bool(old.embed_password))
        changed = replace(
            old,
            server_address=request.get("serverAddress", old.server_address),
            server_port=_port(request, old.server_port),
            user_name=request.get("userName", old.user_name),
            embed_password=embed,
        )
        datasources.save_connection_settings(services.database, datasource.luid, changed)
        return _written(services, datasource)


def _port(request: XmlElement, default: str) -> str:
    port = request.get("serverPort", default)
    if port and not re.fullmatch("[0-9]{1,5}", port):
        raise malformed(f"The port '{port:.100}' is no number.")
    return port


def _written(services: Services, datasource: Datasource) -> Element:
    settings = datasources.connection_settings(services.database, datasource.luid)
    return connection_element(datasource, settings)


ROUTES = (
    Route(
        "GET",
        "sites/{site}/datasources/{datasource}/connections",
        query_connections,
        scopes=("tableau:content:read",),
    ),
    Route(
        "PUT",
        "sites/{site}/datasources/{datasource}/connections",
        update_connections,
        since="3.26",
        scopes=("tableau:datasources:update",),
    ),
    Route(
        "PUT",
        "sites/{site}/datasources/{datasource}/connections/{connection}",
        update_connection,
        since="2.3",
        scopes=("tableau:datasources:update",),
    ),
)
