"""Translate errors of a server into messages that name the thing and the remedy."""

import re
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from xml.etree.ElementTree import ParseError

import requests
import tableauserverclient as TSC
from tableauserverclient.server.endpoint.exceptions import (
    InternalServerError,
    NonXMLResponseError,
    TableauError,
)
from tableauserverclient.server.exceptions import (
    EndpointUnavailableError,
    ServerInfoEndpointNotFoundError,
)

from tableau_pipeline.errors import RefreshError, RefusedError
from tableau_pipeline.publishing.session.retries import RefusedLaterError, TooLargeError

NO_ENTRY = "401001"
# What a refused upload lacks is not what a refused update lacks, although the code is the same.
UPLOAD_REMEDIES = MappingProxyType(
    {"403004": "This user may not upload: it needs a Creator or Explorer (can publish) site role"}
)
_NOTHING_MORE: Mapping[str, str] = MappingProxyType({})
_REMEDIES = {
    "400000": "If its message names a size: refresh with full: true, or have "
    "api.server.update_uploaded_file.max_size_in_mb raised on the server",
    "400011": "The server could not use the file: see its message",
    "400016": "Set TSC_CHUNK_SIZE_MB to less than 16",
    "401000": "The session has ended: run again",
    "401002": "The session ended, perhaps because the same token signed in elsewhere: run again, "
    "and give each deployment a token of its own",
    "403004": "Give this user the capabilities View and Overwrite on the data source",
    "403007": "The name is taken, or this user may not publish there: it needs a Creator or "
    "Explorer (can publish) site role and the Publish capability on the project",
    "403008": "The site's storage is full: free some, or ask for more",
    "403032": "Give this user the capabilities View and Overwrite on the data source",
    "403062": "It has several connections: name the one to update",
    "404004": "It was deleted, or this user may no longer see it",
    "404005": "The project does not exist, or this user may not see it",
    "404015": "The server lost the upload: run again",
    "404020": "It does not have this connection, or no longer",
    "409015": "Rename or delete the data source that is in the way, or declare another name or "
    "project",
    "429000": "The server is too busy: run again later, or less often",
}
_NO_TABLEAU = (
    "{doing} failed: {url} does not answer like a Tableau Server. Is TABLEAU_SERVER_URL right, "
    "without a path or site, and no proxy in between?"
)
SESSION_GONE = frozenset({"401000", "401002"})
_ANOTHER_TRY_HELPS = {"404015", "429000"}


class SignInError(RefreshError):
    """The server does not accept the session, even a new one; the call was not carried out."""


@contextmanager
def translate_errors(
    doing: str, *, url: str, remedies: Mapping[str, str] = _NOTHING_MORE
) -> Generator[None]:
    """Turn the errors of the client library into ours.

    Args:
        doing: what failed, to be followed by "failed", such as 'Publishing "Sales"'.
        remedies: additional remedies, by the server's error code.

    Raises:
        RefusedError: the server refused the call; nothing happened.
        SignInError: the server does not accept the session; nothing happened either.
        RefreshError: the server failed or did not answer; the outcome is not known.
    """
    try:
        yield
    except (TSC.ServerResponseError, TSC.FailedSignInError) as error:
        raise _answered(error, doing, url, remedies) from error
    except InternalServerError as error:
        raise RefreshError(
            f"{doing} failed: {url} answered {error.code}, an error of its own. "
            "The next run finds out what it did."
        ) from error
    except (NonXMLResponseError, ParseError) as error:
        raise RefreshError(_NO_TABLEAU.format(doing=doing, url=url)) from error
    except (EndpointUnavailableError, ServerInfoEndpointNotFoundError) as error:
        raise RefusedError(f"{doing} failed: {url} is too old for that: {error}.") from error
    except TableauError as error:
        raise RefreshError(f"{doing} failed: {error}") from error
    except requests.RequestException as error:
        raise _unanswered(error, doing, url) from error


def _unanswered(error: requests.RequestException, doing: str, url: str) -> RefreshError:
    """Return the error for a call to which the server gave TSC no usable answer."""
    failed = f"{doing} failed: "
    match error:
        case TooLargeError():
            return RefusedError(
                f"{failed}{url}, or a proxy in front of it, lets no requests of this size through. "
                "Raise its limit, or set TSC_CHUNK_SIZE_MB to less than it lets through."
            )
        case RefusedLaterError(response=response):
            answer = response.status_code if response is not None else "no"
            return RefreshError(
                f"{failed}{url} did not answer, and answered {answer} when asked again. It may "
                "have received the first request; the next run finds out what it did."
            )
        # It is also a ConnectionError, and would get the wrong remedy below.
        case requests.exceptions.SSLError():
            return RefreshError(
                f"{failed}the certificate of {url} is not trusted. Point TABLEAU_CA_BUNDLE at the "
                "certificate of the authority that signed it."
            )
        case requests.exceptions.ConnectionError():
            return RefreshError(
                f"{failed}no connection to {url}, or it broke off. Is a Tableau Server running "
                "there? Correct TABLEAU_SERVER_URL, or start the local one: `tableau-sandbox`."
            )
    return RefreshError(f"{failed}{type(error).__name__} at {url}.")


def _answered(
    error: TSC.ServerResponseError | TSC.FailedSignInError,
    doing: str,
    url: str,
    remedies: Mapping[str, str],
) -> RefreshError:
    """Return the error for an error response of the server or of a proxy."""
    # Tableau's codes have six digits; an answer without one comes from something in between.
    if not re.fullmatch("[0-9]{6}", error.code or ""):
        return RefreshError(_NO_TABLEAU.format(doing=doing, url=url))
    message = f"{doing} failed: {error.code} {error.summary}: {error.detail}"
    if remedy := {**_REMEDIES, **remedies}.get(error.code):
        message = f"{message.removesuffix('.')}. {remedy}."
    if error.code in SESSION_GONE:
        return SignInError(message)
    return RefreshError(message) if error.code in _ANOTHER_TRY_HELPS else RefusedError(message)
