"""Explain in one line why a request to an object store failed, and what users can do.

Spark's executors run this module without the package, so it must not import other modules of the
package.
"""

import html
import re
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from errno import ENOENT

from obstore.exceptions import BaseError

# The variables with credentials that each store's own SDK reads; the keys are schemes of URLs.
_CREDENTIALS = {
    "s3": "AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and, if they are temporary, AWS_SESSION_TOKEN",
    "gs": "GOOGLE_APPLICATION_CREDENTIALS",
    "abfss": "AZURE_STORAGE_ACCOUNT_KEY or AZURE_STORAGE_SAS_TOKEN",
}
_ENDPOINT = {"s3": "AWS_ENDPOINT_URL", "gs": "GOOGLE_BASE_URL", "abfss": "AZURE_STORAGE_ENDPOINT"}

# Each entry has three parts: a pattern for the text of the error, the cause, and the remedy. The
# first pattern that matches determines the message.
_CAUSES = (
    (
        r"NoSuchBucket|ContainerNotFound|bucket does not exist",
        "there is no such bucket",
        "Correct the URL, such as that in PIPELINE_DATA_DIR, or create the bucket",
    ),
    (
        r"AuthorizationHeaderMalformed|PermanentRedirect|IllegalLocationConstraint|"
        r"incorrectly configured region",
        "the bucket is in another region",
        "Set AWS_REGION to the region of the bucket",
    ),
    (
        r"169\.254\.169\.254|metadata\.google\.internal",
        "no credentials are set, and this machine has no role that gives credentials",
        "Set {credentials}",
    ),
    (
        r"ExpiredToken|TokenRefreshRequired|Signature not valid in the specified time frame",
        "the credentials have expired",
        "Renew {credentials}, then run again",
    ),
    (
        r"RequestTimeTooSkewed",
        "the clock of this machine differs from the store's",
        "Set the clock",
    ),
    (
        r"SignatureDoesNotMatch|InvalidAccessKeyId|InvalidClientTokenId|InvalidToken|"
        r"AuthenticationFailed|UserNotFound|invalid_grant|Unauthenticated|401 Unauthorized",
        "the store does not accept the credentials",
        "Correct {credentials}",
    ),
    (
        r"403 Forbidden|PermissionDenied|AccessDenied|AuthorizationPermissionMismatch",
        "the credentials lack the right",
        "Let the credentials read, write, delete and list objects there",
    ),
    (
        r"501 Not Implemented|NotImplemented|not supported",
        "the store does not support this request",
        "Use a store that has conditional writes (If-None-Match)",
    ),
    (
        r"InvalidCertificate\(\s*Expired",
        "the certificate of the store has expired",
        "Have it renewed, or set the clock of this machine",
    ),
    (
        r"InvalidCertificate\(\s*NotValidYet",
        "the certificate of the store is not valid yet",
        "Wait until it is, or set the clock of this machine",
    ),
    (
        r"InvalidCertificate\(\s*NotValidForName",
        "the certificate of the store is for another host",
        "Correct {endpoint}",
    ),
    (
        r"InvalidContentType",
        "the store does not encrypt",
        "Correct {endpoint}: it may have to begin with http://",
    ),
    (
        r"ProxyAuthRequired|407 Proxy",
        "the proxy asks for a user and password",
        "Put both into the variable that names the proxy, such as HTTPS_PROXY",
    ),
    (
        r"InvalidCertificate|certificate",
        "the certificate of the store is not trusted",
        "Let SSL_CERT_FILE name the certificate of the authority that signed it",
    ),
    (
        r"kind: Connect|tcp connect error|dns error",
        "no connection",
        "Check {endpoint} and the network, then run again",
    ),
    (
        r"kind: (Timeout|Interrupted|Request|Decode)|error decoding response|error sending request",
        "the connection broke off, or there was no answer in time",
        "Check the network, then run again",
    ),
    (r"\b5\d\d |SlowDown|429 Too Many", "the store failed, or is too busy", "Run again"),
    (
        r"404 Not Found|NotFound|No such file",
        "there is no such object",
        "It was removed: if it belongs to a snapshot, materialize its model again",
    ),
)
_CODE = re.compile(r"<Code>\s*(\w+)")
# The codes with which stores answer if no object has the key.
_NO_OBJECT = ("NoSuchKey", "BlobNotFound", "NoSuchVersion")
# Our own message about a failed renewal of credentials, as obstore quotes it in an error.
_RENEWAL = re.compile(r"External \w+ credential provider: \w+: ([^\n]+)")
_NO_NAMES: Mapping[str, str] = {}


