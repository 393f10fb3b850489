"""Signatures of requests to S3, after https://docs.aws.amazon.com/AmazonS3/latest/API/sig-v4-header-based-auth.html."""

import hashlib
import hmac
import re
from urllib.parse import parse_qsl, quote, urlsplit

from tableau_pipeline_tests.publishing.hostile import Call

_HEADER = re.compile(
    r"AWS4-HMAC-SHA256 Credential=(?P<key>[^/]+)/(?P<scope>[^,]+), ?"
    r"SignedHeaders=(?P<headers>[^,]+), ?Signature=(?P<signature>\w+)"
)


def is_signed(call: Call, key: str, secret: str) -> bool:
    """Return whether a request is signed with a key and its secret."""
    found = _HEADER.fullmatch(call.headers["Authorization"] or "")
    if not found or found["key"] != key:
        return False
    return found["signature"] == _signature(call, secret, found["scope"], found["headers"])


def sign(call: Call, key: str, secret: str) -> None:
    """Sign a request again, with another key and without a session token."""
    found = _HEADER.fullmatch(call.headers["Authorization"] or "")
    assert found
    del call.headers["x-amz-security-token"], call.headers["Authorization"]
    names = ";".join(each for each in found["headers"].split(";") if each in call.headers)
    signature = _signature(call, secret, found["scope"], names)
    call.headers["Authorization"] = (
        f"AWS4-HMAC-SHA256 Credential={key}/{found['scope']}, "
        f"SignedHeaders={names}, Signature={signature}"
    )


def _signature(call: Call, secret: str, scope: str, names: str) -> str:
    url = urlsplit(call.path)
    pairs = sorted(parse_qsl(url.query, keep_blank_values=True))
    query = "&".join(f"{quote(name, safe='')}={quote(value, safe='')}" for name, value in pairs)
    headers = [f"{name}:{call.headers[name].strip()}" for name in names.split(";")]
    content = call.headers["x-amz-content-sha256"]
    request = "\n".join((call.command, url.path, query, *headers, "", names, content))
    digest = hashlib.sha256(request.encode()).hexdigest()
    text = "\n".join(("AWS4-HMAC-SHA256", call.headers["x-amz-date"], scope, digest))
    key = f"AWS4{secret}".encode()
    for part in (*scope.split("/"), text):
        key = hmac.digest(key, part.encode(), "sha256")
    return key.hex()
