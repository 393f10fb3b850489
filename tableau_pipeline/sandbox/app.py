from starlette.applications import Starlette
from starlette.routing import Mount, Route

from tableau_pipeline.sandbox import pages
from tableau_pipeline.sandbox.control.calls import FaultyApi
from tableau_pipeline.sandbox.control.endpoint import ControlEndpoint
from tableau_pipeline.sandbox.rest import (
    auth,
    datasources,
    download,
    jobs,
    projects,
    publish,
    server_info,
    sites,
    tags,
    uploads,
)
from tableau_pipeline.sandbox.rest.api import RestApi
from tableau_pipeline.sandbox.services import Services

_API_ROUTES = (
    *server_info.ROUTES,
    *auth.ROUTES,
    *sites.ROUTES,
    *projects.ROUTES,
    *publish.ROUTES,
    *datasources.ROUTES,
    *download.ROUTES,
    *tags.ROUTES,
    *uploads.ROUTES,
    *jobs.ROUTES,
)


def build_app(services: Services) -> Starlette:
    """The sandbox as a web application: the REST API, and a few pages to look at."""
    app = Starlette(
        routes=[
            Mount("/api", FaultyApi(services, RestApi(services, _API_ROUTES))),
            Route("/control", ControlEndpoint(services)),
            Mount("/control", ControlEndpoint(services)),
            Route("/", pages.overview),
            Route("/datasources/{luid}", pages.datasource),
        ]
    )
    # Clients of the API repeat a redirected request in ways of their own, or not at all.
    app.router.redirect_slashes = False
    app.state.services = services
    return app
