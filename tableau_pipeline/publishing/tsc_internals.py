"""The parts of the Tableau Server Client (TSC) that we use, but that its documentation omits.

For requests that TSC has no call for, we use methods of its endpoints that send a request, such as
`get_request`, and the method `from_response` of its items, which reads them from the answer.
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
