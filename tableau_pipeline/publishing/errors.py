"""Translate errors of the server and of TSC into our errors, with messages that name the remedy."""

import re
import traceback
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType

import requests
import tableauserverclient as TSC

from tableau_pipeline.errors import (
    BusyError,
    CredentialsError,
    NotAcceptedError,
    NoUpdatesError,
    RefreshError,
    RefusedError,
    UnreachableError,
)
from tableau_pipeline.outcome import Accept, Code, Refusal
from tableau_pipeline.publishing.connections import connection_problem
from tableau_pipeline.publishing.tsc_internals import (
    EndpointUnavailableError,
    InternalServerError,
    NonXMLResponseError,
    ServerInfoEndpointNotFoundError,
    TableauError,
)

IS_IT_RIGHT = "Is TABLEAU_SERVER_URL right, without a path or site, and no proxy in between?"


class BadAnswerError(requests.RequestException):
    """The server does not answer as it should.

    The message is the end of a sentence that begins with the server's address.
    """


class TooBusyError(BadAnswerError):
    """The server did not carry out a request, because the server had too many requests."""


class TooLargeError(BadAnswerError):
    """The server did not carry out a request, because the request was too large."""


SIGN_IN_REFUSED = "401001"
# The remedies for a refused upload, which has the same code as a refused update.
UPLOAD_REMEDIES = MappingProxyType(
    {"403004": "This user may not upload: it needs a Creator or Explorer (can publish) site role"}
)
_DOWNLOAD = (
    "Give this user the capabilities View and Download Data Source on it, and View on its project"
)
DOWNLOAD_REMEDIES = MappingProxyType({"403004": _DOWNLOAD, "403028": _DOWNLOAD})
PROJECT_REMEDIES = MappingProxyType(
    {
        "403004": "At the top of the site, only administrators create projects; in a project, only "
        "its leaders do. Have one of them create it, or give this user that role"
    }
)
MOVE_REMEDIES = MappingProxyType(
    {
        "403030": "Give this user the capabilities View and Publish on that project",
        "409015": "Rename or delete the data source that is in the way, or declare another name "
        "or project",
    }
)
# Capabilities: the keys are names in the REST API, and the values are the names that users see.
_CAPABILITIES = MappingProxyType(
    {
        "Read": "View",
        "Connect": "Connect",
        "ExportXml": "Download Data Source",
        "SaveAs": "Save As",
        "Write": "Overwrite",
        "VizqlDataApiAccess": "API Access",
        "ExtractRefresh": "Refresh extracts",
        "ChangeHierarchy": "Move",
        "Delete": "Delete",
        "ChangePermissions": "Set Permissions",
    }
)
# A capability in a message of the server. A name that is an ordinary word counts only in quotes.
_CAPABILITY = re.compile(
    r"""['"\u2018\u201c](Read|Connect|Write|Delete)['"\u2019\u201d]"""
    r"|\b(ExportXml|SaveAs|VizqlDataApiAccess|ExtractRefresh|ChangeHierarchy|ChangePermissions)\b"
)
_FORBIDDEN = frozenset({"403004", "403032"})
_NO_REMEDIES: Mapping[str, str] = MappingProxyType({})
_REMEDIES = {
    "400000": "If its message names a size: refresh with full: true, or have "
    "api.server.update_uploaded_file.max_size_in_mb raised on the server",
    "400011": "The server could not use the file: see its message",
    "400016": "Set TSC_CHUNK_SIZE_MB to less than 16",
    "401000": "The session has ended: run again",
    "401002": "The session ended, perhaps because the same token signed in elsewhere: run again, "
    "and give each deployment a token of its own",
    "403004": "Give this user the capabilities View and Overwrite on the data source, and View on "
    "its project",
    "403007": "The name is taken, or this user may not publish there: it needs a Creator or "
    "Explorer (can publish) site role and the Publish capability on the project",
    "403008": "The site's storage is full: free some, or ask for more",
    "403032": "Give this user the capabilities View and Overwrite on the data source",
    "403062": "It has several connections: name the one to update",
    "404004": "It was deleted, or this user may no longer see it",
    "404005": "The project does not exist, or this user may not see it",
    "404015": "The server lost the upload: run again",
    "404020": "It does not have this connection, or no longer has it",
    "429000": "The server is too busy: run again later, or less often",
}
# The errors that TSC raises if parts of an answer are missing or invalid. `ParseError` and the
# errors of `defusedxml` are subclasses of these types.
UNREADABLE = (
    ArithmeticError,
    AttributeError,
    LookupError,
    RecursionError,
    SyntaxError,
    TypeError,
    ValueError,
)
SESSION_GONE = frozenset({"401000", "401002"})
_NO_TABLEAU = f"{{url}} does not answer like a Tableau Server. {IS_IT_RIGHT}"
# Types of errors, each with a message; the first type that matches determines the message.
_TEMPLATES: Sequence[tuple[type[Exception] | tuple[type[Exception], ...], str]] = (
    (
        InternalServerError,
        "{url} answered {error.code}, an error of its own. The next run finds out what it did.",
    ),
    (NonXMLResponseError, _NO_TABLEAU),
    (
        (EndpointUnavailableError, ServerInfoEndpointNotFoundError),
        "{url} is too old for that: {said}.",
    ),
    (BadAnswerError, "{url} {said}"),
    (
        requests.exceptions.ConnectionError,
        "no connection to {url}, or it broke off. Is a Tableau Server running there? Correct "
        "TABLEAU_SERVER_URL, or start the local one: `tableau-sandbox`.",
    ),
    (
        (requests.exceptions.ChunkedEncodingError, requests.exceptions.ContentDecodingError),
        "the answer of {url} broke off, or is damaged. Run again.",
    ),
    (requests.RequestException, "{kind} at {url}."),
    (TableauError, "{said}"),
    (UNREADABLE, f"{{url}} does not answer like a Tableau Server: {{said}}. {IS_IT_RIGHT}"),
)
_REFUSED = (EndpointUnavailableError, ServerInfoEndpointNotFoundError, TooLargeError)
_QUERY = re.compile(r"\?\S+")
_ANOTHER_TRY_HELPS = {"404015", "429000"}


