"""Checks answers against a table of what their elements may hold.

An element has its attributes, then after a bar its children in their order. `?` stands after what
it may lack, `*` after what it may have any number of. A child is of the kind of its name, or of the
kind after the equals sign. The sources are Tableau's REST API reference and its Python client.
"""

import re
from xml.etree import ElementTree

import requests

ELEMENTS = {
    "text": "",
    "pagination": "pageNumber pageSize totalAvailable",
    "error": "code | summary=text detail=text",
    "serverInfo": "| productVersion restApiVersion=text",
    "productVersion": "build",
    "credentials": "token estimatedTimeToExpiration | site=thisSite user=identity",
    "thisSite": "id contentUrl",
    "identity": "id",
    "named": "id name",
    "site": "id name contentUrl adminMode state revisionHistoryEnabled revisionLimit?",
    "users": "| user*",
    "user": "id name siteRole fullName",
    "projects": "| project*",
    "project": (
        "id name description createdAt updatedAt contentPermissions parentProjectId?"
        " topLevelProject writeable | owner contentsCounts"
    ),
    "owner": "id name fullName",
    "contentsCounts": "projectCount workbookCount viewCount datasourceCount dataSourceCount",
    "datasources": "| datasource*",
    "datasource": (
        "id name contentUrl type createdAt updatedAt description? size isCertified"
        " certificationNote? encryptExtracts hasExtracts isPublished useRemoteQueryAgent"
        " webpageUrl | project=named owner tags"
    ),
    "tags": "| tag*",
    "tag": "label",
    "connections": "| connection*",
    "connection": (
        "id type serverAddress serverPort? userName embedPassword queryTaggingEnabled"
        " | datasource=named"
    ),
    "revisions": "| revision*",
    "revision": "revisionNumber publishedAt deleted current sizeInBytes | publisher=named",
    "fileUpload": "uploadSessionId fileSize",
    "job": (
        "id mode type progress? createdAt startedAt? completedAt? finishCode?"
        " | extractRefreshJob? publishDatasourceJob? updateUploadedFileJob? statusNotes?"
    ),
    "extractRefreshJob": "| notes=text? datasource=named",
    "publishDatasourceJob": "| datasource=named",
    "updateUploadedFileJob": "| datasource=named connectionLuid=text notes=text?",
    "statusNotes": "| statusNote*",
    "statusNote": "type value text",
    "backgroundJobs": "| backgroundJob*",
    "backgroundJob": "id status createdAt startedAt? endedAt? priority jobType title",
    "groups": "| group*",
    "group": "id name | domain",
    "domain": "name",
    "permissions": "| parent? project=owned? datasource=owned? granteeCapabilities*",
    "parent": "type id",
    "owned": "id name | owner=identity",
    "granteeCapabilities": "| user=identity? group=identity? capabilities",
    "capabilities": "| capability*",
    "capability": "name mode",
    "workbooks": "|",
}
# All other values are texts that are not empty.
_VALUES = {
    r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ": (
        "createdAt updatedAt startedAt completedAt endedAt publishedAt"
    ),
    "true|false": (
        "isCertified isPublished hasExtracts encryptExtracts useRemoteQueryAgent topLevelProject"
        " writeable embedPassword queryTaggingEnabled deleted current revisionHistoryEnabled"
    ),
    r"\d+": (
        "pageNumber pageSize totalAvailable size fileSize revisionLimit projectCount workbookCount"
        " viewCount datasourceCount dataSourceCount progress finishCode sizeInBytes revisionNumber"
        " serverPort priority code"
    ),
    "(?s:.*)": "contentUrl description serverAddress userName",
}
_PATTERNS = {name: pattern for pattern, names in _VALUES.items() for name in names.split()}
_BEGINNING = b'<?xml version="1.0" encoding="UTF-8"?><tsResponse xmlns="http://tableau.com/api"'
_NAMESPACE = "{http://tableau.com/api}"


def check_answer(response: requests.Response, *_: object, **__: object) -> None:
    """A hook of the client library: the elements of an answer must be those of the table."""
    if response.headers.get("Content-Type") == "application/xml":
        where = f"{response.request.method} {response.url}: {response.status_code}"
        check_xml(response.content, where=where)


def check_xml(content: bytes, *, where: str = "") -> None:
    """Raise AssertionError for an answer that is not as the table says."""
    assert content.startswith(_BEGINNING), where
    for child in ElementTree.fromstring(content):
        name = child.tag.removeprefix(_NAMESPACE)
        _check_element(child, name, where=f"{where} {name}")


def _check_element(node: ElementTree.Element, kind: str, *, where: str) -> None:
    if kind == "job" and not node.attrib:
        # One of the answers to a repeated request.
        return
    attributes, _, children = ELEMENTS[kind].partition("|")
    known = {word.rstrip("?"): word for word in attributes.split()}
    needed = {name for name, word in known.items() if name == word}
    assert needed <= node.attrib.keys() <= known.keys(), f"{where} has {list(node.attrib)}"
    for name, value in node.attrib.items():
        assert re.fullmatch(_PATTERNS.get(name, "(?s:.+)"), value), f"{where}@{name} is {value!r}"
    kinds, pattern = {}, ""
    for name, equals, kind_of_child, count in re.findall(r"(\w+)(=?)(\w*)([?*]?)", children):
        kinds[name] = kind_of_child if equals else name
        pattern += f"({name} ){count}"
    found = [child.tag.removeprefix(_NAMESPACE) for child in node]
    assert re.fullmatch(pattern, "".join(f"{name} " for name in found)), f"{where} holds {found}"
    for name, child in zip(found, node, strict=True):
        _check_element(child, kinds[name], where=f"{where}/{name}")
