"""All that is used of the Tableau Server Client (TSC) beyond what its documentation names.

Its endpoints have methods that send a request (`get_request` and the like), and its items are read
from answers by `from_response`: TSC has no call for some requests that we send.
`tableau_pipeline_tests/publishing/test_tsc_internals.py` tries each, so that an upgrade says which
one broke.
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