class SignInError(NotAcceptedError):
    """The server accepts neither the session nor a new session, and did not carry out the call."""


@contextmanager
def translate_errors(
    doing: str,
    *,
    url: str,
    hide: Callable[[str], str],
    remedies: Mapping[str, str] = _NO_REMEDIES,
) -> Generator[None]:
    """Within the block, turn the errors of TSC into our errors.

    Args:
        doing: the action of the block, such as 'Publishing "Sales"'; messages append "failed".
        hide: a function that removes secrets from a text of the server, and shortens the text.
        remedies: additional remedies; the keys are the server's error codes.

    Raises:
        RefusedError: the server refused the call; nothing happened.
        NotAcceptedError: the server refused the call and nothing happened, but another run may
            succeed.
        SignInError: the server did not accept the session; nothing happened.
        UnreachableError: the server failed or did not answer; the outcome is unknown.
        RefreshError: the server's answer cannot be read; the outcome is unknown.
        Exception: our own code raised this exception; it is passed on unchanged.
    """
    try:
        yield
    except (TSC.ServerResponseError, TSC.FailedSignInError) as error:
        raise _response_error(
            error, doing, url, {**_REMEDIES, **remedies}, hide
        ) from _cause_if_safe(error, hide)
    except (
        TableauError,
        EndpointUnavailableError,
        ServerInfoEndpointNotFoundError,
        requests.RequestException,
        *UNREADABLE,
    ) as error:
        if _is_our_fault(error):
            raise
        template = next((text for kind, text in _TEMPLATES if isinstance(error, kind)), "{said}")
        # Hide the query in the address of a redirect, because the query may contain secrets.
        details = hide(_QUERY.sub("?...", str(error)))
        message = connection_problem(error, url) or template.format(
            url=url, error=error, said=details, kind=type(error).__name__
        )
        message = f"{doing} failed: {message}"
        if isinstance(error, _REFUSED):
            raise RefusedError(message, code=Code.SERVER) from _cause_if_safe(error, hide)
        raise _type_without_refusal(error)(message) from _cause_if_safe(error, hide)


