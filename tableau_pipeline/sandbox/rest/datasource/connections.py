from dataclasses import replace

from tableau_pipeline.sandbox.access.capabilities import WRITE
from tableau_pipeline.sandbox.errors import not_found
from tableau_pipeline.sandbox.rest.datasource.datasources import find_datasource
from tableau_pipeline.sandbox.rest.wire.elements import Element, listing
from tableau_pipeline.sandbox.rest.wire.records import connection_element
from tableau_pipeline.sandbox.rest.wire.requests import Call, flag_attribute, parse_request
from tableau_pipeline.sandbox.rest.wire.router import Reply, Route
from tableau_pipeline.sandbox.services import Services
from tableau_pipeline.sandbox.store import datasources
from tableau_pipeline.sandbox.store.records import Datasource


def query_connections(services: Services, call: Call) -> Reply:
    """List the connections of a data source, which always has one."""
    datasource = find_datasource(services, call, unknown="404011")
    return Reply(200, (listing("connections", [_written(services, datasource)]),))


def update_connection(services: Services, call: Call) -> Reply:
    """Set the values that the request names; a password is accepted but not stored."""
    request = parse_request(call.body, "connection")
    with services.database.transaction():
        datasource = find_datasource(services, call, to=WRITE, unknown="404011")
        if call.path["connection"] != datasource.connection:
            raise not_found("Connection", call.path["connection"], code="404020")
        old = datasources.connection_settings(services.database, datasource.luid)
        changed = replace(
            old,
            server_address=request.get("serverAddress", old.server_address),
            server_port=request.get("serverPort", old.server_port),
            user_name=request.get("userName", old.user_name),
            embed_password=flag_attribute(
                request, "embedPassword", default=bool(old.embed_password)
            ),
        )
        datasources.save_connection_settings(services.database, datasource.luid, changed)
        return Reply(200, (_written(services, datasource),))


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
        "sites/{site}/datasources/{datasource}/connections/{connection}",
        update_connection,
        scopes=("tableau:datasources:update",),
    ),
)
