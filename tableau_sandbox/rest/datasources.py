"""Data sources: their properties, tags, connections and refreshes."""

import re
from dataclasses import replace
from xml.etree.ElementTree import Element

from starlette.responses import Response

from tableau_sandbox import access
from tableau_sandbox.errors import RestError, malformed, not_found, refusal
from tableau_sandbox.jobs.kinds import queue_refresh
from tableau_sandbox.rest import lists
from tableau_sandbox.rest.answers import (
    Reply,
    connection_element,
    datasource_element,
    element,
    megabytes,
    tags_element,
)
from tableau_sandbox.rest.jobs import accepted
from tableau_sandbox.rest.requests import (
    Call,
    flag_attribute,
    name_attribute,
    optional_request,
    parse_request,
)
from tableau_sandbox.rest.router import Route
from tableau_sandbox.services import Services
from tableau_sandbox.store.records import ConnectionSettings, Datasource, Project, User

_LONGEST_TAG = 200
# Tableau's page on filters lists these operators of each field.
_FIELDS: dict[str, lists.Field[Datasource]] = {
    "name": lists.text_field(lambda datasource: datasource.name),
    "projectName": lists.text_field(lambda datasource: datasource.project_name, any_case=True),
    "contentUrl": lists.text_field(lambda datasource: datasource.content_url),
    "description": lists.text_field(lambda datasource: datasource.description),
    "type": lists.text_field(lambda datasource: datasource.connection_class, operators=("eq",)),
    "connectionType": lists.text_field(lambda datasource: datasource.connection_class),
    "ownerName": lists.text_field(lambda datasource: datasource.owner_name),
    "hasExtracts": lists.flag_field(lambda datasource: bool(datasource.has_extracts)),
    "isCertified": lists.flag_field(lambda datasource: bool(datasource.is_certified)),
    "isPublished": lists.flag_field(lambda datasource: True),
    "size": lists.number_field(lambda datasource: megabytes(datasource.hyper_bytes)),
    "createdAt": lists.time_field(lambda datasource: datasource.created_at),
    "updatedAt": lists.time_field(lambda datasource: datasource.updated_at),
    "tags": lists.Field(lambda datasource: datasource.tags, ("eq", "in")),
}


def query_datasources(services: Services, call: Call) -> Reply:
    """List the data sources of a site."""
    decision = access.access_to(services.database, call.site.luid)
    until = lists.listed_since(services)
    found = [
        each
        for each in services.database.all(Datasource, site=call.site.luid)
        if each.created_at <= until
    ]
    return lists.list_page(
        [each for each in found if decision.may(call.user, access.READ, each)],
        call.query,
        name="datasources",
        write=lambda datasource: datasource_element(datasource, base_url=call.base_url),
        fields=_FIELDS,
    )


def get_datasource(services: Services, call: Call) -> Reply:
    """Return one data source."""
    found = find_datasource(services, call)
    return Reply(200, datasource_element(found, base_url=call.base_url))


def update_datasource(services: Services, call: Call) -> Reply:
    """Rename, move, describe or certify a data source, or change its owner."""
    request = parse_request(call.body, "datasource")
    with services.database.transaction():
        old = find_datasource(services, call, to=access.WRITE, refused="403032")
        changed = _changed(services, call, old=old, request=request)
        _check_may_manage(services, call, old=old, changed=changed)
        same_name = services.database.named(Datasource, changed.name, project=changed.project)
        if same_name is not None and same_name.luid != old.luid:
            raise refusal(
                "409015", f"A datasource named '{changed.name}' already exists in the project."
            )
        if changed != old:
            if services.options.edits_move_stamp:
                changed = replace(changed, updated_at=services.stamp_of_change(old.updated_at))
            if changed.project != old.project:
                access.keep_rules(services.database, [old])
            services.database.save("datasource", vars(changed))
        found = find_datasource(services, call)
    return Reply(200, datasource_element(found, base_url=call.base_url))


def delete_datasource(services: Services, call: Call) -> Response:
    """Delete a data source."""
    datasource = find_datasource(services, call, to=access.DELETE)
    services.database.delete("datasource", luid=datasource.luid)
    services.sweep_content()
    return Response(status_code=204)


