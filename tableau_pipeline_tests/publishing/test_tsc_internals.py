"""Tests of undocumented names of TSC (tableauserverclient): they show what an upgrade breaks."""

from inspect import signature
from xml.etree.ElementTree import fromstring

import pytest
import tableauserverclient as TSC

from tableau_pipeline.publishing import tsc_internals as internals

NAMES = {"t": "http://tableau.com/api"}
ANSWER = '<tsResponse xmlns="http://tableau.com/api">{}</tsResponse>'


@pytest.fixture
def server() -> TSC.Server:
    """A server that the tests never call."""
    return TSC.Server("http://127.0.0.1:1", use_server_version=False)


@pytest.mark.parametrize(
    ("method", "arguments"),
    [
        ("get_request", ["url", "request_object", "parameters"]),
        ("put_request", ["url", "xml_request", "content_type", "parameters"]),
        ("post_request", ["url", "xml_request", "content_type", "parameters"]),
        ("patch_request", ["url", "xml_request", "content_type", "parameters"]),
        ("delete_request", ["url"]),
    ],
)
def test_requests_of_endpoints(server: TSC.Server, method: str, arguments: list[str]):
    """Prevents: our own requests, for which TSC has no call, fail or lose their content."""
    for endpoint in (server.datasources, server.jobs, server.tasks, server.schedules, server.users):
        assert [*signature(getattr(endpoint, method)).parameters] == arguments


def test_addresses_of_endpoints(server: TSC.Server):
    """Prevents: our own requests go to a wrong path, or to a server that is too old for them."""
    server._set_auth("site-1", "user-1", "token")
    assert server.datasources.baseurl.endswith("/sites/site-1/datasources")
    assert server.namespace == NAMES
    server.version = "3.10"
    assert (server.check_at_least_version("3.9"), server.check_at_least_version("3.21")) == (
        True,
        False,
    )


def test_what_is_sent():
    """Prevents: the server refuses or misreads the content of our own requests."""
    factory = internals.RequestFactory
    body, kind = factory.Fileupload.chunk_req(b"block")
    assert b"block" in body
    assert kind.startswith("multipart/mixed; boundary=")
    item = TSC.DatasourceItem("project-1", "Orders")
    body, kind = factory.Datasource.publish_req_chunked(item)
    assert (b'name="Orders"' in body, b'id="project-1"' in body) == (True, True)
    assert kind.startswith("multipart/mixed; boundary=")
    sent = fromstring(factory.Datasource.update_req(item))
    assert sent.find("datasource/project").attrib == {"id": "project-1"}  # ty: ignore
    user = TSC.UserItem.as_reference("user-1")
    rule = TSC.PermissionsRule(user, {"Read": "Allow"})
    (capability,) = fromstring(factory.Permission.add_req([rule])).iter("capability")
    assert capability.attrib == {"name": "Read", "mode": "Allow"}
    warning = TSC.DQWItem(TSC.DQWItem.WarningType.STALE, "Late", True, False)
    assert b"Late" in factory.DQW.add_req(warning)


def test_what_is_read():
    """Prevents: the pipeline reads the answers to its own requests as if they were empty."""
    job = '<job id="job-1" mode="Asynchronous" type="RefreshExtract" progress="0"/>'
    (read,) = TSC.JobItem.from_response(ANSWER.format(job).encode(), NAMES)
    assert read.id == "job-1"
    page = '<pagination pageNumber="1" pageSize="100" totalAvailable="1"/>'
    revision = '<revision revisionNumber="3" publishedAt="2026-01-01T00:00:00Z" deleted="false"/>'
    answer = ANSWER.format(f"{page}<revisions>{revision}</revisions>").encode()
    (newest,) = TSC.RevisionItem.from_response(answer, NAMES, TSC.DatasourceItem())
    assert str(newest.revision_number) == "3"
    assert TSC.PaginationItem.from_response(answer, NAMES).total_available == 1
    link = '<connection id="c" type="hyper" serverAddress="" userName=""/>'
    answer = ANSWER.format(f"<connections>{link}</connections>").encode()
    (connection,) = TSC.ConnectionItem.from_response(answer, NAMES)
    assert connection.connection_type == "hyper"
    warning = '<dataQualityWarning id="w" type="STALE" message="Late" isActive="true"/>'
    listed = f"<dataQualityWarningList>{warning}</dataQualityWarningList>"
    (read,) = TSC.DQWItem.from_response(ANSWER.format(listed).encode(), NAMES)
    assert (read.id, read.message) == ("w", "Late")


def test_errors():
    """Prevents: an error of the server ends in a crash of the client library."""
    error = '<error code="404004"><summary>No</summary><detail>None</detail></error>'
    read = TSC.ServerResponseError.from_response(ANSWER.format(error).encode(), NAMES, "url")
    assert isinstance(read, internals.TableauError)
    assert read.code == "404004"
    for kind in (internals.InternalServerError, internals.NonXMLResponseError):
        assert issubclass(kind, internals.TableauError)
    for kind in (internals.EndpointUnavailableError, internals.ServerInfoEndpointNotFoundError):
        assert issubclass(kind, Exception)
