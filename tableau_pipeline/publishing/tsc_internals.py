"""List the undocumented parts of the Tableau Server Client (TSC) that we use.

If TSC has no suitable call for a request, we send the request by a method of a TSC endpoint, such
as `get_request`. From some answers, we make TSC items by their method `from_response`.
`tableau_pipeline_tests/publishing/test_tsc_internals.py` tests each part by itself. If an upgrade
of TSC breaks a part, the failing test names the part.
"""

from tableauserverclient.server import RequestFactory
from tableauserverclient.server.endpoint.exceptions import (
    InternalServerError,
    NonXMLResponseError,
    TableauError,
)
from tableauserverclient.server.exceptions import (
    EndpointUnavailableError,
    ServerInfoEndpointNotFoundError,
)

__all__ = [
    "EndpointUnavailableError",
    "InternalServerError",
    "NonXMLResponseError",
    "RequestFactory",
    "ServerInfoEndpointNotFoundError",
    "TableauError",
]
