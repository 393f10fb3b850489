from tableau_sandbox.rest.wire.elements import Element
from tableau_sandbox.rest.wire.requests import Call
from tableau_sandbox.rest.wire.router import Reply, Route
from tableau_sandbox.services import Services


def get_server_info(services: Services, call: Call) -> Reply:
    """Return the version of the server and of its REST API."""
    options = services.options
    product = Element("productVersion", {"build": options.build}, text=options.product_version)
    version = Element("restApiVersion", text=options.rest_version)
    return Reply(200, (Element("serverInfo", children=(product, version)),))


ROUTES = (Route("GET", "serverInfo", get_server_info, signed_in=False),)
