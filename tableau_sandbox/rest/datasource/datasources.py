from dataclasses import replace
from xml.etree.ElementTree import Element as XmlElement

from starlette.responses import Response

from tableau_sandbox.access.capabilities import DELETE, MOVE, PROJECT_LEADER, READ, WRITE
from tableau_sandbox.access.checks import check_may
from tableau_sandbox.access.rules import access_to_all, keep_rules
from tableau_sandbox.errors import not_found, refusal
from tableau_sandbox.rest.wire.fields import OWNER
from tableau_sandbox.rest.wire.lists import (
    Field,
    flag_field,
    list_page,
    number_field,
    text_field,
    time_field,
)
from tableau_sandbox.rest.wire.records import datasource_element, megabytes
from tableau_sandbox.rest.wire.requests import (
    Call,
    flag_attribute,
    name_attribute,
    parse_request,
)
from tableau_sandbox.rest.wire.router import Reply, Route
from tableau_sandbox.services import Services
from tableau_sandbox.store import accounts, datasources, projects
from tableau_sandbox.store.records import Datasource

# The operators of each field are those of Tableau's page on filters.
_FIELDS: dict[str, Field[Datasource]] = {
    "name": text_field(lambda datasource: datasource.name),
    "projectName": text_field(lambda datasource: datasource.project_name, any_case=True),
    "contentUrl": text_field(lambda datasource: datasource.content_url),
    "description": text_field(lambda datasource: datasource.description),
    "type": text_field(lambda datasource: datasource.connection_class, operators=("eq",)),
    "connectionType": text_field(lambda datasource: datasource.connection_class),
    "ownerName": text_field(lambda datasource: datasource.owner_name),
    "hasExtracts": flag_field(lambda datasource: bool(datasource.has_extracts)),
    "isCertified": flag_field(lambda datasource: bool(datasource.is_certified)),
    "isPublished": flag_field(lambda datasource: True),
    "size": number_field(lambda datasource: megabytes(datasource.hyper_bytes)),
    "createdAt": time_field(lambda datasource: datasource.created_at),
    "updatedAt": time_field(lambda datasource: datasource.updated_at),
    "tags": Field(lambda datasource: datasource.tags, ("eq", "in")),
}
_SELECTABLE = (
    *("id", "name", "contentUrl", "type", "createdAt", "updatedAt", "description", "size"),
    *("isCertified", "certificationNote", "encryptExtracts", "hasExtracts", "isPublished"),
    *("useRemoteQueryAgent", "webpageUrl", "tags", "project.id", "project.name", *OWNER),
    # Known to servers, and requested by clients; the sandbox has no values for them.
    *("favoritesTotal", "databaseName", "connectedWorkbooksCount", "hasAlert", "serverName", "tag"),
)


def query_datasources(services: Services, call: Call) -> Reply:
    """List the data sources of a site."""
    access = access_to_all(services.database, call.site.luid)
    found = datasources.datasources(services.database, call.site.luid)
    return Reply(
        200,
        list_page(
            [each for each in found if access.may(call.user, READ, each)],
            call.query,
            fields=_FIELDS,
            name="datasources",
            selectable=_SELECTABLE,
            write=lambda datasource: datasource_element(datasource, base_url=call.base_url),
        ),
    )


def get_datasource(services: Services, call: Call) -> Reply:
    """Return one data source."""
    found = find_datasource(services, call)
    return Reply(200, (datasource_element(found, base_url=call.base_url),))


def update_datasource(services: Services, call: Call) -> Reply:
    """Rename, move, describe or certify a data source, or change its owner."""
    request = parse_request(call.body, "datasource")
    with services.database.transaction():
        old = find_datasource(services, call, to=WRITE, refused="403032")
        changed = _changed(services, call, old=old, request=request)
        _check_may_manage(services, call, old=old, changed=changed)
        same_name = datasources.find_by_name(
            services.database, call.site.luid, project=changed.project, name=changed.name
        )
        if same_name is not None and same_name.luid != old.luid:
            raise refusal(
                "409015", f"A datasource named '{changed.name}' already exists in the project."
            )
        if changed != old:
            if services.options.edits_move_stamp:
                changed = replace(changed, updated_at=services.stamp_of_change(old.updated_at))
            if changed.project != old.project:
                keep_rules(services.database, [old])
            datasources.save_datasource(services.database, changed)
        found = find_datasource(services, call)
    return Reply(200, (datasource_element(found, base_url=call.base_url),))


def delete_datasource(services: Services, call: Call) -> Response:
    """Delete a data source."""
    datasource = find_datasource(services, call, to=DELETE)
    datasources.delete_datasource(services.database, datasource.luid)
    services.sweep_content()
    return Response(status_code=204)


def find_datasource(
    services: Services,
    call: Call,
    *,
    to: str = READ,
    unknown: str = "404004",
    refused: str = "403004",
) -> Datasource:
    """Return the data source that the path names, for a user who has the capability `to`.

    Raises:
        RestError: there is none (`unknown`), or the user may not see it, or lacks the capability
            (`refused`).
    """
    luid = call.path["datasource"]
    found = datasources.datasource(services.database, call.site.luid, luid)
    if found is None:
        raise not_found("Datasource", luid, code=unknown)
    for capability in dict.fromkeys((READ, to)):
        check_may(
            services.database,
            capability,
            user=call.user,
            thing=found,
            code="403004" if capability == READ else refused,
        )
    return found


def _check_may_manage(
    services: Services, call: Call, *, old: Datasource, changed: Datasource
) -> None:
    """Refuse to move, give away or certify a data source to those who may only write it."""
    database, user = services.database, call.user
    if changed.project != old.project:
        check_may(database, MOVE, user=user, thing=old, code="403032")
        target = projects.project(database, old.site, changed.project)
        if target is not None:
            check_may(database, WRITE, user=user, thing=target, code="403030")
    if changed.owner != old.owner and not user.is_admin:
        raise refusal("403027", "Only administrators may change the owner of a data source.")
    if changed.is_certified != old.is_certified:
        project = projects.project(database, old.site, old.project)
        if project is not None:
            check_may(database, PROJECT_LEADER, user=user, thing=project, code="403032")


def _changed(services: Services, call: Call, *, old: Datasource, request: XmlElement) -> Datasource:
    project, owner = request.find("project"), request.find("owner")
    moved_to = old.project if project is None else project.get("id", old.project)
    given_to = old.owner if owner is None else owner.get("id", old.owner)
    if projects.project(services.database, call.site.luid, moved_to) is None:
        raise not_found("Project", moved_to, code="404005")
    if accounts.user(services.database, given_to) is None:
        raise not_found("User", given_to, code="404002")

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


ROUTES = (
    Route("GET", "sites/{site}/datasources", query_datasources, scopes=("tableau:content:read",)),
    Route(
        "GET",
        "sites/{site}/datasources/{datasource}",
        get_datasource,
        scopes=("tableau:content:read",),
    ),
    Route(
        "PUT",
        "sites/{site}/datasources/{datasource}",
        update_datasource,
        scopes=("tableau:datasources:update",),
    ),
    Route(
        "DELETE",
        "sites/{site}/datasources/{datasource}",
        delete_datasource,
        scopes=("tableau:datasources:delete",),
    ),
)
