"""What an answer of the REST API must hold, so that nothing else passes for one.

The client library takes an element that is missing for an empty list, or fails on it.
"""

import re
from xml.etree.ElementTree import Element, ParseError

import defusedxml.ElementTree
import requests
from defusedxml.common import DefusedXmlException

from tableau_pipeline.publishing.session.secrets import Secrets

_API = re.compile(r"/api/[^/]+/(.*)")
_NAMESPACE = {"t": "http://tableau.com/api"}
_ITEM = "sites/[^/]+/datasources/[^/]+"
_NEEDED = [
    ("GET", "serverInfo", "serverInfo/t:restApiVersion"),
    ("POST", "auth/signin", "credentials/t:site"),
    ("POST", "auth/signin", "credentials/t:user"),
    ("GET", "sites/[^/]+/(projects|datasources|jobs)", "pagination"),
    ("POST", "sites/[^/]+/projects", "project"),
    ("GET", _ITEM, "datasource"),
    ("GET", f"{_ITEM}/revisions", "pagination"),
    ("GET", f"{_ITEM}/connections", "connections"),
    ("PUT", f"{_ITEM}/tags", "tags"),
    ("POST", "sites/[^/]+/fileUploads", "fileUpload"),
    ("PUT", "sites/[^/]+/fileUploads/[^/]+", "fileUpload"),
    ("GET", "sites/[^/]+/jobs/[^/]+", "job"),
]


class NoAnswerError(requests.RequestException):
    """Something came that is no answer of Tableau, with a status that says that all is well."""


def check_answer(response: requests.Response, secrets: Secrets) -> None:
    """Check that an answer of the REST API has what was asked for.

    Raises:
        NoAnswerError: it has not; the message shows what came instead.
    """
    if not 200 <= response.status_code < 300:
        return
    path = _API.search((response.request.path_url or "").partition("?")[0])
    method, called = response.request.method, path[1] if path else ""
    needed = [name for verb, at, name in _NEEDED if verb == method and re.fullmatch(at, called)]
    body = response.content
    # Some calls answer by their status alone.
    if not body and not needed:
        return
    root = _root(body)
    missing = [
        name for name in needed if root is None or root.find(f"t:{name}", _NAMESPACE) is None
    ]
    if missing or root is None:
        wanted = (missing or ["tsResponse"])[0].rpartition(":")[2]
        raise NoAnswerError(f"the answer has no <{wanted}>, but is {secrets.excerpt(body)}")


def check_file(response: requests.Response, secrets: Secrets) -> None:
    """Check that a download is a file.

    Raises:
        NoAnswerError: it is something else; the message shows what.
    """
    if response.ok and "Content-Disposition" not in response.headers:
        body = next(response.iter_content(4096), b"")
        response.close()
        raise NoAnswerError(f"no file came, but {secrets.excerpt(body)}")


def _root(body: bytes) -> Element | None:
    try:
        root = defusedxml.ElementTree.fromstring(body, forbid_dtd=True)
    except (DefusedXmlException, LookupError, ParseError, ValueError):
        return None
    return root if root.tag == f"{{{_NAMESPACE['t']}}}tsResponse" else None
