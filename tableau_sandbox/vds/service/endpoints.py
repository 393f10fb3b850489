"""The endpoints of the service, once a request is parsed."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from starlette.responses import Response

from tableau_sandbox.access import CONNECT, QUERY_BY_API, READ, access_to
from tableau_sandbox.faults import QueryFault
from tableau_sandbox.services import Services
from tableau_sandbox.store import datasources
from tableau_sandbox.store.records import Datasource, Session
from tableau_sandbox.vds.engine.query import compute
from tableau_sandbox.vds.errors import VdsError
from tableau_sandbox.vds.model_reader import read_model
from tableau_sandbox.vds.requests import Request
from tableau_sandbox.vds.schema import Endpoint
from tableau_sandbox.vds.service.answers import json_answer
from tableau_sandbox.vds.service.function_list import FUNCTIONS
from tableau_sandbox.vds.service.metadata import fields_answer, model_answer
from tableau_sandbox.vds.service.rows import rows_answer

_NEEDED = (READ, CONNECT, QUERY_BY_API)


@dataclass(frozen=True, slots=True)
class Call:
    """A request about a data source that its user may query, and the faults that hit it."""

    source: Datasource
    request: Request
    faults: Sequence[QueryFault]


def answer(
    services: Services,
    session: Session,
    endpoint: Endpoint,
    request: Request,
    faults: Sequence[QueryFault] = (),
) -> Response:
    """Return the answer to a request.

    Raises:
        VdsError: 404937, the user sees no such data source; 403800, they may not query it; or the
            request is refused by its endpoint.
    """
    source = datasources.datasource(services.database, session.site.luid, request.source.luid)
    modes = _modes(services, session, source) if source else {}
    if source is None or not modes[READ]:
        raise VdsError("404937", "Datasource not found.")
    if endpoint is Endpoint.USER_HAS_QUERY_PERMISSIONS:
        return json_answer(_permissions(source, modes))
    if not all(modes.values()):
        raise VdsError("403800", "The user lacks the capability API Access.")
    return _HANDLERS[endpoint](services, Call(source, request, faults))


def _modes(services: Services, session: Session, source: Datasource) -> dict[str, bool]:
    access = access_to(services.database, session.site.luid)
    modes = {name: access.may(session.user, name, source) for name in _NEEDED}
    chosen = services.options.vds_access
    if chosen != "capability":
        modes[QUERY_BY_API] = chosen == "everybody"
    return modes


def _permissions(source: Datasource, modes: Mapping[str, bool]) -> dict[str, Any]:
    capabilities = [
        {"name": name, "mode": "Allow" if allowed else "Deny"} for name, allowed in modes.items()
    ]
    resource = {
        "resourceType": "Datasource",
        "luid": source.luid,
        "capabilities": capabilities,
    }
    return {
        "hasQueryPermission": all(modes.values()),
        "datasourceType": "PUBLISHED",
        "resources": [resource],
    }


def _read_metadata(services: Services, call: Call) -> Response:
    fields = fields_answer(
        read_model(call.source), call.request.options, services.options.vds_schema
    )
    return json_answer(fields)


def _model(services: Services, call: Call) -> Response:
    return json_answer(model_answer(read_model(call.source), services.options.vds_schema))


def _query(services: Services, call: Call) -> Response:
    rows = compute(services, call.source, call.request, call.faults)
    return rows_answer(
        rows,
        call.request,
        call.faults,
        schema=services.options.vds_schema,
        now=services.clock(),
    )


def _functions(services: Services, call: Call) -> Response:
    return json_answer(FUNCTIONS)


_Handler = Callable[[Services, Call], Response]
_HANDLERS: Mapping[Endpoint, _Handler] = {
    Endpoint.READ_METADATA: _read_metadata,
    Endpoint.QUERY_DATASOURCE: _query,
    Endpoint.GET_DATASOURCE_MODEL: _model,
    Endpoint.LIST_SUPPORTED_FUNCTIONS: _functions,
}
