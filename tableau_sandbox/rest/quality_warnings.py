"""List, add and delete data quality warnings of data sources."""

from dataclasses import replace

from starlette.responses import Response

from tableau_sandbox import access
from tableau_sandbox.errors import malformed, not_found, refusal
from tableau_sandbox.identity import new_luid
from tableau_sandbox.rest.answers import Reply, element, quality_warning_element
from tableau_sandbox.rest.datasources import find_datasource
from tableau_sandbox.rest.requests import Call, flag_attribute, parse_request
from tableau_sandbox.rest.router import Route
from tableau_sandbox.services import Services
from tableau_sandbox.store.records import QualityWarning

_TYPES = ("DEPRECATED", "MAINTENANCE", "SENSITIVE_DATA", "STALE", "WARNING")


def query_warnings(services: Services, call: Call) -> Reply:
    """List the warnings of a data source."""
    _check_licensed(services)
    source = find_datasource(services, call)
    found = services.database.all(QualityWarning, datasource=source.luid)
    if not found and services.options.missing_warnings == "404030":
        raise not_found("Data quality warning of the datasource", source.luid, code="404030")
    listed = (quality_warning_element(each) for each in found)
    return Reply(200, element("dataQualityWarningList", None, *listed))


def add_warning(services: Services, call: Call) -> Reply:
    """Add a warning. A data source has at most one warning of each type."""
    _check_licensed(services)
    request = parse_request(call.body, "dataQualityWarning")
    now = services.now()
    with services.database.transaction():
        source = find_datasource(services, call, to=access.WRITE)
        made = QualityWarning(
            luid=new_luid(),
            datasource=source.luid,
            owner=call.user.luid,
            owner_name=call.user.name,
            type=request.get("type", ""),
            message=request.get("message", ""),
            is_active=flag_attribute(request, "isActive", default=True),
            is_severe=flag_attribute(request, "isSevere", default=False),
            created_at=now,
            updated_at=now,
        )
        if made.type not in _TYPES:
            raise malformed(f"'{made.type:.100}' is not a type of data quality warnings.")
        if services.database.find(QualityWarning, datasource=source.luid, type=made.type):
            raise refusal("409004", f"'{source.name}' has a warning of the type {made.type}.")
        services.database.save("quality_warning", vars(made))
    return Reply(200, quality_warning_element(made))


def delete_warning(services: Services, call: Call) -> Response:
    """Delete one warning."""
    _check_licensed(services)
    luid = call.path["warning"]
    with services.database.transaction():
        found = services.database.find(QualityWarning, luid=luid)
        if found is None:
            raise not_found("Data quality warning", luid, code="404031")
        about = replace(call, path={**call.path, "datasource": found.datasource})
        find_datasource(services, about, to=access.WRITE)
        services.database.delete("quality_warning", luid=luid)
    return Response(status_code=204)


def _check_licensed(services: Services) -> None:
    if not services.options.data_management:
        # Tableau documents no code for a missing license. This code is for disabled features.
        raise refusal("403157", "The feature is disabled: it needs Data Management.")


_WARNINGS = "sites/{site}/dataQualityWarnings"
_OF_DATASOURCE = f"{_WARNINGS}/datasource/{{datasource}}"
# Tableau's list of scopes seems to have no scopes for warnings. These names follow the list's form.
_SCOPE = "tableau:data_quality_warnings"
ROUTES = (
    Route("GET", _OF_DATASOURCE, query_warnings, (f"{_SCOPE}:read",)),
    Route("POST", _OF_DATASOURCE, add_warning, (f"{_SCOPE}:create",)),
    Route("DELETE", f"{_WARNINGS}/{{warning}}", delete_warning, (f"{_SCOPE}:delete",)),
)