class ObjectStoreTaskError(Exception):
    """An error of the store in a task of Spark. Spark's driver gets only the text of the error."""


@contextmanager
def translate_errors(
    doing: str,
    url: str,
    *,
    kind: type[Exception],
    may_lack: bool = False,
    names: Mapping[str, str] = _NO_NAMES,
) -> Generator[None]:
    """Within the block, turn errors of the store into errors of type `kind` with short messages.

    Args:
        doing: the failed action, such as "Reading".
        url: the URL of the object or folder.
        may_lack: whether to raise `FileNotFoundError` for a missing object.
        names: see `describe_failure`.
    """
    try:
        yield
    except (BaseError, OSError) as error:
        # Do not translate an error with an `errno`, because it comes from the local disk.
        if isinstance(error, OSError) and error.errno is not None:
            raise
        code = _CODE.search(str(error))
        # Check the code, because the bucket may be missing instead of the object.
        if (
            may_lack
            and isinstance(error, FileNotFoundError)
            and (code is None or code[1] in _NO_OBJECT)
        ):
            raise FileNotFoundError(ENOENT, "there is no such object", url) from None
        # Drop the original error: it shows the whole request, which may contain a signature.
        raise kind(describe_failure(error, doing, url, names=names)) from None


def describe_failure(
    error: Exception, doing: str, url: str, *, names: Mapping[str, str] = _NO_NAMES
) -> str:
    """Return one line with the failed action, the cause, the store's answer, and the remedy.

    Args:
        names: the words for "credentials" and "endpoint" in the remedy; by default, the variables
            of the store's own SDK.
    """
    text, scheme = str(error), url.partition(":")[0]
    if renewal := _RENEWAL.search(text):
        return f"{doing} {url} failed: {renewal[1]}"
    if "://" not in url:
        first_line = text.partition("\n")[0].rstrip(".")
        return f"{doing} {url} failed: {first_line}. Check the disk, and the rights to its folder"
    cause, remedy = next(
        ((cause, remedy) for pattern, cause, remedy in _CAUSES if re.search(pattern, text)),
        ("", "Check {endpoint}, and {credentials}"),
    )
    # Quote the answer of the store or the network, but no part of the request.
    parts = [
        re.search(r"(?:Error performing \w+ |uri: Some\(\s*)(https?://[^/\s?]+)", text),
        _CODE.search(text),
        re.search(r"<Message>([^<\n]+)", text),
    ]
    details = [html.unescape(part[1]).strip(" .") for part in parts if part]
    if len(details) < 2:
        # Take the last cause, which is the innermost.
        inner = re.findall(r'(?:message|error|body): (?:Some\(\s*)?"([^"<>\n]{3,200})"', text)
        status = re.findall(r"status code: ([^:\n]+)", text)
        first_line = re.sub(r"(https?://[^\s?]+)\?\S*", r"\1", text.partition("\n")[0])
        details += inner[-1:] or status[:1] or ([] if details else [first_line])
    answer = ": ".join(details).rstrip(" .:")
    of_sdk = {
        "credentials": _CREDENTIALS.get(scheme, "the credentials of the store"),
        "endpoint": _ENDPOINT.get(scheme, "the URL"),
    }
    remedy = remedy.format_map({**of_sdk, **names})
    return f"{doing} {url} failed: {f'{cause} ({answer})' if cause else answer}. {remedy}."