def _type_without_refusal(error: Exception) -> type[RefreshError]:
    if isinstance(error, TooBusyError):
        return NotAcceptedError
    is_lost = isinstance(error, (InternalServerError, requests.RequestException))
    return UnreachableError if is_lost else RefreshError


def _is_our_fault(error: Exception) -> bool:
    """Whether our own code, and not TSC, raised an error of a type in `UNREADABLE`."""
    if not isinstance(error, UNREADABLE) or isinstance(error, requests.RequestException):
        return False
    *_, (frame, _) = traceback.walk_tb(error.__traceback__)
    return str(frame.f_globals.get("__name__")).partition(".")[0] == __name__.partition(".")[0]


def _cause_if_safe(error: Exception, hide: Callable[[str], str]) -> Exception | None:
    """Return an error to use as a cause; None if its traceback would show text to hide."""
    text = "".join(traceback.format_exception_only(error))
    for cause in (error.__cause__, error.__context__):
        text += "".join(traceback.format_exception(cause)) if cause else ""
    return error if hide(text) == text else None


def _response_error(
    error: TSC.ServerResponseError | TSC.FailedSignInError,
    doing: str,
    url: str,
    remedies: Mapping[str, str],
    hide: Callable[[str], str],
) -> RefreshError:
    """Return our error for an error response from the server or a proxy."""
    # Tableau's codes have six digits. A response without such a code comes from a proxy.
    if not re.fullmatch("[0-9]{6}", error.code or ""):
        return RefreshError(f"{doing} failed: {_NO_TABLEAU.format(url=url)}")
    details = hide(f"{error.summary}: {error.detail}")
    message = f"{doing} failed: {error.code} {details}"
    remedy = remedies.get(error.code)
    if error.code in _FORBIDDEN and (match := _CAPABILITY.search(error.detail or "")):
        remedy = f"Give this user the capability {_CAPABILITIES[match[1] or match[2]]} on it"
    if remedy:
        message = f"{message.removesuffix('.')}. {remedy}."
    if error.code in SESSION_GONE:
        return SignInError(message)
    if error.code == SIGN_IN_REFUSED:
        return CredentialsError(message)
    return (
        NotAcceptedError(message)
        if error.code in _ANOTHER_TRY_HELPS
        else RefusedError(message, code=Code.SERVER)
    )


# The codes that mean that another job is changing the data source: an extract refresh or a data
# update.
_BUSY = frozenset({"409093", "409094"})
_OWNER = (
    "Only the owner of a data source may update it, and needs View and Overwrite, too: make this "
    "user the owner, or declare `owner`"
)
# The reasons why a data source takes no updates, from this user or from any user; the keys are the
# server's codes.
_NO_UPDATES = {
    "403004": _OWNER,
    "403032": _OWNER,
    "404008": "Its data are not in a Hyper file that counts as live: run once with full: true and "
    "accept: [overwrite], which replaces its metadata",
}


def update_refused(
    error: TSC.ServerResponseError, luid: str, hide: Callable[[str], str]
) -> RefreshError | None:
    """Return our error if the data source accepts no updates now, or never; None otherwise.

    Args:
        hide: a function that removes secrets from a text of the server, and shortens the text.
    """
    details = hide(f"{error.code} {error.summary}: {error.detail}").removesuffix(".")
    if reason := _NO_UPDATES.get(error.code):
        problem = f"Updating data source {luid} failed: {details}"
        lacks_right = error.code.startswith("403")
        accept = None if lacks_right else Accept.OVERWRITE
        refusal = Refusal(problem, Code.NO_UPDATES, accept, remedy=reason)
        return NoUpdatesError(refusal, lacks_right=lacks_right)
    if error.code in _BUSY:
        return BusyError(
            f"Updating data source {luid} failed: {details}. Nothing was sent: run again when that "
            "job has ended; a retry or the next tick of the trigger does so by itself."
        )
    return None
