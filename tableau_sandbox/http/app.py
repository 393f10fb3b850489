from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.routing import Mount, Route

from tableau_sandbox.control_endpoint import ControlEndpoint
from tableau_sandbox.faulty_api import FaultyApi
from tableau_sandbox.http.middlewares import HostGuard, LeadingSlashes, RequestLog
from tableau_sandbox.pages import datasource, overview
from tableau_sandbox.rest import (
    content,
    datasources,
    jobs,
    other_content,
    permissions,
    projects,
    publish,
    quality_warnings,
    sign_in,
    sites,
    tasks,
    update_data,
    uploads,
)
from tableau_sandbox.rest.api import RestApi
from tableau_sandbox.services import Services
from tableau_sandbox.vds import api as vds

API_ROUTES = (
    *sign_in.ROUTES,
    *sites.ROUTES,
    *projects.ROUTES,
    *publish.ROUTES,
    *datasources.ROUTES,
    *content.ROUTES,
    *uploads.ROUTES,
    *update_data.ROUTES,
    *jobs.ROUTES,
    *tasks.ROUTES,
    *permissions.ROUTES,
    *quality_warnings.ROUTES,
    *other_content.ROUTES,
)


def build_app(services: Services) -> Starlette:
    """Return the sandbox as a web application: its APIs, its status pages, and `/control`."""
    allowed = services.options.allowed_hosts
    # Pages and `/control` need no session, so they accept only known names of the sandbox.
    guard = [Middleware(HostGuard, allowed)]
    # Clients of the API may use any name of the sandbox, for example in a network of containers.
    api = FaultyApi(services, RestApi(services, API_ROUTES))
    query_api = FaultyApi(services, vds.VdsApi(services), vds.write_vds_refusal)
    app = Starlette(
        routes=[
            Mount(vds.PATH, HostGuard(query_api, allowed, only_browsers=True)),
            Mount("/api", HostGuard(api, allowed, only_browsers=True)),
            # A mount does not match its own path without a final slash.
            Route("/control", ControlEndpoint(services), middleware=guard),
            Mount("/control", ControlEndpoint(services), middleware=guard),
            Route("/", overview, middleware=guard),
            Route("/datasources/{luid}", datasource, middleware=guard),
        ],
        middleware=[Middleware(RequestLog), Middleware(LeadingSlashes)],
    )
    # Do not redirect, because clients of the API follow redirects in different ways, or not at all.
    app.router.redirect_slashes = False
    app.state.services = services
    return app
