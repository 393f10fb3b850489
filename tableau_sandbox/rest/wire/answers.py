"""Write answers in the format that the client requests."""

from starlette.requests import Request
from starlette.responses import Response

from tableau_sandbox.errors import RestError
from tableau_sandbox.rest.wire.ages import as_of
from tableau_sandbox.rest.wire.elements import Element, as_json, as_xml
from tableau_sandbox.rest.wire.router import Reply


def write_reply(request: Request, reply: Reply, *, rest_version: str) -> Response:
    """Write a reply as XML, or as JSON if the client requests it."""
    elements = as_of(reply.elements, request.url.path)
    # Only this header decides: there are clients that send JSON, and read answers in XML only.
    if "application/json" in request.headers.get("Accept", ""):
        return Response(as_json(elements), reply.status, media_type="application/json")
    body = as_xml(elements, rest_version=rest_version)
    return Response(body, reply.status, media_type="application/xml")


def write_error(request: Request, error: RestError, *, rest_version: str) -> Response:
    """Write a refusal in the same way."""
    children = (Element("summary", text=error.summary), Element("detail", text=error.detail))
    element = Element("error", {"code": error.code}, children)
    return write_reply(request, Reply(error.status, (element,)), rest_version=rest_version)