def find_datasource(
    services: Services,
    call: Call,
    *,
    to: str = access.READ,
    unknown: str = "404004",
    refused: str = "403004",
) -> Datasource:
    """Return the data source that the path names, if the user has the capability `to`.

    Raises:
        RestError: with the code `unknown`, the data source does not exist; with 403004, the user
            may not see it; with the code `refused`, the user lacks the capability.
    """
    luid = call.path["datasource"]
    found = services.known(Datasource, luid, site=call.site.luid, code=unknown)
    for capability in dict.fromkeys((access.READ, to)):
        access.check_may(
            services.database,
            capability,
            user=call.user,
            thing=found,
            code="403004" if capability == access.READ else refused,
        )
    return found


def _check_may_manage(
    services: Services, call: Call, *, old: Datasource, changed: Datasource
) -> None:
    """Refuse a move, a new owner or a certification if the user lacks the additional rights."""
    database, user = services.database, call.user
    if changed.project != old.project:
        access.check_may(database, access.MOVE, user=user, thing=old, code="403032")
        target = services.known(Project, changed.project, code="404005")
        access.check_may(database, access.WRITE, user=user, thing=target, code="403030")
    if changed.owner != old.owner and not user.is_admin:
        raise refusal("403027", "Only administrators may change the owner of a data source.")
    if changed.is_certified != old.is_certified:
        project = services.known(Project, old.project, code="404005")
        access.check_may(database, access.PROJECT_LEADER, user=user, thing=project, code="403032")


def _changed(services: Services, call: Call, *, old: Datasource, request: Element) -> Datasource:
    project, owner = request.find("project"), request.find("owner")
    moved_to = old.project if project is None else project.get("id", old.project)
    given_to = old.owner if owner is None else owner.get("id", old.owner)
    services.known(Project, moved_to, site=call.site.luid, code="404005")
    services.known(User, given_to, code="404002")

    def flag(name: str, *, default: int) -> bool:
        return flag_attribute(request, name, default=bool(default))

    return replace(
        old,
        name=name_attribute(request) if "name" in request.attrib else old.name,
        project=moved_to,
        owner=given_to,
        description=request.get("description", old.description),
        is_certified=flag("isCertified", default=old.is_certified),
        certification_note=request.get("certificationNote", old.certification_note),
        use_remote_query_agent=flag("useRemoteQueryAgent", default=old.use_remote_query_agent),
        encrypt_extracts=flag("encryptExtracts", default=old.encrypt_extracts),
    )


def add_tags(services: Services, call: Call) -> Reply:
    """Add tags to a data source, and keep its other tags."""
    tags = parse_request(call.body, "tags").findall("tag")
    labels = [label for tag in tags for label in _labels(tag.get("label", ""))]
    # An empty list adds no tags, and is not an error.
    if (tags and not labels) or any(len(label) > _LONGEST_TAG for label in labels):
        raise refusal("400075", f"A tag must have 1 to {_LONGEST_TAG} characters.")
    with services.database.transaction():
        datasource = find_datasource(services, call, to=access.WRITE)
        for label in labels:
            services.database.add("tag", datasource=datasource.luid, label=label)
        found = find_datasource(services, call)
        if found.tags != datasource.tags:
            _move_stamp(services, datasource)
    return Reply(200, tags_element(found.tags))


def delete_tag(services: Services, call: Call) -> Response:
    """Remove one tag from a data source."""
    with services.database.transaction():
        datasource = find_datasource(services, call, to=access.WRITE)
        label = call.path["label"]
        if not services.database.delete("tag", datasource=datasource.luid, label=label):
            raise not_found("Tag", label, code="404007")
        _move_stamp(services, datasource)
    return Response(status_code=204)


def _move_stamp(services: Services, datasource: Datasource) -> None:
    if services.options.tags_move_stamp:
        updated_at = services.stamp_of_change(datasource.updated_at)
        services.database.save("datasource", vars(replace(datasource, updated_at=updated_at)))


