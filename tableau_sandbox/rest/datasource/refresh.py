from tableau_sandbox.access.capabilities import REFRESH
from tableau_sandbox.errors import RestError, refusal
from tableau_sandbox.jobs.kinds import queue_refresh
from tableau_sandbox.rest.datasource.datasources import find_datasource
from tableau_sandbox.rest.site.jobs import accepted
from tableau_sandbox.rest.wire.requests import Call, optional_request
from tableau_sandbox.rest.wire.router import Reply, Route
from tableau_sandbox.services import Services


def refresh_datasource(services: Services, call: Call) -> Reply:
    """Queue the refresh of an extract."""
    # Older clients send no body, and others an empty request.
    if call.body.strip():
        optional_request(call.body, "extractRefresh")
    datasource = find_datasource(services, call, to=REFRESH)
    if not datasource.has_extracts:
        raise RestError(
            "409090",
            "Bad Request",
            f"Extract operation for the datasource '{datasource.name}' is not allowed.",
        )
    job = queue_refresh(services, datasource, user=call.user.luid)
    if job is None:
        raise refusal("409093", f"A refresh of '{datasource.name}' is already queued.")
    # Unlike others that queue a job, this call is answered without its progress.
    return accepted(services, job, progress=False)


ROUTES = (
    Route(
        "POST",
        "sites/{site}/datasources/{datasource}/refresh",
        refresh_datasource,
        since="2.8",
        scopes=("tableau:tasks:run",),
    ),
)
