"""The parts of the Tableau Server Client (TSC) that we use, but that its documentation omits.

If TSC has no call for a request, we use methods of its endpoints that send requests, such as
`get_request`, and then read its items from the answer by their method `from_response`.
`tableau_pipeline_tests/publishing/test_tsc_internals.py` tries each of these parts, so that a
failing test names the part that an upgrade of TSC broke.
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