def _labels(text: str) -> list[str]:
    """Split an attribute into labels at spaces and commas. A quoted attribute is one label."""
    if len(text) > 1 and text.startswith('"') and text.endswith('"'):
        return [text[1:-1]] if text[1:-1].strip() else []
    return [label for label in re.split(r"[\s,]+", text) if label]


def query_connections(services: Services, call: Call) -> Reply:
    """List the connections of a data source. Every data source has one connection."""
    datasource = find_datasource(services, call, unknown="404011")
    settings = _settings(services, datasource)
    return Reply(200, element("connections", None, connection_element(datasource, settings)))


def update_connection(services: Services, call: Call) -> Reply:
    """Change the settings that the request names. A password is accepted but not stored."""
    request = parse_request(call.body, "connection")
    with services.database.transaction():
        datasource = find_datasource(services, call, to=access.WRITE, unknown="404011")
        check_connection(call, datasource)
        old = _settings(services, datasource)
        changed = replace(
            old,
            server_address=request.get("serverAddress", old.server_address),
            server_port=_port(request, old.server_port),
            user_name=request.get("userName", old.user_name),
            embed_password=flag_attribute(
                request, "embedPassword", default=bool(old.embed_password)
            ),
        )
        row = {**vars(changed), "datasource": datasource.luid}
        services.database.save("connection_settings", row)
    return Reply(200, connection_element(datasource, changed))


def _settings(services: Services, datasource: Datasource) -> ConnectionSettings:
    """Return the settings that users have changed since the last publish."""
    found = services.database.find(ConnectionSettings, datasource=datasource.luid)
    return found or ConnectionSettings()


def check_connection(call: Call, datasource: Datasource) -> None:
    """Refuse a path with a connection that does not belong to the data source.

    Raises:
        RestError: 404020, the path names another connection.
    """
    connection = call.path.get("connection", datasource.connection)
    if connection != datasource.connection:
        raise not_found("Connection", connection, code="404020")


def _port(request: Element, default: str) -> str:
    port = request.get("serverPort", default)
    if port and not re.fullmatch("[0-9]{1,5}", port):
        raise malformed(f"The port '{port:.100}' is not a number.")
    return port


def refresh_datasource(services: Services, call: Call) -> Reply:
    """Queue the refresh of an extract."""
    # Older clients send no body. Other clients send an empty request.
    if call.body.strip():
        optional_request(call.body, "extractRefresh")
    datasource = find_datasource(services, call, to=access.REFRESH)
    if not datasource.has_extracts:
        raise RestError(
            "409090",
            "Bad Request",
            f"Extract operation for the datasource '{datasource.name}' is not allowed.",
        )
    job = queue_refresh(services, datasource, user=call.user.luid)
    if job is None:
        raise refusal("409093", f"A refresh of '{datasource.name}' is already queued.")
    # Other calls that queue a job answer with the job's progress, but this call does not.
    return accepted(services, job, progress=False)


_DATASOURCES = "sites/{site}/datasources"
_DATASOURCE = f"{_DATASOURCES}/{{datasource}}"
_TAGS, _CONNECTIONS = f"{_DATASOURCE}/tags", f"{_DATASOURCE}/connections"
_READS, _UPDATES = ("tableau:content:read",), ("tableau:datasources:update",)
ROUTES = (
    Route("GET", _DATASOURCES, query_datasources, _READS),
    Route("GET", _DATASOURCE, get_datasource, _READS),
    Route("PUT", _DATASOURCE, update_datasource, _UPDATES),
    Route("DELETE", _DATASOURCE, delete_datasource, ("tableau:datasources:delete",)),
    Route("PUT", _TAGS, add_tags, ("tableau:datasource_tags:update",)),
    Route("DELETE", f"{_TAGS}/{{label}}", delete_tag, ("tableau:datasource_tags:delete",)),
    Route("GET", _CONNECTIONS, query_connections, _READS),
    Route("PUT", f"{_CONNECTIONS}/{{connection}}", update_connection, _UPDATES),
    Route("POST", f"{_DATASOURCE}/refresh", refresh_datasource, ("tableau:tasks:run",)),
)
