from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.routing import Mount, Route

from tableau_sandbox.control.calls import FaultyApi
from tableau_sandbox.control.endpoint import ControlEndpoint
from tableau_sandbox.http.host_guard import HostGuard
from tableau_sandbox.http.request_log import RequestLog
from tableau_sandbox.http.slashes import LeadingSlashes
from tableau_sandbox.pages.datasource import datasource
from tableau_sandbox.pages.overview import overview
from tableau_sandbox.rest.api import RestApi
from tableau_sandbox.rest.datasource import (
    connections,
    datasources,
    download,
    metadata,
    publish,
    refresh,
    revisions,
    tags,
    update_data,
    uploads,
)
from tableau_sandbox.rest.site import (
    auth,
    empty_lists,
    groups,
    jobs,
    permissions,
    projects,
    server_info,
    sites,
)
from tableau_sandbox.services import Services
from tableau_sandbox.vds.service import api as vds
from tableau_sandbox.vds.service.answers import write_vds_refusal

API_ROUTES = (
    *server_info.ROUTES,
    *auth.ROUTES,
    *sites.ROUTES,
    *projects.ROUTES,
    *publish.ROUTES,
    *datasources.ROUTES,
    *download.ROUTES,
    *connections.ROUTES,
    *revisions.ROUTES,
    *refresh.ROUTES,
    *tags.ROUTES,
    *uploads.ROUTES,
    *update_data.ROUTES,
    *jobs.ROUTES,
    *groups.ROUTES,
    *permissions.ROUTES,
    *empty_lists.ROUTES,
    *metadata.ROUTES,
)


def build_app(services: Services) -> Starlette:
    """Return the sandbox as a web application: the REST API and its status pages."""
    allowed = services.options.allowed_hosts
    # Pages, and orders from this machine, need no session.
    guard = [Middleware(HostGuard, allowed)]
    # Clients of the API may know the sandbox by any name, for example in a network of containers.
    api = FaultyApi(services, RestApi(services, API_ROUTES))
    query_api = FaultyApi(services, vds.VdsApi(services), write_vds_refusal)
    app = Starlette(
        routes=[
            Mount(vds.PATH, HostGuard(query_api, allowed, only_browsers=True)),
            Mount("/api", HostGuard(api, allowed, only_browsers=True)),
            # A mount does not match its own path without a slash at the end.
            Route("/control", ControlEndpoint(services), middleware=guard),
            Mount("/control", ControlEndpoint(services), middleware=guard),
            Route("/", overview, middleware=guard),
            Route("/datasources/{luid}", datasource, middleware=guard),
        ],
        middleware=[Middleware(RequestLog), Middleware(LeadingSlashes)],
    )
    # Clients of the API repeat a redirected request in different ways, or not at all.
    app.router.redirect_slashes = False
    app.state.services = services
    return app
