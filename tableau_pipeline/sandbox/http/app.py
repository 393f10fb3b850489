from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.routing import Mount, Route

from tableau_pipeline.sandbox.control.calls import FaultyApi
from tableau_pipeline.sandbox.control.endpoint import ControlEndpoint
from tableau_pipeline.sandbox.http.request_log import RequestLog
from tableau_pipeline.sandbox.pages.datasource import datasource
from tableau_pipeline.sandbox.pages.overview import overview
from tableau_pipeline.sandbox.rest.api import RestApi
from tableau_pipeline.sandbox.rest.datasource import (
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
from tableau_pipeline.sandbox.rest.site import (
    auth,
    empty_lists,
    groups,
    jobs,
    permissions,
    projects,
    server_info,
    sites,
)
from tableau_pipeline.sandbox.services import Services

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
    app = Starlette(
        routes=[
            Mount("/api", FaultyApi(services, RestApi(services, API_ROUTES))),
            # A mount does not match its own path without a slash at the end.
            Route("/control", ControlEndpoint(services)),
            Mount("/control", ControlEndpoint(services)),
            Route("/", overview),
            Route("/datasources/{luid}", datasource),
        ],
        middleware=[Middleware(RequestLog)],
    )
    # Clients of the API repeat a redirected request in different ways, or not at all.
    app.router.redirect_slashes = False
    app.state.services = services
    return app
